//! Compiles the C++ shim against the libtorch that `tch` uses.

use std::error::Error;
use std::path::Path;

use accelerate_libtorch::Libtorch;

/// One C++ file per thought; `nccl.cpp` says by itself what is missing without CUDA.
const SOURCES: [&str; 7] = [
    "guard.cpp",
    "tensor.cpp",
    "autograd.cpp",
    "group.cpp",
    "nccl.cpp",
    "reducer.cpp",
    "profiler.cpp",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=cxx");
    println!("cargo:rerun-if-changed=build.rs");
    let libtorch = Libtorch::locate()?.check()?;
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .warnings(true)
        .extra_warnings(true)
        .flag_if_supported("-Wno-missing-field-initializers")
        .define("USE_C10D_GLOO", None)
        .define("USE_DISTRIBUTED", None)
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
    build
        .files(SOURCES.map(|file| Path::new("cxx").join(file)))
        .compile("accelerate_torch_shim");
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
