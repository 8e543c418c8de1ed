//! Compiles the C++ shim against the libtorch that `tch` uses.

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use accelerate_libtorch::Libtorch;

/// One C++ file per thought; `nccl.cpp` says by itself what is missing without CUDA.
///
/// The files of a group are compiled as one: most of the time goes into libtorch's headers, which
/// nearly all of them read.
const GROUPS: [&[&str]; 2] = [
    &[
        "guard.cpp",
        "exit.cpp",
        "tensor.cpp",
        "autograd.cpp",
        "profiler.cpp",
    ],
    &["group.cpp", "nccl.cpp", "reducer.cpp"],
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=cxx");
    println!("cargo:rerun-if-changed=build.rs");
    let libtorch = Libtorch::locate()?.check()?;
    if only_linted() {
        return Ok(());
    }
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .warnings(true)
        .extra_warnings(true)
        .flag_if_supported("-Wno-missing-field-initializers")
        .define("USE_C10D_GLOO", None)
        .define("USE_DISTRIBUTED", None)
        // Of libtorch's headers it would be a gigabyte.
        .debug(false)
        // `exit.cpp` is needed though nothing calls it.
        .link_lib_modifier("+whole-archive")
        .include("cxx");
    // Other people's headers are not ours to be warned about.
    let headers = libtorch.include_dirs.iter().map(|dir| dir.as_path());
    for dir in headers.chain([Path::new("cxx/compat")]) {
        build.flag("-isystem").flag(dir);
    }
    if libtorch.cuda {
        build.define("USE_C10D_NCCL", None);
        let cuda = libtorch.cuda_include_dir();
        // CUDA 13 keeps the headers of its C++ library in a folder of their own.
        let cccl = cuda.as_ref().map(|dir| dir.join("cccl"));
        for dir in [cuda, cccl, libtorch.nccl_include_dir()]
            .into_iter()
            .flatten()
        {
            build.flag("-isystem").flag(dir);
        }
    }
    build.files(groups()?).compile("accelerate_torch_shim");
    println!(
        "cargo:rustc-link-search=native={}",
        libtorch.lib_dir.display()
    );
    for library in ["torch_cpu", "c10"] {
        println!("cargo:rustc-link-lib={library}");
    }
    if libtorch.cuda {
        println!("cargo:rustc-link-lib=c10_cuda");
        println!("cargo:rustc-link-lib=torch_cuda");
    }
    libtorch.emit_link_args();
    Ok(())
}

/// Whether the crate is compiled for `cargo clippy`, which links nothing and keeps products of its
/// own. `cargo xtask test` lints while it builds, and says so.
fn only_linted() -> bool {
    let driver = |wrapper| Path::new(&wrapper).file_stem() == Some(OsStr::new("clippy-driver"));
    env::var_os("RUSTC_WORKSPACE_WRAPPER").is_some_and(driver)
        && env::var_os("ACCELERATE_LINTED_BUILD").is_none()
}

/// Writes a file for each group, which includes the files of the group.
fn groups() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let folder = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets `OUT_DIR`")?);
    let group = |(number, files): (usize, &&[&str])| {
        let path = folder.join(format!("group_{number}.cpp"));
        let text: String = files
            .iter()
            .map(|file| format!("#include \"{file}\"\n"))
            .collect();
        fs::write(&path, text)?;
        Ok(path)
    };
    GROUPS.iter().enumerate().map(group).collect()
}
