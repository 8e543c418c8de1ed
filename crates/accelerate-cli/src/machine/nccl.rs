//! A fault of NVIDIA's driver that makes NCCL hang on consumer cards.

use accelerate_plan::{
    Result,
    env::{EnvOverlay, Environment, NCCL_IB_DISABLE, NCCL_P2P_DISABLE, Variable},
};

use super::{Devices, Kind, Root};

/// The first driver without the fault.
const REPAIRED: [u32; 3] = [550, 40, 7];
/// Part of the names of the models concerned.
const CONCERNED: &str = "RTX 40";

/// Two ways of copying that NCCL must not use on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NcclWorkaround {
    /// The variables that say so, without those that the user has set.
    pub(crate) overlay: EnvOverlay,
    /// Why, as a sentence without a full stop.
    pub(crate) why: String,
}

/// What NCCL must be told on this machine: with several cards of the RTX 40 series, drivers before
/// 550.40.07 offer direct copies that do not work. `None` if nothing is to be told.
///
/// # Errors
/// If a variable cannot be read.
pub(crate) fn nccl_workaround(
    root: &Root,
    devices: &Devices,
    env: &Environment,
) -> Result<Option<NcclWorkaround>> {
    let mut names = devices.present.iter().filter_map(|it| it.name.as_deref());
    let concerned = names.find(|name| name.contains(CONCERNED));
    let driver = driver(root).filter(|driver| parts(driver) < REPAIRED.to_vec());
    let several = devices.kind == Some(Kind::Cuda) && devices.present.len() > 1;
    let (Some(name), Some(driver), true) = (concerned, driver, several) else {
        return Ok(None);
    };
    let mut overlay = EnvOverlay::new();
    for variable in [&NCCL_P2P_DISABLE, &NCCL_IB_DISABLE] {
        if !is_set(variable, env)? {
            overlay.set(variable, &"1".to_owned());
        }
    }
    if overlay.is_empty() {
        return Ok(None);
    }
    let told: Vec<_> = overlay
        .iter()
        .map(|(name, value)| format!("`{name}={value}`"))
        .collect();
    let why = format!(
        "{} was set: direct copies between devices such as `{name}` do not work with driver \
         {driver}; a driver from 550.40.07 on repairs this",
        told.join(" and ")
    );
    Ok(Some(NcclWorkaround { overlay, why }))
}

fn is_set(variable: &'static Variable<String>, env: &Environment) -> Result<bool> {
    Ok(env.is_blank(variable) || env.get(variable)?.is_some())
}

/// The version of the driver that is loaded: the first word that looks like one.
fn driver(root: &Root) -> Option<String> {
    let text = root.text("/proc/driver/nvidia/version")?;
    let line = text.lines().find(|line| line.contains("NVRM"))?;
    let version = line.split_whitespace().find(|word| {
        let numbers = parts(word).len();
        numbers >= 2 && numbers == word.split('.').count()
    });
    version.map(str::to_owned)
}

/// The numbers of a version.
fn parts(version: &str) -> Vec<u32> {
    let numbers = version.split('.').map_while(|part| part.parse().ok());
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Device, root::pretend::Pretend},
        *,
    };

    fn devices(names: &[&str]) -> Devices {
        let present = names.iter().map(|name| Device {
            name: Some((*name).to_owned()),
            ..Device::default()
        });
        Devices {
            kind: Some(Kind::Cuda),
            present: present.collect(),
            ..Devices::default()
        }
    }

    fn told(version: &str, names: &[&str], pairs: &[(&str, &str)]) -> Option<NcclWorkaround> {
        let machine = Pretend::with(&[("proc/driver/nvidia/version", version)]);
        let env = Environment::from_pairs(pairs.iter().copied());
        nccl_workaround(&machine.root(), &devices(names), &env).unwrap()
    }

    const OLD: &str = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n\
         GCC version:  gcc version 12.2.0\n";
    const NEW: &str = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release";
    const PAIR: [&str; 2] = ["NVIDIA GeForce RTX 4090"; 2];

    #[test]
    fn an_old_driver_with_two_cards_needs_both_variables() {
        let workaround = told(OLD, &PAIR, &[]).unwrap();
        let pairs: Vec<_> = workaround.overlay.iter().collect();
        assert_eq!(pairs, [("NCCL_P2P_DISABLE", "1"), ("NCCL_IB_DISABLE", "1")]);
        assert!(
            workaround.why.contains("535.104.05") && workaround.why.contains("RTX 4090"),
            "{}",
            workaround.why
        );
    }

    #[test]
    fn what_the_user_set_stays() {
        let workaround = told(OLD, &PAIR, &[("NCCL_P2P_DISABLE", "0")]).unwrap();
        assert_eq!(workaround.overlay.get("NCCL_P2P_DISABLE"), None);
        assert_eq!(workaround.overlay.get("NCCL_IB_DISABLE"), Some("1"));
        let both = [("NCCL_P2P_DISABLE", "0"), ("NCCL_IB_DISABLE", "")];
        assert_eq!(told(OLD, &PAIR, &both), None);
    }

    #[test]
    fn other_machines_are_left_alone() {
        assert_eq!(told(NEW, &PAIR, &[]), None);
        assert_eq!(told(OLD, &PAIR[..1], &[]), None);
        assert_eq!(told(OLD, &["NVIDIA H200", "NVIDIA H200"], &[]), None);
        assert_eq!(told("", &PAIR, &[]), None);
        let edge = |version| format!("NVRM version: NVIDIA UNIX Kernel Module  {version}  Release");
        assert_eq!(told(&edge("550.40.07"), &PAIR, &[]), None);
        assert!(told(&edge("550.40.06"), &PAIR, &[]).is_some());
        assert!(told(&edge("550.40"), &PAIR, &[]).is_some());
    }
}
