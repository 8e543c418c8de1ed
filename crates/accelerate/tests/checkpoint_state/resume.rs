//! A resumed job is the uninterrupted one.

use accelerate::Result;
use accelerate::precision::MixedPrecision;
use accelerate_testkit::{Rank, ranks};

use crate::job::{Job, Setup, Step};

/// Everybody's own folder would do; ranks share one, as a job does.
fn folder(rank: Rank, name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("accelerate-{name}-{}", rank.port()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Saves after `before` steps and compares `after` more with those of a job that loads.
fn resumes(folder: &std::path::Path, setup: Setup, before: usize, after: usize) -> Result<()> {
    let mut job = Job::new(folder, setup)?;
    let mut saved = None;
    let mut expected = job.train_and(before + after, |accelerator, step| {
        if step == before {
            saved = Some(accelerator.save_state(None)?);
        }
        Ok(())
    })?;
    expected.drain(..before);
    let saved = saved.unwrap();
    assert!(saved.ends_with("checkpoints/checkpoint_0"), "{saved:?}");
    let weights = job.weights();
    drop(job);

    let mut resumed = Job::new(folder, Setup { seed: 77, ..setup })?;
    let loaded = resumed.accelerator.load_state(None)?;
    assert_eq!(loaded.path, saved);
    assert_eq!(
        (loaded.warnings, loaded.skipped),
        (Vec::<String>::new(), Vec::new())
    );
    assert_eq!(resumed.accelerator.save_iteration(), 1);
    let found = resumed.train(after)?;
    if resumed.accelerator.num_processes() < 3 {
        assert_eq!(found, expected, "{setup:?}, {before}");
        assert_eq!(resumed.weights(), weights);
        return Ok(());
    }
    // From three ranks on the order of a sum over ranks depends on the place in a bucket, and the
    // first step of a program has its buckets in another order.
    let tolerance = match setup.precision {
        MixedPrecision::No => 1e-4,
        _ => 2e-2,
    };
    for (found, expected) in found.iter().zip(&expected) {
        let of = |step: &Step| (step.samples.clone(), step.lr, step.draw);
        assert_eq!(of(found), of(expected), "{setup:?}, {before}");
        assert_close(found.loss, expected.loss, tolerance);
    }
    for (found, expected) in resumed.weights().into_iter().zip(weights) {
        assert_close(found, expected, tolerance);
    }
    Ok(())
}

/// Two numbers by their bits.
#[track_caller]
fn assert_close(found: u64, expected: u64, tolerance: f64) {
    let (found, expected) = (f64::from_bits(found), f64::from_bits(expected));
    let off = (found - expected).abs();
    assert!(
        off <= tolerance * expected.abs().max(0.1),
        "{found} {expected}"
    );
}

#[test]
fn a_resumed_job_takes_the_same_steps() {
    ranks(&[1, 2, 3], |rank| -> Result<()> {
        let setups = [
            Setup::default(),
            Setup {
                workers: 2,
                ..Setup::default()
            },
            Setup {
                accumulation: 2,
                ..Setup::default()
            },
            Setup {
                precision: MixedPrecision::Fp16,
                ..Setup::default()
            },
            Setup {
                precision: MixedPrecision::Bf16,
                workers: 1,
                ..Setup::default()
            },
        ];
        for (number, setup) in setups.into_iter().enumerate() {
            // In the first epoch, at its end, and in the middle of a later one.
            for before in [2, 8, 18] {
                let folder = folder(rank, &format!("resume-{number}-{before}"));
                resumes(&folder, setup, before, 9)?;
                if rank.index() == 0 {
                    std::fs::remove_dir_all(&folder).unwrap();
                }
            }
        }
        Ok(())
    });
}

/// A folder that the processes of one test share, whatever their number: the parent's number tells.
fn shared_folder(rank: Rank, name: &str) -> std::path::PathBuf {
    let parent = std::os::unix::process::parent_id();
    let folder = std::env::temp_dir().join(format!("accelerate-{name}-{parent}"));
    if rank.index() == 0 {
        std::fs::create_dir_all(&folder).unwrap();
    }
    folder
}

/// Six samples are one step of all ranks together, whatever their number; nothing is drawn by
/// each rank for itself.
fn of_six(rank: Rank) -> Setup {
    Setup {
        batch_size: 6 / rank.world(),
        dropout: 0.0,
        ..Setup::default()
    }
}

/// What all ranks together did in each step: the samples in order, and the mean loss.
fn of_all_ranks(job: &Job, own: Vec<Step>) -> Result<Vec<(Vec<i64>, f64)>> {
    let steps = own.len();
    let ranks = job.accelerator.num_processes();
    let all = accelerate::collectives::gather_object(
        job.accelerator.state(),
        own.into_iter()
            .map(|step| (step.samples, step.loss))
            .collect(),
    )?;
    let of_step = |step: usize| {
        let mut samples: Vec<i64> = Vec::new();
        let mut loss = 0.0;
        for rank in 0..ranks {
            let (own, bits) = &all[rank * steps + step];
            samples.extend(own);
            loss += f64::from_bits(*bits) / ranks as f64;
        }
        samples.sort_unstable();
        (samples, loss)
    };
    Ok((0..steps).map(of_step).collect())
}

#[test]
fn another_number_of_ranks_goes_on_with_the_same_samples_and_losses() {
    // The first job saves; the others load what it saved.
    ranks(&[2, 3], |rank| -> Result<()> {
        let shared = shared_folder(rank, "ranks");
        let mut job = Job::new(&shared, of_six(rank))?;
        let expected = shared.join("expected.json");
        if rank.world() == 2 {
            let mut steps = job.train_and(4, |accelerator, step| {
                if step == 2 {
                    accelerator.save_state(None)?;
                }
                Ok(())
            })?;
            steps.drain(..2);
            let steps = of_all_ranks(&job, steps)?;
            if rank.index() == 0 {
                let text = serde_json::to_vec(&steps).unwrap();
                std::fs::write(&expected, text).unwrap();
            }
            return Ok(());
        }
        let loaded = job.accelerator.load_state(None)?;
        assert_eq!(loaded.num_processes, Some(2));
        assert_eq!(
            loaded.warnings.len(),
            usize::from(rank.index() >= 2),
            "{loaded:?}"
        );
        let text = std::fs::read(&expected).unwrap();
        let expected: Vec<(Vec<i64>, f64)> = serde_json::from_slice(&text).unwrap();
        let steps = job.train(2)?;
        let found = of_all_ranks(&job, steps)?;
        for ((samples, loss), (own, own_loss)) in expected.iter().zip(&found) {
            assert_eq!(samples, own);
            assert!(
                (loss - own_loss).abs() < 1e-5 * loss.abs(),
                "{loss} {own_loss}"
            );
        }
        job.accelerator.wait_for_everyone()?;
        if rank.index() == 0 {
            std::fs::remove_dir_all(&shared).unwrap();
        }
        Ok(())
    });
}
