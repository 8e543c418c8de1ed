//! Makers whose drivers tell little more than how many devices there are.

use super::{Bf16, Device, Kind, Root};

/// The devices of a kind, by their device files.
pub(super) fn present(kind: Kind, root: &Root) -> Vec<Device> {
    match kind {
        Kind::Cuda | Kind::Rocm => Vec::new(),
        Kind::Xpu => intel(root),
        Kind::Mlu => files(root, &["cambricon_dev"], Bf16::Unknown),
        Kind::Sdaa => files(root, &["tcaicard"], Bf16::Unknown),
        Kind::Musa => files(root, &["mtgpu.", "mtgpu"], Bf16::Unknown),
        Kind::Npu => files(root, &["davinci"], Bf16::Unknown),
        Kind::Hpu => gaudi(root),
        Kind::Neuron => neuron(root),
        Kind::Mps => apple(),
    }
}

/// One device for each file below `/dev` with the first prefix that fits any.
fn files(root: &Root, prefixes: &[&str], bf16: Bf16) -> Vec<Device> {
    let counts = prefixes
        .iter()
        .map(|prefix| root.numbers("/dev", prefix).len());
    let count = counts.into_iter().find(|count| *count > 0);
    nameless(count.unwrap_or(0), bf16)
}

fn nameless(count: usize, bf16: Bf16) -> Vec<Device> {
    let device = Device {
        bf16,
        ..Device::default()
    };
    vec![device; count]
}

/// Intel's cards. The graphics inside its processors always have one address; they are left out, or
/// every laptop would count as a machine with an accelerator.
fn intel(root: &Root) -> Vec<Device> {
    const INSIDE_THE_PROCESSOR: &str = "0000:00:02.0";
    let files = root.numbers("/dev/dri", "renderD");
    files
        .into_iter()
        .filter_map(|file| {
            let folder = format!("/sys/class/drm/renderD{file}/device");
            let is_intel = root.text(format!("{folder}/vendor"))? == "0x8086";
            let events = root.text(format!("{folder}/uevent"))?;
            let address = events
                .lines()
                .find_map(|line| line.strip_prefix("PCI_SLOT_NAME="))?;
            (is_intel && address != INSIDE_THE_PROCESSOR).then(|| Device {
                pci: Some(address.to_ascii_lowercase()),
                bf16: Bf16::Native,
                ..Device::default()
            })
        })
        .collect()
}

/// Gaudi cards: files of their own, or of the kernel's common folder, which other makers use too.
fn gaudi(root: &Root) -> Vec<Device> {
    const MAKER: &str = "0x1da3";
    let of_maker = |file: &usize| {
        let vendor = root.text(format!("/sys/class/accel/accel{file}/device/vendor"));
        vendor.as_deref() == Some(MAKER)
    };
    let common = root.numbers("/dev/accel", "accel");
    match common.iter().filter(|file| of_maker(file)).count() {
        0 => files(root, &["hl"], Bf16::Native),
        count => nameless(count, Bf16::Native),
    }
}

/// Neuron devices hold several cores, each of which programs take for a device.
fn neuron(root: &Root) -> Vec<Device> {
    let cores = |device: usize| {
        let folder = format!("/sys/devices/virtual/neuron_device/neuron{device}");
        let stated = root.text(format!("{folder}/core_count"));
        let stated = stated.and_then(|text| text.parse().ok());
        let listed = root.numbers(&folder, "neuron_core").len();
        stated.unwrap_or(listed).max(1)
    };
    let devices = root.numbers("/dev", "neuron");
    nameless(devices.into_iter().map(cores).sum(), Bf16::Native)
}

fn apple() -> Vec<Device> {
    let is_apple = cfg!(all(target_os = "macos", target_arch = "aarch64"));
    nameless(usize::from(is_apple), Bf16::Unknown)
}
