//! The search for a batch size that fits, over real ranks.

use std::cell::RefCell;
use std::num::NonZeroUsize;

use accelerate::memory::find_executable_batch_size;
use accelerate::nn::{Factory, Linear, Module};
use accelerate::optim::{Sgd, SgdConfig};
use accelerate::{Accelerator, Error, Result};
use accelerate_testkit::{Rank, ranks};
use tch::{Device, Kind, Tensor};

/// The error of an allocation that no machine can make.
fn exhaust_memory() -> Result<()> {
    let _too_much = Tensor::f_empty([1i64 << 46], (Kind::Double, Device::Cpu))?;
    Ok(())
}

/// The sizes that are tried when nothing above `fits` does.
fn tried(mut search: accelerate::memory::BatchSizeSearch, fits: usize) -> (Vec<usize>, Result<()>) {
    let tried = RefCell::new(Vec::new());
    let outcome = search.run(|size| {
        tried.borrow_mut().push(size);
        if size > fits {
            exhaust_memory()
        } else {
            Ok(())
        }
    });
    (tried.into_inner(), outcome)
}

#[test]
fn sizes_are_halved_or_made_smaller_as_wanted() {
    let (sizes, outcome) = tried(find_executable_batch_size(128), 8);
    outcome.unwrap();
    assert_eq!(sizes, [128, 64, 32, 16, 8]);

    let slow = find_executable_batch_size(128).reduce_with(|size| size * 9 / 10);
    let (sizes, outcome) = tried(slow, 0);
    // As the original goes down, and then says that nothing is left.
    assert_eq!(
        sizes[..13],
        [128, 115, 103, 92, 82, 73, 65, 58, 52, 46, 41, 36, 32]
    );
    assert_eq!(*sizes.last().unwrap(), 1);
    assert!(matches!(
        outcome,
        Err(Error::NoExecutableBatchSize {
            starting: 128,
            floor: 1
        })
    ));

    let (sizes, outcome) = tried(find_executable_batch_size(128).floor(32), 8);
    assert_eq!(sizes, [128, 64, 32]);
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("no executable batch size found"), "{error}");

    let (sizes, outcome) = tried(find_executable_batch_size(0), 8);
    assert!(sizes.is_empty() && outcome.is_err());

    // A way down that does not go down cannot go round for ever.
    let (sizes, _) = tried(find_executable_batch_size(4).reduce_with(|size| size), 1);
    assert_eq!(sizes, [4, 3, 2, 1]);
}

#[test]
fn the_size_is_kept_for_the_next_run() {
    let mut search = find_executable_batch_size(64);
    let fit = |size: usize| if size > 20 { exhaust_memory() } else { Ok(()) };
    search.run(fit).unwrap();
    assert_eq!(search.batch_size(), 16);
    let mut first = None;
    search
        .run(|size| {
            first.get_or_insert(size);
            Ok(())
        })
        .unwrap();
    assert_eq!(first, Some(16));
}

#[test]
fn a_panic_of_a_tensor_operation_counts_as_its_error() {
    let mut search = find_executable_batch_size(4);
    search
        .run(|size| {
            if size > 2 {
                // The methods of `tch` that do not return errors panic with them.
                let _ = Tensor::empty([1i64 << 46], (Kind::Double, Device::Cpu));
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(search.batch_size(), 2);
}

#[test]
fn ranks_agree_when_one_runs_out_of_memory() {
    ranks(&[3], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let mut search = accelerator.find_executable_batch_size(128);
        let mut sizes = Vec::new();
        search.run(|size| {
            sizes.push(size);
            match rank.index() == 1 && size > 100 {
                true => exhaust_memory(),
                false => Ok(()),
            }
        })?;
        assert_eq!(sizes, [128, 64]);
        // Ways down that differ over ranks: the smallest counts.
        let by = rank.index() + 1;
        let mut search = accelerator
            .find_executable_batch_size(100)
            .reduce_with(move |size| size - 10 * by);
        let fits = search.run(|size| {
            if size > 75 {
                exhaust_memory()?;
            }
            Ok(size)
        })?;
        assert_eq!(fits, 70);
        accelerator.end_training()
    });
}

#[test]
fn other_errors_and_panics_pass_through_and_the_other_ranks_learn_of_them() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let mut search = accelerator.find_executable_batch_size(8);
        let outcome = search.run(|_| match rank.index() {
            1 => Err::<(), _>(Error::EmptyDataset),
            _ => Ok(()),
        });
        match outcome.unwrap_err() {
            Error::EmptyDataset => assert_eq!(rank.index(), 1),
            Error::OtherRankFailed { rank: 1 } => assert_eq!(rank.index(), 0),
            other => panic!("{other}"),
        }
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            search.run(|_| match rank.index() {
                1 => panic!("of another kind"),
                _ => exhaust_memory(),
            })
        }));
        match (rank.index(), panicked) {
            (1, Err(cause)) => assert_eq!(cause.downcast_ref(), Some(&"of another kind")),
            (0, Ok(Err(Error::OtherRankFailed { rank: 1 }))) => {}
            (_, other) => panic!("{other:?}"),
        }
        accelerator.end_training()
    });
}

#[test]
fn freed_things_are_gone() -> Result<()> {
    let accelerator = Accelerator::builder().cpu(true).build()?;
    let model = Linear::new(2, 2, &Factory::default())?;
    let parameters = model.parameters();
    let parameters = parameters.iter().map(|one| one.tensor().shallow_clone());
    let parameters: Vec<_> = parameters.collect();
    let optimizer = Sgd::new(parameters, SgdConfig::new(0.1))?;
    let prepared = accelerator.prepare((model, optimizer))?;
    // One batch of two has been seen.
    accelerator.set_gradient_accumulation_steps(NonZeroUsize::new(2).unwrap());
    assert!(!accelerator.accumulate(())?.sync_gradients());
    assert!(!accelerator.sync_gradients());
    accelerator.free_memory(prepared)?;
    assert!(!accelerator.optimizer_step_was_skipped());
    assert!(accelerator.sync_gradients());
    // The count starts anew.
    let syncs = [(); 2].map(|()| accelerator.accumulate(()).unwrap().sync_gradients());
    assert_eq!(syncs, [false, true]);
    // Other things can be prepared after.
    accelerator
        .prepare(Linear::new(2, 2, &Factory::default())?)
        .map(drop)
}
