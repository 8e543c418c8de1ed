//! NVIDIA: device files, and what the driver writes below `/proc`.

use super::{Bf16, Device, Root};

/// Where the driver describes each device, in a folder named after its address.
const DESCRIPTIONS: &str = "/proc/driver/nvidia/gpus";

/// The devices in the order of their addresses, which is that of CUDA for devices of one model. A
/// container sees descriptions of all devices of its host, but has the files of its own only.
pub(super) fn present(root: &Root) -> Vec<Device> {
    let mut files = root.numbers("/dev", "nvidia");
    let mut devices = Vec::new();
    for address in root.names(DESCRIPTIONS) {
        let text = root
            .text(format!("{DESCRIPTIONS}/{address}/information"))
            .unwrap_or_default();
        let minor: Option<usize> = value(&text, "Device Minor").and_then(|text| text.parse().ok());
        let Some(position) = files.iter().position(|file| Some(*file) == minor) else {
            continue;
        };
        files.remove(position);
        devices.push(describe(&text, &address));
    }
    // Files that nothing describes.
    devices.extend(files.iter().map(|_| Device::default()));
    match devices.is_empty() {
        true => without_files(root).into_iter().collect(),
        false => devices,
    }
}

fn describe(text: &str, address: &str) -> Device {
    let name = value(text, "Model").filter(|name| *name != "Unknown");
    let uuid = value(text, "GPU UUID").filter(|uuid| !uuid.contains('?'));
    Device {
        name: name.map(str::to_owned),
        uuid: uuid.map(str::to_owned),
        pci: Some(address.to_ascii_lowercase()),
        bf16: name.map_or(Bf16::Unknown, bf16),
    }
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_prefix(':').map(str::trim)
}

/// Two systems on which CUDA needs no such file: Windows' Linux, and NVIDIA's own boards with the
/// device inside the chip. Both have one device, as far as can be seen from here.
fn without_files(root: &Root) -> Option<Device> {
    let windows = root.exists("/dev/dxg") && root.exists("/usr/lib/wsl/lib/libcuda.so.1");
    if windows {
        return Some(Device::default());
    }
    let board = root.exists("/dev/nvhost-gpu") || root.exists("/dev/nvgpu/igpu0");
    let name = root.text("/proc/device-tree/model").unwrap_or_default();
    let name = name.trim_end_matches('\0').to_owned();
    board.then(|| Device {
        bf16: bf16(&name),
        name: (!name.is_empty()).then_some(name),
        ..Device::default()
    })
}

/// What the name of a model tells: bf16 came with the architecture Ampere.
fn bf16(name: &str) -> Bf16 {
    const SINCE_AMPERE: [&str; 6] = ["Ampere", "Ada", "Hopper", "Blackwell", "Orin", "Thor"];
    const BEFORE_AMPERE: [&str; 5] = ["Tesla", "Quadro", "GTX", "TITAN", "Xavier"];
    let words: Vec<_> = name.split([' ', '-']).collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
    if has(&SINCE_AMPERE) {
        return Bf16::Native;
    }
    if has(&BEFORE_AMPERE) {
        return Bf16::Emulated;
    }
    let consumer = words
        .iter()
        .position(|word| *word == "RTX")
        .and_then(|position| words.get(position + 1)?.parse::<u32>().ok());
    if let Some(number) = consumer {
        return if number < 3000 {
            Bf16::Emulated
        } else {
            Bf16::Native
        };
    }
    words
        .iter()
        .find_map(|word| by_series(word))
        .unwrap_or_default()
}

/// Models of data centres: a letter or two for the architecture, then a number.
fn by_series(word: &str) -> Option<Bf16> {
    let letters = word.find(|letter: char| letter.is_ascii_digit())?;
    match &word[..letters] {
        "A" | "H" | "L" | "B" | "GH" | "GB" => Some(Bf16::Native),
        "K" | "M" | "P" | "V" | "T" => Some(Bf16::Emulated),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_models_tell_about_bf16() {
        for name in [
            "NVIDIA H200",
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA A10G",
            "NVIDIA L40S",
            "NVIDIA GH200 480GB",
            "NVIDIA B200",
            "NVIDIA GeForce RTX 3090",
            "NVIDIA GeForce RTX 4090",
            "NVIDIA RTX A6000",
            "NVIDIA RTX 2000 Ada Generation",
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "NVIDIA Jetson AGX Orin Developer Kit",
        ] {
            assert_eq!(bf16(name), Bf16::Native, "{name}");
        }
        for name in [
            "Tesla V100-SXM2-16GB",
            "Tesla T4",
            "NVIDIA T1000",
            "NVIDIA GeForce RTX 2080 Ti",
            "Quadro RTX 8000",
            "NVIDIA TITAN RTX",
            "GRID V100D-8Q",
            "GeForce GTX 1080",
        ] {
            assert_eq!(bf16(name), Bf16::Emulated, "{name}");
        }
        for name in ["", "Graphics Device", "NVIDIA CMP"] {
            assert_eq!(bf16(name), Bf16::Unknown, "{name}");
        }
    }
}
