//! What a communication hook remembers from step to step is a part of the saved state.

use std::num::{NonZeroU64, NonZeroUsize};
use std::path::Path;

use accelerate::Result;
use accelerate::checkpoint::ProjectConfiguration;
use accelerate::parallel::{CommHook, CommWrapper, DistributedDataParallelKwargs, PowerSgdOptions};
use accelerate_testkit::{Rank, ranks};

use crate::job::{Job, Setup, Step};
use crate::resume::{folder, resumes, shared_folder};

fn options() -> PowerSgdOptions {
    PowerSgdOptions {
        start_power_sgd_iter: 2,
        // The network is tiny: its one matrix is to be compressed at rank 2 too.
        min_compression_rate: 1.0,
        ..PowerSgdOptions::default()
    }
}

fn power_sgd() -> DistributedDataParallelKwargs {
    DistributedDataParallelKwargs {
        comm_hook: CommHook::PowerSgd(options()),
        ..Default::default()
    }
}

/// Nothing is remembered but the count and the generator.
fn without_memory() -> DistributedDataParallelKwargs {
    DistributedDataParallelKwargs {
        comm_hook: CommHook::PowerSgd(PowerSgdOptions {
            use_error_feedback: false,
            warm_start: false,
            ..options()
        }),
        ..Default::default()
    }
}

fn batched_in_bf16() -> DistributedDataParallelKwargs {
    DistributedDataParallelKwargs {
        comm_hook: CommHook::BatchedPowerSgd(options()),
        comm_wrapper: CommWrapper::Bf16,
        ..Default::default()
    }
}

/// Buckets that are never arranged anew.
fn with_fixed_buckets() -> DistributedDataParallelKwargs {
    DistributedDataParallelKwargs {
        find_unused_parameters: true,
        ..power_sgd()
    }
}

fn fp16() -> DistributedDataParallelKwargs {
    DistributedDataParallelKwargs {
        comm_hook: CommHook::Fp16,
        ..Default::default()
    }
}

fn with(ddp: fn() -> DistributedDataParallelKwargs) -> Setup {
    Setup {
        ddp,
        ..Setup::default()
    }
}

/// Not numbers would equal each other whatever happened before.
fn are_numbers(steps: &[Step]) -> bool {
    let mut losses = steps.iter().map(|step| f64::from_bits(step.loss));
    losses.all(f64::is_finite)
}

fn remove(rank: Rank, folder: &Path) {
    if rank.index() == 0 {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// Makes a way to train with a hook.
type Hooked = fn() -> DistributedDataParallelKwargs;

#[test]
fn a_job_with_compressed_gradients_takes_the_same_steps() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let hooks: [fn() -> DistributedDataParallelKwargs; 5] = [
            power_sgd,
            without_memory,
            batched_in_bf16,
            with_fixed_buckets,
            fp16,
        ];
        for (number, ddp) in hooks.into_iter().enumerate() {
            // Before compression begins, with its first step next, and in the middle of it.
            for before in [1, 2, 6] {
                let folder = folder(rank, &format!("hooks-{number}-{before}"));
                let steps = resumes(&folder, with(ddp), before, 7)?;
                assert!(are_numbers(&steps), "hook {number}: {steps:?}");
                remove(rank, &folder);
            }
        }
        Ok(())
    });
}

/// How many values the steps until now would have sent, and did send.
fn sent(job: &Job) -> (u64, u64) {
    let model = job.model.data_parallel().unwrap();
    let stats = model.compression_stats().unwrap();
    (
        stats.numel_before_compression,
        stats.numel_after_compression,
    )
}

