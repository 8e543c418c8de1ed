use std::num::NonZeroUsize;

use super::{
    super::{
        libtorch::Libtorch,
        python::{Package, Torch},
    },
    *,
};
use crate::machine::{Cores, CpuList, Device, Devices, Visible};

fn facts() -> Facts {
    Facts {
        platform: "Linux-6.1.0-x86_64-with-glibc2.36".to_owned(),
        location: None,
        python: None,
        numpy: None,
        torch: None,
        accelerate: None,
        libtorch: None,
        devices: Devices::default(),
        cores: Cores {
            allowed: CpuList::default(),
            usable: NonZeroUsize::MIN,
            physical: NonZeroUsize::MIN,
        },
        memory: Some(Memory {
            total: 25_276_088_320,
            limit: None,
        }),
        cann: None,
        cluster: None,
    }
}

fn two_cards(built_for_them: bool) -> Facts {
    let card = Device {
        name: Some("NVIDIA H200".to_owned()),
        ..Device::default()
    };
    Facts {
        torch: Some(Torch {
            version: "2.13.0".to_owned(),
            cuda: built_for_them,
            hip: false,
            xpu: false,
        }),
        devices: Devices {
            kind: Some(Kind::Cuda),
            present: vec![card.clone(); 4],
            usable: vec![card; 2],
            visible: Some(Visible {
                variable: "CUDA_VISIBLE_DEVICES",
                value: "2,3".to_owned(),
            }),
        },
        ..facts()
    }
}

#[test]
fn a_bare_machine_has_the_lines_of_the_original() {
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "\nCopy-and-paste the text below in your GitHub issue\n\n\
         - `Accelerate` version: {version} (Rust)\n\
         - Platform: Linux-6.1.0-x86_64-with-glibc2.36\n\
         - `accelerate` bash location: Not found\n\
         - Python version: Not found\n\
         - Numpy version: Not found\n\
         - PyTorch version: Not found\n\
         - PyTorch accelerator: N/A\n\
         - System RAM: 23.54 GB\n\
         - `Accelerate` default config:\n\
         \tNot found\n"
    );
    assert_eq!(render(&facts(), false, None), expected);
}

#[test]
fn a_config_is_shown_key_by_key() {
    let config = IndexMap::from([
        ("distributed_type".to_owned(), "NO".into()),
        ("use_cpu".to_owned(), true.into()),
        ("gpu_ids".to_owned(), Value::Null),
    ]);
    let report = render(&facts(), true, Some(&config));
    assert!(
        report.ends_with(
            "- `Accelerate` config passed:\n\t- distributed_type: NO\n\t- use_cpu: True\n"
        ),
        "{report}"
    );
}

#[test]
fn devices_are_named_and_counted() {
    let report = render(&two_cards(true), false, None);
    for line in [
        "- PyTorch accelerator: CUDA\n",
        "- GPU type: NVIDIA H200\n",
        "- Devices: 2 of 4 (`CUDA_VISIBLE_DEVICES=2,3`)\n",
    ] {
        assert!(report.contains(line), "{line} in {report}");
    }
}

#[test]
fn a_pytorch_without_support_for_the_devices_is_pointed_out() {
    let report = render(&two_cards(false), false, None);
    assert!(
        report.contains(
            "- PyTorch accelerator: N/A (NVIDIA devices: 2, but this PyTorch is not built for \
             them)\n"
        ),
        "{report}"
    );
}

#[test]
fn what_only_we_know_comes_after_the_lines_of_the_original() {
    let more = Facts {
        accelerate: Some(Package {
            version: "1.15.0".to_owned(),
        }),
        libtorch: Some(Libtorch {
            version: "2.13.0+cpu".to_owned(),
            folder: "/opt/libtorch".into(),
        }),
        memory: Some(Memory {
            total: 2 << 30,
            limit: Some(1 << 30),
        }),
        cluster: Some("SLURM job 7 on n1".to_owned()),
        ..facts()
    };
    let report = render(&more, false, None);
    assert!(
        report.contains(
            "- System RAM: 2.00 GB (limited to 1.00 GB)\n\
             - `accelerate` version in Python: 1.15.0\n\
             - libtorch version: 2.13.0+cpu (/opt/libtorch)\n\
             - Cluster manager: SLURM job 7 on n1\n\
             - `Accelerate` default config:\n"
        ),
        "{report}"
    );
}
