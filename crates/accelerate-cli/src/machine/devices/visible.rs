//! Variables that hide some devices from programs.

use std::collections::BTreeSet;

use accelerate_plan::{
    Result,
    env::{CUDA_VISIBLE_DEVICES, Environment, HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, Variable},
};

use super::{Device, Kind};

/// A variable that restricts which devices programs may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Visible {
    /// Name of the variable.
    pub(crate) variable: &'static str,
    /// Its text; empty if it hides all devices.
    pub(crate) value: String,
}

/// The devices that the variables of this kind leave, in the order in which a program numbers them,
/// and the last variable that restricts them.
pub(super) fn restrict(
    kind: Kind,
    present: &[Device],
    env: &Environment,
) -> Result<(Vec<Device>, Option<Visible>)> {
    let mut usable = present.to_vec();
    let mut last = None;
    for variable in layers(kind, env)? {
        let Some(value) = text(kind, variable, env)? else {
            continue;
        };
        let chosen = match kind {
            Kind::Xpu => choose_masked(&value, usable.len()),
            Kind::Hpu | Kind::Neuron => choose_ranges(&value, usable.len()),
            _ => choose(&value, &usable),
        };
        usable = chosen
            .iter()
            .filter_map(|index| usable.get(*index).cloned())
            .collect();
        last = Some(Visible {
            variable: variable.name(),
            value,
        });
    }
    Ok((usable, last))
}

/// The variables that apply, each to what the one before left.
fn layers(kind: Kind, env: &Environment) -> Result<Vec<&'static Variable<String>>> {
    Ok(match kind {
        Kind::Mps => Vec::new(),
        Kind::Rocm => {
            // HIP looks at the variable of CUDA where its own is not set.
            let own = text(kind, &HIP_VISIBLE_DEVICES, env)?.is_some();
            let second = if own {
                &HIP_VISIBLE_DEVICES
            } else {
                &CUDA_VISIBLE_DEVICES
            };
            vec![&ROCR_VISIBLE_DEVICES, second]
        }
        _ => vec![kind.visible_variable()],
    })
}

/// The text of a variable. Where CUDA is the model, a variable without text hides all devices.
fn text(
    kind: Kind,
    variable: &'static Variable<String>,
    env: &Environment,
) -> Result<Option<String>> {
    let hides_all = !matches!(kind, Kind::Xpu | Kind::Hpu | Kind::Neuron) && env.is_blank(variable);
    Ok(env.get(variable)?.or(hides_all.then(String::new)))
}

/// The rule of CUDA: numbers, or beginnings of names, up to the first that is no device. A device
/// named twice hides all.
fn choose(value: &str, devices: &[Device]) -> Vec<usize> {
    let items: Vec<_> = value.split(',').map(str::trim).collect();
    if items.first().is_some_and(|item| item.starts_with("MIG-")) {
        // A part of a device. A program sees one such part at most, whatever else is listed.
        return if devices.is_empty() {
            Vec::new()
        } else {
            vec![0]
        };
    }
    let chosen: Vec<_> = items
        .into_iter()
        .map_while(|item| find(item, devices))
        .collect();
    let distinct: BTreeSet<_> = chosen.iter().collect();
    match distinct.len() == chosen.len() {
        true => chosen,
        false => Vec::new(),
    }
}

/// The device that a number, or the beginning of a name, means.
fn find(item: &str, devices: &[Device]) -> Option<usize> {
    if !item.starts_with("GPU-") {
        return leading_number(item).filter(|index| *index < devices.len());
    }
    let item = item.to_ascii_lowercase();
    let mut matching = devices.iter().enumerate().filter(|(_, device)| {
        let uuid = device.uuid.as_deref().unwrap_or_default();
        uuid.to_ascii_lowercase().starts_with(&item)
    });
    match (matching.next(), matching.next()) {
        (Some((index, _)), None) => Some(index),
        _ => None,
    }
}

/// The number with which a text begins: what follows it is overlooked, as C programs do.
fn leading_number(item: &str) -> Option<usize> {
    let digits = item
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(item.len());
    item[..digits].parse().ok()
}

