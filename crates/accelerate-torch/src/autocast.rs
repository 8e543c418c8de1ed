//! Automatic casting of operations to a smaller dtype.

use std::marker::PhantomData;

use tch::{Device, Kind};

use crate::device::raw_device;
use crate::kind::number;
use crate::status::check;
use crate::{Result, ffi};

/// How autocast is set for one device type in this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutocastState {
    /// Whether operations are cast.
    pub enabled: bool,
    /// The dtype they are cast to, as libtorch numbers it.
    kind: i32,
    /// Whether casts of weights are kept until the outermost guard ends.
    pub cache: bool,
}

impl AutocastState {
    /// The same, with every weight cast anew at each use.
    #[must_use]
    pub fn without_cache(self) -> Self {
        Self {
            cache: false,
            ..self
        }
    }
}

/// How autocast is set for the kind of `device` in this thread.
///
/// # Errors
/// If libtorch has no autocast for that device.
pub fn state(device: Device) -> Result<AutocastState> {
    let (device_type, _) = raw_device(device)?;
    let mut now = ffi::AutocastState {
        enabled: false,
        kind: 0,
        cache: false,
    };
    // SAFETY: the struct is written before it is read.
    unsafe {
        check(
            "autocast state",
            ffi::acc_autocast_state(device_type, &mut now),
        )?
    };
    Ok(AutocastState {
        enabled: now.enabled,
        kind: now.kind,
        cache: now.cache,
    })
}

/// Sets autocast for one device type in this thread, until it is dropped.
///
/// Guards nest; drop them in the reverse order, as scopes do by themselves.
#[derive(Debug)]
#[must_use = "autocast ends when the guard is dropped"]
pub struct AutocastGuard {
    device_type: i32,
    before: AutocastState,
    // The setting belongs to the thread.
    _not_send: PhantomData<*const ()>,
}

impl AutocastGuard {
    /// Turns autocast to `kind` on, or off, for the kind of `device`.
    ///
    /// # Errors
    /// If libtorch has no autocast for that device.
    pub fn enter(device: Device, enabled: bool, kind: Kind, cache: bool) -> Result<Self> {
        Self::set(
            device,
            AutocastState {
                enabled,
                kind: number(kind),
                cache,
            },
        )
    }

    /// Sets autocast for the kind of `device` as [`state`] found it, also at another time.
    ///
    /// # Errors
    /// If libtorch has no autocast for that device.
    pub fn set(device: Device, wanted: AutocastState) -> Result<Self> {
        let (device_type, _) = raw_device(device)?;
        let mut before = ffi::AutocastState {
            enabled: false,
            kind: 0,
            cache: false,
        };
        // SAFETY: the struct is written before it is read.
        unsafe {
            check(
                "enter autocast",
                ffi::acc_autocast_enter(
                    device_type,
                    wanted.enabled,
                    wanted.kind,
                    wanted.cache,
                    &mut before,
                ),
            )?;
        }
        let before = AutocastState {
            enabled: before.enabled,
            kind: before.kind,
            cache: before.cache,
        };
        Ok(Self {
            device_type,
            before,
            _not_send: PhantomData,
        })
    }
}

impl Drop for AutocastGuard {
    fn drop(&mut self) {
        let before = ffi::AutocastState {
            enabled: self.before.enabled,
            kind: self.before.kind,
            cache: self.before.cache,
        };
        // SAFETY: the struct is alive for the call. A device type that could be entered can be
        // left, so there is no error to report.
        let _ = unsafe {
            check(
                "leave autocast",
                ffi::acc_autocast_leave(self.device_type, &before),
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Tensor;

    #[test]
    fn what_was_set_is_set_again() -> Result<()> {
        let x = Tensor::f_ones([2, 2], (Kind::Float, Device::Cpu))?;
        let found = {
            let _guard = AutocastGuard::enter(Device::Cpu, true, Kind::BFloat16, true)?;
            state(Device::Cpu)?
        };
        let _again = AutocastGuard::set(Device::Cpu, found.without_cache())?;
        assert_eq!(x.f_matmul(&x)?.kind(), Kind::BFloat16);
        assert!(!state(Device::Cpu)?.cache);
        Ok(())
    }

    #[test]
    fn products_are_cast_inside_and_not_outside() -> Result<()> {
        let x = Tensor::f_ones([2, 2], (Kind::Float, Device::Cpu))?;
        {
            let _outer = AutocastGuard::enter(Device::Cpu, true, Kind::BFloat16, true)?;
            assert_eq!(x.f_matmul(&x)?.kind(), Kind::BFloat16);
            {
                let _inner = AutocastGuard::enter(Device::Cpu, false, Kind::BFloat16, true)?;
                assert_eq!(x.f_matmul(&x)?.kind(), Kind::Float);
            }
            assert!(state(Device::Cpu)?.enabled);
        }
        assert_eq!(x.f_matmul(&x)?.kind(), Kind::Float);
        assert!(!state(Device::Cpu)?.enabled);
        Ok(())
    }
}
