//! The switches of the process; in one of its own, since they hold for all of it.

use accelerate_testkit::ranks;
use accelerate_torch::Result;
use accelerate_torch::deterministic::{Algorithms, Determinism};
use tch::{Device, Kind, Tensor};

#[test]
fn operations_without_a_deterministic_form_are_let_through_warned_of_or_refused() {
    ranks(&[1], |_| -> Result<()> {
        let start = Determinism::current()?;
        assert_eq!(start.algorithms, Algorithms::Fastest);
        let put = || {
            let places = Tensor::from_slice(&[0i64, 0]);
            Tensor::zeros([4], (Kind::Float, Device::Cpu)).f_put_(
                &places,
                &Tensor::from_slice(&[1f32, 2.0]),
                false,
            )
        };
        assert!(put().is_ok());
        let strict = start.with_algorithms(Algorithms::Deterministic);
        assert_eq!(strict.apply()?, start);
        let refused = put().unwrap_err().to_string();
        assert!(refused.contains("deterministic"), "{refused}");
        assert_eq!(
            strict.with_algorithms(Algorithms::WarnOnly).apply()?,
            strict
        );
        assert!(put().is_ok());
        Ok(())
    });
}

#[test]
fn memory_without_values_is_filled_and_every_switch_is_kept() {
    ranks(&[1], |_| -> Result<()> {
        let wanted = Determinism {
            algorithms: Algorithms::Deterministic,
            fill_uninitialized_memory: true,
            cudnn_deterministic: true,
            cudnn_benchmark: true,
            onednn_deterministic: true,
        };
        let before = wanted.apply()?;
        assert_eq!(Determinism::current()?, wanted);
        let empty = Tensor::f_empty([64], (Kind::Float, Device::Cpu))?;
        assert!(bool::try_from(empty.isnan().all()).unwrap());
        let unfilled = Determinism {
            fill_uninitialized_memory: false,
            ..wanted
        };
        unfilled.apply()?;
        assert_eq!(Determinism::current()?, unfilled);
        before.apply()?;
        assert_eq!(Determinism::current()?, before);
        Ok(())
    });
}
