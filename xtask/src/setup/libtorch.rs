//! A CPU libtorch, put together from PyPI packages.
//!
//! On Linux the package `torch` is a CUDA build whose CPU part stands alone: it needs only two small
//! CUDA libraries, which other packages bring. Leaving the CUDA part out saves gigabytes and keeps
//! it from being linked.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::Path;

use accelerate_libtorch::Libtorch;

use crate::failure::Failure;
use crate::python::{PackageFile, Part, Pinned, Python};
use crate::step::step;
use crate::workspace::Workspace;

use super::install::Installation;

/// The version of PyTorch that everything here is built for and compared with.
pub(crate) const TORCH_VERSION: &str = "2.13.0";

/// The wheels for Linux on x86-64 and ARM, and macOS on ARM.
const TORCH: Pinned = Pinned {
    name: "torch",
    version: TORCH_VERSION,
    sha256: &[
        "796633c4cdf0fe2cdced72d8f88f22e73dbcfce83132763162f6d4bff13b820b",
        "572df8be8ffb4599c88cbd6a0726f1f854f4da65d2e3c09f0e2c2283333cd6d4",
        "2fe228aba290d14b9f31b049be550dbd469c3fd3013d7a19705b30454da97027",
    ],
    file: PackageFile::CPython312Wheel,
};

/// For Linux on x86-64 and ARM.
const CUDA_RUNTIME: Pinned = Pinned {
    name: "nvidia-cuda-runtime",
    version: "13.0.96",
    sha256: &[
        "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
        "ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55",
    ],
    file: PackageFile::Wheel,
};

/// For Linux on x86-64 and ARM.
const CUPTI: Pinned = Pinned {
    name: "nvidia-cuda-cupti",
    version: "13.0.85",
    sha256: &[
        "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
        "796bd679890ee55fb14a94629b698b6db54bcfd833d391d5e94017dd9d7d3151",
    ],
    file: PackageFile::Wheel,
};

const HEADERS: Part = Part {
    from: "torch/include/",
    to: "include/",
    without: &[],
};

/// Everything but CUDA, Python, and `libtorch.so` itself, which pulls CUDA in.
const LINUX_LIBRARIES: Part = Part {
    from: "torch/lib/",
    to: "lib/",
    without: &[
        "libc10_cuda",
        "libcaffe2_nvrtc",
        "libshm",
        "libtorch.so",
        "libtorch_cuda",
        "libtorch_global_deps",
        "libtorch_nvshmem",
        "libtorch_python",
    ],
};

const MACOS_LIBRARIES: Part = Part {
    from: "torch/lib/",
    to: "lib/",
    without: &["libshm", "libtorch_global_deps", "libtorch_python"],
};

/// Takes the place of the `libtorch.so` that was left out.
const LINKER_SCRIPT: &str = "INPUT ( libtorch_cpu.so )\n";

/// What a package contributes.
type Source = (Pinned, &'static [Part]);

const LINUX: &[Source] = &[
    (TORCH, &[HEADERS, LINUX_LIBRARIES]),
    (
        CUDA_RUNTIME,
        &[library(
            "nvidia/cu13/lib/libcudart.so.13",
            "lib/libcudart.so.13",
        )],
    ),
    (
        CUPTI,
        &[library(
            "nvidia/cu13/lib/libcupti.so.13",
            "lib/libcupti.so.13",
        )],
    ),
];

const MACOS: &[Source] = &[(TORCH, &[HEADERS, MACOS_LIBRARIES])];

/// Who put our own libtorch where it is.
const OURS: &str = "by this set-up";

/// The download, pip's copy of it, and what is unpacked.
const DISK: u64 = 3_000_000_000;

const fn library(from: &'static str, to: &'static str) -> Part {
    Part {
        from,
        to,
        without: &[],
    }
}

/// Makes sure that there is a libtorch that fits: the user's own, or ours under `.libtorch`.
pub(super) fn set_up(workspace: &Workspace) -> Result<(), Failure> {
    if let Some(libtorch) = workspace.user_libtorch()? {
        say(&libtorch, &libtorch.origin.to_string());
        return Ok(());
    }
    let target = workspace.libtorch_dir();
    let sources = sources()?;
    let packages: Vec<Pinned> = sources.iter().map(|(package, _)| *package).collect();
    let installation = Installation::new(target.clone(), &packages);
    let present = Libtorch::at(&target)?.check();
    match present {
        Ok(libtorch) if installation.is_complete() => {
            say(&libtorch, OURS);
            return Ok(());
        }
        Ok(libtorch) if !target.join(".stamp").exists() => {
            installation.adopt()?;
            say(&libtorch, OURS);
            return Ok(());
        }
        _ => {}
    }
    let folder = target.parent().unwrap_or(&target);
    let python = Python::find(folder)?;
    python.require_pip()?;
    python.require_disk(DISK, "libtorch")?;
    step(
        &format!("libtorch {TORCH_VERSION} into `{}`", target.display()),
        || installation.make(|downloads, tree| fill(&python, sources, downloads, tree)),
    )?;
    say(&Libtorch::at(&target)?.check()?, OURS);
    Ok(())
}

/// The packages for this kind of machine.
fn sources() -> Result<&'static [Source], Failure> {
    match (OS, ARCH) {
        ("linux", "x86_64" | "aarch64") => Ok(LINUX),
        ("macos", "aarch64") => Ok(MACOS),
        _ => Err(Failure::new(format!(
            "there is no libtorch {TORCH_VERSION} package for {OS} on {ARCH}"
        ))
        .hint("build PyTorch from its source and set `LIBTORCH` to its folder `torch`")),
    }
}

fn fill(python: &Python, sources: &[Source], downloads: &Path, tree: &Path) -> Result<(), Failure> {
    let wheels = sources
        .iter()
        .map(|(package, parts)| Ok((python.download(package, downloads)?, parts)))
        .collect::<Result<Vec<_>, Failure>>()?;
    for (wheel, parts) in wheels {
        python.unpack(&wheel, tree, parts)?;
    }
    let write = |name: &str, text: &str| {
        let path = tree.join(name);
        fs::write(&path, text)
            .map_err(|error| Failure::because(format!("cannot write `{}`", path.display()), error))
    };
    if OS == "linux" {
        write("lib/libtorch.so", LINKER_SCRIPT)?;
    }
    write("build-version", &format!("{TORCH_VERSION}\n"))?;
    Libtorch::at(tree)?.check()?;
    Ok(())
}

fn say(libtorch: &Libtorch, origin: &str) {
    let version = libtorch
        .version
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let kind = if libtorch.cuda { "with CUDA" } else { "CPU" };
    println!(
        "libtorch {version} ({kind}) in `{}` ({origin})",
        libtorch.folder.display()
    );
}
