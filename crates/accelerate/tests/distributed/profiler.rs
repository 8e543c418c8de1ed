//! The profiler on real ranks, with and without a schedule.

use std::cell::RefCell;
use std::fs;
use std::num::NonZeroU64;
use std::rc::Rc;

use accelerate::profile::{GroupBy, ProfileKwargs, Schedule};
use accelerate::{Accelerator, Error, Result};
use accelerate_testkit::ranks;
use tch::{Device, Kind, Tensor};

fn ones(shape: &[i64]) -> Tensor {
    Tensor::ones(shape, (Kind::Float, Device::Cpu))
}

#[test]
fn operations_collectives_and_memory_are_recorded_on_every_rank() {
    let folder = tempfile::tempdir().unwrap();
    ranks(&[1, 2], |rank| -> Result<()> {
        // Each rank's process makes a folder of its own.
        let path = folder.path().join("traces");
        let accelerator = Accelerator::builder()
            .profile_kwargs(ProfileKwargs {
                profile_memory: true,
                with_flops: true,
                output_trace_dir: Some(path.clone()),
                ..ProfileKwargs::default()
            })
            .build()?;
        let mut profiler = accelerator.profile()?;
        let running = profiler.events().unwrap_err();
        assert!(matches!(running, Error::Argument { .. }), "{running}");
        let product = ones(&[4, 8]).f_matmul(&ones(&[8, 2]))?;
        let _all = accelerator.gather(product)?;
        profiler.finish()?;

        let averages = profiler.key_averages(GroupBy::InputShape)?;
        let sums = averages.get("aten::mm").unwrap();
        assert_eq!((sums.count, sums.flops), (1, 2 * 4 * 8 * 2));
        assert_eq!(sums.input_shapes.as_deref(), Some("[[4, 8], [8, 2]]"));
        assert_eq!(sums.cpu_memory_usage, 4 * 4 * 2);
        let gathers = averages
            .as_slice()
            .iter()
            .filter(|sums| sums.is_user_annotation && sums.key.contains("bytes, group 0 of 2"));
        assert_eq!(gathers.count() > 0, rank.world() == 2);
        let trace = path.join(format!("profile_{}.json", rank.index()));
        let again = path.join("again.json");
        profiler.export_chrome_trace(&again)?;
        assert_eq!(fs::read(trace).unwrap(), fs::read(again).unwrap());
        Ok(())
    });
}

#[test]
fn a_schedule_gives_a_trace_at_the_end_of_each_cycle() {
    ranks(&[1], |_| -> Result<()> {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&seen);
        let accelerator = Accelerator::new()?;
        let mut profiler = accelerator.profile_with(ProfileKwargs {
            schedule_option: Some(Schedule {
                wait: 1,
                warmup: 1,
                repeat: NonZeroU64::new(2),
                ..Schedule::new(NonZeroU64::new(2).unwrap())
            }),
            on_trace_ready: Some(Rc::new(move |profiler| {
                let averages = profiler.key_averages(GroupBy::Name)?;
                let count = |name| averages.get(name).map_or(0, |sums| sums.count);
                let step = profiler.step_num();
                kept.borrow_mut()
                    .push((step, count("aten::neg"), count("ProfilerStep*")));
                Ok(())
            })),
            ..ProfileKwargs::default()
        })?;
        for _ in 0..10 {
            let _less = ones(&[1]).f_neg()?;
            profiler.step()?;
        }
        profiler.finish()?;
        assert_eq!(*seen.borrow(), [(4, 2, 2), (8, 2, 2)]);
        assert!(profiler.step().is_err());

        let mut nothing = accelerator.profile_with(ProfileKwargs {
            schedule_option: Some(Schedule {
                skip_first: 10,
                ..Schedule::new(NonZeroU64::MIN)
            }),
            ..ProfileKwargs::default()
        })?;
        nothing.step()?;
        nothing.finish()?;
        assert!(nothing.events().is_err(), "nothing was recorded");
        Ok(())
    });
}
