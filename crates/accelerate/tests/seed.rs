//! One seed for every generator.

use accelerate::random::{Algorithms, Determinism, SeedOptions, set_seed};
use accelerate::{Accelerator, Result};
use accelerate_testkit::{Rank, ranks};
use accelerate_torch::Generator;
use tch::{Device, Kind, Tensor};

fn first_number() -> Result<i64> {
    Ok(Generator::default_cpu()?.random_i64()?)
}

/// Which of two values for one place wins is not determined.
fn put_twice() -> Result<Tensor> {
    let (places, values) = (
        Tensor::from_slice(&[0i64, 0]),
        Tensor::from_slice(&[1f32, 2.0]),
    );
    let mut out = Tensor::f_zeros([4], (Kind::Float, Device::Cpu))?;
    Ok(out.f_put_(&places, &values, false)?)
}

#[test]
fn ranks_draw_the_same_numbers_or_their_own() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        let early = set_seed(
            42,
            SeedOptions {
                device_specific: true,
                ..Default::default()
            },
        );
        assert!(early.unwrap_err().to_string().contains("`Accelerator`"));

        let seeded = set_seed(42, SeedOptions::default())?;
        assert_eq!(seeded.seed, 42);
        assert!(seeded.devices.contains(&Device::Cpu));
        // What torch 2.13 draws first after `manual_seed(42)`.
        assert_eq!(first_number()?, 6_909_045_637_428_952_499);

        let accelerator = Accelerator::new()?;
        let own = accelerator.set_seed(
            42,
            SeedOptions {
                device_specific: true,
                deterministic: true,
            },
        )?;
        assert_eq!(own.seed, 42 + rank.index() as u64);
        assert_eq!(
            first_number()? == 6_909_045_637_428_952_499,
            rank.index() == 0
        );

        // A seed alone does not turn determinism off again.
        set_seed(1, SeedOptions::default())?;
        let refused = put_twice().unwrap_err();
        let refused = std::error::Error::source(&refused).unwrap().to_string();
        assert!(
            refused.contains("put_ does not have a deterministic implementation"),
            "{refused}"
        );
        let before = Determinism::current()?
            .with_algorithms(Algorithms::WarnOnly)
            .apply()?;
        assert_eq!(before.algorithms, Algorithms::Deterministic);
        assert_eq!(put_twice()?.size(), [4]);
        accelerator.end_training()
    });
}
