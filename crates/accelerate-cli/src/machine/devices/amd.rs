//! AMD: what the compute driver writes below `/sys`.

use super::{Bf16, Device, Root};

const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";

/// The devices in the order of the driver, which is that of ROCm. A container sees descriptions of
/// all devices of its host, but has the files of its own only.
pub(super) fn present(root: &Root) -> Vec<Device> {
    if !root.exists("/dev/kfd") {
        return Vec::new();
    }
    let nodes = root.numbers(NODES, "");
    nodes
        .into_iter()
        .filter_map(|node| {
            let text = root.text(format!("{NODES}/{node}/properties"))?;
            describe(root, &text)
        })
        .collect()
}

/// `None` for a node without compute units, such as a processor, and for one that we may not use.
fn describe(root: &Root, properties: &str) -> Option<Device> {
    let number = |key: &str| -> Option<u64> {
        let mut lines = properties.lines();
        lines.find_map(|line| {
            line.strip_prefix(key)?
                .strip_prefix(' ')?
                .trim()
                .parse()
                .ok()
        })
    };
    number("simd_count").filter(|count| *count > 0)?;
    let file = number("drm_render_minor").filter(|minor| *minor > 0);
    if let Some(minor) = file
        && !root.exists(format!("/dev/dri/renderD{minor}"))
    {
        return None;
    }
    let product = file
        .and_then(|minor| root.text(format!("/sys/class/drm/renderD{minor}/device/product_name")));
    let name = product
        .filter(|name| !name.is_empty())
        .or_else(|| number("gfx_target_version").map(target));
    let pci = number("location_id").map(|place| address(number("domain").unwrap_or(0), place));
    let uuid = number("unique_id").filter(|id| *id > 0);
    Some(Device {
        name,
        uuid: uuid.map(|id| format!("GPU-{id:016x}")),
        pci,
        // ROCm computes in bf16 on every device it supports.
        bf16: Bf16::Native,
    })
}

/// The name of an instruction set: of 90402, the last two digits are hexadecimal in the name.
fn target(version: u64) -> String {
    let (major, minor, step) = (version / 10_000, version / 100 % 100, version % 100);
    format!("gfx{major}{minor:x}{step:x}")
}

fn address(domain: u64, place: u64) -> String {
    let (bus, device, function) = (place >> 8 & 0xff, place >> 3 & 0x1f, place & 7);
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_the_driver_are_written_as_people_write_them() {
        assert_eq!(target(90_402), "gfx942");
        assert_eq!(target(90_010), "gfx90a");
        assert_eq!(target(110_000), "gfx1100");
        assert_eq!(address(0, 0x1900), "0000:19:00.0");
        assert_eq!(address(1, 0xc101), "0001:c1:00.1");
    }
}