/// Numbers and ranges of numbers, up to the first that is no device.
fn choose_ranges(value: &str, count: usize) -> Vec<usize> {
    let mut chosen = BTreeSet::new();
    for item in value.split(',').map(str::trim) {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last < count => chosen.extend(first..=last),
            _ => break,
        }
    }
    chosen.into_iter().collect()
}

/// The rule of Level Zero: numbers, or `device.part`. Several parts of a device are one device.
fn choose_masked(value: &str, count: usize) -> Vec<usize> {
    let chosen: BTreeSet<usize> = value
        .split(',')
        .filter_map(|item| item.trim().split('.').next()?.parse().ok())
        .filter(|index| *index < count)
        .collect();
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> Vec<Device> {
        ["GPU-aa11-1", "GPU-aa22-2", "GPU-bb33-3"]
            .map(|uuid| Device {
                uuid: Some(uuid.to_owned()),
                ..Device::default()
            })
            .to_vec()
    }

    /// Which of the devices are usable; the number is the last digit of the name.
    fn usable(kind: Kind, pairs: &[(&str, &str)]) -> Vec<usize> {
        let env = Environment::from_pairs(pairs.iter().copied());
        let (usable, _) = restrict(kind, &devices(), &env).unwrap();
        usable
            .iter()
            .map(|device| leading_number(device.uuid.as_ref().unwrap().rsplit_once('-').unwrap().1))
            .map(Option::unwrap)
            .collect()
    }

    fn cuda(value: &str) -> Vec<usize> {
        usable(Kind::Cuda, &[("CUDA_VISIBLE_DEVICES", value)])
    }

    #[test]
    fn the_rule_of_cuda() {
        assert_eq!(usable(Kind::Cuda, &[]), [1, 2, 3]);
        for (value, expected) in [
            ("0", vec![1]),
            ("2, 0", vec![3, 1]),
            ("1,7,0", vec![2]),
            ("-1", vec![]),
            ("0,-1,1", vec![1]),
            ("", vec![]),
            ("none", vec![]),
            ("0,1,0", vec![]),
            ("1gpu,2", vec![2, 3]),
            ("0,,1", vec![1]),
            ("GPU-bb,GPU-AA22", vec![3, 2]),
            ("GPU-aa", vec![]),
            ("GPU-bb,GPU-zz,GPU-aa22", vec![3]),
            ("MIG-1,MIG-2", vec![1]),
        ] {
            assert_eq!(cuda(value), expected, "{value:?}");
        }
    }

    #[test]
    fn amd_has_a_second_layer() {
        let rocr = ("ROCR_VISIBLE_DEVICES", "2,1");
        assert_eq!(usable(Kind::Rocm, &[rocr]), [3, 2]);
        assert_eq!(
            usable(Kind::Rocm, &[rocr, ("HIP_VISIBLE_DEVICES", "1")]),
            [2]
        );
        assert_eq!(
            usable(Kind::Rocm, &[rocr, ("CUDA_VISIBLE_DEVICES", "0")]),
            [3]
        );
        let both = [
            ("HIP_VISIBLE_DEVICES", "0"),
            ("CUDA_VISIBLE_DEVICES", "1,2"),
        ];
        assert_eq!(usable(Kind::Rocm, &both), [1], "its own variable wins");
    }

    #[test]
    fn other_makers_have_their_own_lists() {
        let neuron = |value| usable(Kind::Neuron, &[("NEURON_RT_VISIBLE_CORES", value)]);
        assert_eq!(neuron("1-2"), [2, 3]);
        assert_eq!(neuron("0,2"), [1, 3]);
        assert!(neuron("0-9").is_empty());
        assert_eq!(neuron(""), [1, 2, 3], "not set");
        let mask = |value| usable(Kind::Xpu, &[("ZE_AFFINITY_MASK", value)]);
        assert_eq!(mask("0.0,0.1,2"), [1, 3]);
        assert_eq!(
            usable(Kind::Npu, &[("ASCEND_RT_VISIBLE_DEVICES", "2")]),
            [3]
        );
        assert_eq!(
            usable(Kind::Npu, &[("CUDA_VISIBLE_DEVICES", "")]),
            [1, 2, 3]
        );
    }
}
