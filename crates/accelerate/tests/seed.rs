//! One seed for every generator.

use accelerate::random::{SeedOptions, set_seed};
use accelerate::{Accelerator, Result};
use accelerate_testkit::{Rank, ranks};
use accelerate_torch::Generator;
use tch::Device;

fn first_number() -> Result<i64> {
    Ok(Generator::default_cpu()?.random_i64()?)
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
                // Ranks of tests have one thread.
                deterministic: true,
            },
        )?;
        assert_eq!(own.seed, 42 + rank.index() as u64);
        assert_eq!(
            first_number()? == 6_909_045_637_428_952_499,
            rank.index() == 0
        );

        tch::set_num_threads(2);
        let refused = set_seed(
            1,
            SeedOptions {
                deterministic: true,
                ..Default::default()
            },
        );
        assert!(refused.unwrap_err().to_string().contains("2 threads"));
        accelerator.end_training()
    });
}
