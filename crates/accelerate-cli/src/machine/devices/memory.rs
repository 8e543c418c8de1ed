//! How much memory devices have.

use std::{collections::HashMap, process::Command};

use super::{Device, Devices, Kind, Root};

/// The bytes of each usable device, in order; [`None`] where nothing tells for one of them.
///
/// AMD's driver writes it below `/sys`. NVIDIA's tells only its own tool, `nvidia-smi`, which is
/// started for it.
pub(crate) fn device_memory(devices: &Devices, root: &Root) -> Option<Vec<u64>> {
    match devices.kind? {
        Kind::Cuda => {
            let told = Command::new("nvidia-smi")
                .args([
                    "--query-gpu=uuid,memory.total",
                    "--format=csv,noheader,nounits",
                ])
                .output()
                .ok()
                .filter(|output| output.status.success())?;
            by_uuid(&devices.usable, &String::from_utf8_lossy(&told.stdout))
        }
        Kind::Rocm => {
            let bytes = devices.usable.iter().map(|device| of_amd(device, root));
            bytes.collect()
        }
        _ => None,
    }
}

fn of_amd(device: &Device, root: &Root) -> Option<u64> {
    let address = device.pci.as_ref()?;
    let text = root.text(format!(
        "/sys/bus/pci/devices/{address}/mem_info_vram_total"
    ))?;
    text.parse().ok()
}

/// Reads lines such as `GPU-0a1b, 81559`, in MiB.
fn by_uuid(devices: &[Device], told: &str) -> Option<Vec<u64>> {
    let lines = told.lines().filter_map(|line| {
        let (uuid, mebibytes) = line.split_once(',')?;
        let mebibytes: u64 = mebibytes.trim().parse().ok()?;
        Some((uuid.trim(), mebibytes << 20))
    });
    let bytes: HashMap<_, _> = lines.collect();
    let of = |device: &Device| bytes.get(device.uuid.as_deref()?).copied();
    devices.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::pretend::Pretend;

    fn device(uuid: &str) -> Device {
        Device {
            uuid: Some(uuid.to_owned()),
            pci: Some("0000:03:00.0".to_owned()),
            ..Device::default()
        }
    }

    #[test]
    fn devices_are_told_apart_by_their_names() {
        let told = "GPU-a, 81559\nGPU-b, 24576\n";
        let bytes = by_uuid(&[device("GPU-b"), device("GPU-a")], told);
        assert_eq!(bytes, Some(vec![24 << 30, 81559 << 20]));
        assert_eq!(by_uuid(&[device("GPU-c")], told), None);
        assert_eq!(by_uuid(&[device("GPU-a")], "GPU-a, [N/A]\n"), None);
        assert_eq!(by_uuid(&[Device::default()], told), None);
    }

    #[test]
    fn the_driver_of_amd_writes_it_down() {
        let file = "sys/bus/pci/devices/0000:03:00.0/mem_info_vram_total";
        let machine = Pretend::with(&[(file, "17163091968\n")]);
        let bytes = of_amd(&device("x"), &machine.root());
        assert_eq!(bytes, Some(17_163_091_968));
        assert_eq!(of_amd(&Device::default(), &machine.root()), None);
    }
}