#[test]
fn a_running_job_goes_back_to_what_its_hook_remembered() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = folder(rank, "hooks-back");
        let mut job = Job::new(&folder, with(power_sgd))?;
        let mut steps = job.train_and(9, |accelerator, step| {
            if step == 5 {
                accelerator.save_state(None)?;
            }
            Ok(())
        })?;
        steps.drain(..5);
        assert!(are_numbers(&steps));
        let saved = folder.join("checkpoints/checkpoint_0");
        let own = format!("comm_hooks_{}.bin", rank.index());
        assert!(saved.join(own).exists());
        // Of 41 values in all, 24 are a matrix that is sent as 8 and 3; the first two steps are plain.
        assert_eq!(sent(&job), (7 * 41, 7 * (41 - 24 + 11)));
        let loaded = job.accelerator.load_state(None)?;
        assert_eq!(loaded.warnings, Vec::<String>::new());
        assert_eq!(sent(&job), (3 * 41, 3 * (41 - 24 + 11)));
        assert_eq!(job.train(4)?, steps);
        job.accelerator.wait_for_everyone()?;
        remove(rank, &folder);
        Ok(())
    });
}

fn of_rank_two() -> DistributedDataParallelKwargs {
    DistributedDataParallelKwargs {
        comm_hook: CommHook::PowerSgd(PowerSgdOptions {
            matrix_approximation_rank: NonZeroU64::new(2).unwrap(),
            ..options()
        }),
        ..Default::default()
    }
}

fn in_other_buckets() -> DistributedDataParallelKwargs {
    DistributedDataParallelKwargs {
        bucket_cap_mb: NonZeroUsize::new(7),
        ..power_sgd()
    }
}

/// Buckets that are arranged anew behind a later pass.
fn with_a_static_graph() -> DistributedDataParallelKwargs {
    DistributedDataParallelKwargs {
        static_graph: true,
        ..power_sgd()
    }
}

#[test]
fn a_hook_that_cannot_go_on_begins_anew_and_says_why() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = folder(rank, "hooks-other");
        let mut job = Job::new(&folder, with(power_sgd))?;
        job.train(4)?;
        job.accelerator.save_state(None)?;
        drop(job);
        let others: [(Hooked, &str); 3] = [
            (of_rank_two, "matrix_approximation_rank"),
            (in_other_buckets, "bucket_cap_mb"),
            (with_a_static_graph, "arranged otherwise"),
        ];
        for (ddp, name) in others {
            let mut job = Job::new(&folder, with(ddp))?;
            let loaded = job.accelerator.load_state(None)?;
            let [warning] = loaded.warnings.as_slice() else {
                panic!("{:?}", loaded.warnings)
            };
            let own = format!("`comm_hooks_{}.bin`", rank.index());
            assert!(
                warning.contains(&own) && warning.contains(name),
                "{warning}"
            );
            assert!(warning.contains("begins anew"), "{warning}");
            assert!(are_numbers(&job.train(4)?));
        }
        // A job without a hook does not miss it, and a strict one does not go on without it.
        let job = Job::new(&folder, Setup::default())?;
        assert!(job.accelerator.load_state(None)?.warnings.is_empty());
        let project = ProjectConfiguration {
            strict: true,
            ..ProjectConfiguration::automatic(&folder)
        };
        let job = Job::with_project(project, with(of_rank_two))?;
        let error = job.accelerator.load_state(None).unwrap_err().to_string();
        assert!(error.contains("matrix_approximation_rank"), "{error}");
        job.accelerator.wait_for_everyone()?;
        remove(rank, &folder);
        Ok(())
    });
}

#[test]
fn on_another_number_of_ranks_compression_begins_anew() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let folder = shared_folder(rank, "hooks-ranks");
        if rank.world() == 2 {
            let mut job = Job::new(&folder, with(power_sgd))?;
            job.train(4)?;
            job.accelerator.save_state(None)?;
            return Ok(());
        }
        let mut job = Job::new(&folder, with(power_sgd))?;
        let loaded = job.accelerator.load_state(None)?;
        let told = loaded.warnings.iter();
        let told = told.filter(|warning| warning.contains("2 ranks saved, and 3 go on"));
        assert_eq!(told.count(), 1, "{:?}", loaded.warnings);
        assert!(are_numbers(&job.train(5)?));
        job.accelerator.wait_for_everyone()?;
        remove(rank, &folder);
        Ok(())
    });
}
