//! A resumed job is the uninterrupted one.

use accelerate::Result;
use accelerate::precision::MixedPrecision;
use accelerate_testkit::{Rank, ranks};

use crate::job::{Job, Setup, Step};

/// Everybody's own folder would do; ranks share one, as a job does.
pub(crate) fn folder(rank: Rank, name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("accelerate-{name}-{}", rank.port()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Saves after `before` steps and compares `after` more with those of a job that loads. Answers
/// these.
pub(crate) fn resumes(
    folder: &std::path::Path,
    setup: Setup,
    before: usize,
    after: usize,
) -> Result<Vec<Step>> {
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
    assert_eq!(found, expected, "{setup:?}, {before}");
    assert_eq!(resumed.weights(), weights);
    Ok(found)
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
pub(crate) fn shared_folder(rank: Rank, name: &str) -> std::path::PathBuf {
    let parent = std::os::unix::process::parent_id();
    let folder = std::env::temp_dir().join(format!("accelerate-{name}-{parent}"));
    if rank.index() == 0 {
        std::fs::create_dir_all(&folder).unwrap();
    }
    folder
}

/// Twelve samples are one step of all ranks together, whatever their number, and four steps an
/// epoch; only the order is drawn together.
fn of_twelve(world: usize) -> Setup {
    Setup {
        batch_size: 12 / world,
        dropout: 0.0,
        samples: 48,
        workers: 2,
        kind: tch::Kind::Double,
        // It moves once per rank at each step.
        schedule: 1 << 40,
        ..Setup::default()
    }
}

/// The samples of a step of all ranks, and the mean loss.
type OfAllRanks = (Vec<i64>, f64);

/// What all ranks together did in each step: the samples in the order of the ranks.
fn of_all_ranks(job: &Job, own: Vec<Step>) -> Result<Vec<OfAllRanks>> {
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
        (samples, loss)
    };
    Ok((0..steps).map(of_step).collect())
}

/// In the middle of the second epoch.
const SAVED_AT: usize = 6;
/// To the end of the third.
const STEPS: usize = 12;

/// Saves in `folder` and notes there how the job goes on, in the third epoch too.
fn save_and_go_on(rank: Rank, folder: &std::path::Path) -> Result<()> {
    let mut job = Job::new(folder, of_twelve(rank.world()))?;
    let mut steps = job.train_and(STEPS, |accelerator, step| {
        if step == SAVED_AT {
            accelerator.save_state(None)?;
        }
        Ok(())
    })?;
    steps.drain(..SAVED_AT);
    let steps = of_all_ranks(&job, steps)?;
    if rank.index() == 0 {
        let text = serde_json::to_vec(&steps).unwrap();
        std::fs::write(folder.join("expected.json"), text).unwrap();
    }
    Ok(())
}

/// Loads what `saved_by` ranks left in `folder`, and compares.
fn goes_on_as_expected(rank: Rank, folder: &std::path::Path, saved_by: usize) -> Result<()> {
    let setup = Setup {
        seed: 77,
        ..of_twelve(rank.world())
    };
    let mut job = Job::new(folder, setup)?;
    let loaded = job.accelerator.load_state(None)?;
    assert_eq!(loaded.num_processes, Some(saved_by));
    let has_no_file = rank.index() >= saved_by;
    assert_eq!(
        loaded.warnings.len(),
        usize::from(has_no_file),
        "{loaded:?}"
    );
    let text = std::fs::read(folder.join("expected.json")).unwrap();
    let expected: Vec<OfAllRanks> = serde_json::from_slice(&text).unwrap();
    let steps = job.train(STEPS - SAVED_AT)?;
    let found = of_all_ranks(&job, steps)?;
    let (from, to) = (saved_by, rank.world());
    assert_eq!(expected.len(), found.len());
    for (step, ((samples, loss), (own, own_loss))) in expected.iter().zip(&found).enumerate() {
        assert_eq!(samples, own, "{from} to {to}, step {step}");
        let off = (loss - own_loss).abs();
        // Rounding is all that another number of ranks adds.
        assert!(off < 1e-9 * loss.abs(), "{from} to {to}: {loss} {own_loss}");
    }
    Ok(())
}

#[test]
fn another_number_of_ranks_goes_on_with_the_same_samples_and_losses() {
    // Each number of ranks saves when it comes first and then loads what the others saved.
    ranks(&[2, 1, 3, 4, 2, 1], |rank| -> Result<()> {
        let shared = shared_folder(rank, "ranks");
        let own = shared.join(rank.world().to_string());
        if !own.join("expected.json").exists() {
            save_and_go_on(rank, &own)?;
        }
        for saved_by in (1..=4).filter(|&other| other != rank.world()) {
            let folder = shared.join(saved_by.to_string());
            if folder.join("expected.json").exists() {
                goes_on_as_expected(rank, &folder, saved_by)?;
            }
        }
        let done = rank.world() == 1 && shared.join("4").exists();
        if done && rank.index() == 0 {
            std::fs::remove_dir_all(&shared).unwrap();
        }
        Ok(())
    });
}
