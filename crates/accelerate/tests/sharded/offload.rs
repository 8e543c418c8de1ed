//! What is kept on disk trains, saves and fails as what is kept in memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use accelerate::nn::Module;
use accelerate::optim::{
    AdamW, AdamWConfig, DiskFolder, Optimizer, RmsProp, RmsPropConfig, StateValue,
};
use accelerate::{Error, Result};
use accelerate_plan::parallel::{
    AfterForward, DiskTraffic, Layout, Offload, ParallelPlan, Quantised, Sharded, Storage,
};
use accelerate_testkit::{Rank, ranks, start_ranks};
use accelerate_torch::{autograd, scratch};
use tch::{Device, Kind, Tensor};

use crate::job::{Job, Setup, adamw, by_class, compare, count, groups, model, plan, sgd};

const STEPS: usize = 3;

/// What is on disk.
#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    /// The state of the optimizer, and gradients, as DeepSpeed's `offload_optimizer` has it.
    Optimizer,
    /// Parameters too.
    Everything,
}

/// In sub-groups that are smaller than some parameters.
fn on_disk(mut plan: ParallelPlan, what: What, folder: &Path) -> ParallelPlan {
    plan.offload = Offload::everything(Storage::Disk {
        folder: folder.to_owned(),
    });
    if what == What::Optimizer {
        plan.offload.parameters = Storage::Device;
    }
    plan.offload.disk.sub_group_size = 1500;
    plan
}

/// A folder for files. Where a file system in memory stands for a disk, nothing waits for one: what is
/// written where is tested with the files themselves.
fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// A folder that the ranks of one call share, which one of them removes.
fn shared_folder(rank: Rank, name: &str) -> PathBuf {
    let name = format!("accelerate-offload-{name}-{}", rank.port());
    std::env::temp_dir().join(name)
}

#[test]
fn training_from_disk_is_the_same_to_the_bit() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let folder = disk();
        let setup = Setup {
            steps: STEPS,
            accumulation: 2,
            frozen: true,
            tied: true,
            // The norm of one process is that of whole parameters where nothing is in shards.
            max_norm: (rank.world() > 1).then_some(0.3),
            ..Setup::default()
        };
        for sharded in [
            Sharded::OptimizerState,
            Sharded::Gradients,
            Sharded::Parameters,
        ] {
            let plan = plan(rank, sharded, by_class());
            let expected = Job::new(rank, &setup.by(plan.clone()))?.train(STEPS)?;
            for what in [What::Optimizer, What::Everything] {
                let from_disk = setup.by(on_disk(plan.clone(), what, folder.path()));
                let mut job = Job::new(rank, &from_disk)?;
                let found = job.train(STEPS)?;
                let name = format!("{sharded:?}, {what:?}");
                compare(&expected, &found, None, &name);
                assert_eq!(expected.norms, found.norms, "{name}");
                assert_on_disk(&job, what);
                // No file has a name, while it trains or after.
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{name}");
            }
        }
        Ok(())
    });
}

/// Moments, and parameters between steps, lie in files.
fn assert_on_disk(job: &Job<AdamW>, what: What) {
    let state = job.optimizer.state_dict().unwrap();
    let mut moments = 0;
    for (name, value) in state.iter() {
        let StateValue::Tensor(tensor) = value else {
            continue;
        };
        if tensor.numel() > 0 && !name.ends_with(".step") {
            assert!(scratch::under(tensor).is_some(), "{name} is in memory");
            moments += 1;
        }
    }
    assert!(moments > 0);
    for (name, parameter) in job.model.named_parameters() {
        let tensor = parameter.tensor();
        if tensor.numel() > 0 {
            let is_on_disk = scratch::under(tensor).is_some();
            assert_eq!(is_on_disk, what == What::Everything, "{name}");
        }
    }
}

#[test]
fn other_types_and_optimizers_train_from_disk() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = disk();
        let setup = Setup {
            steps: STEPS,
            ..Setup::default()
        };
        let plan = plan(rank, Sharded::Parameters, by_class());
        let offloaded = |plan: &ParallelPlan, what| on_disk(plan.clone(), what, folder.path());
        // Float32 copies go with the state of the optimizer.
        let mut mixed = plan.clone();
        mixed.precision.is_master_float32 = true;
        mixed.precision.parameters =
            accelerate_plan::parallel::Cast::To(accelerate_plan::parallel::FloatType::BFloat16);
        let low = Setup {
            kind: Kind::BFloat16,
            ..setup.clone()
        };
        let expected = Job::new(rank, &low.by(mixed.clone()))?.train(STEPS)?;
        let mut job = Job::new(rank, &low.by(offloaded(&mixed, What::Optimizer)))?;
        let found = job.train(STEPS)?;
        compare(&expected, &found, None, "bfloat16");
        assert_on_disk(&job, What::Everything);
        // What is rounded on its way is what is kept, wherever; second shards are of what came.
        let mut small = plan.clone();
        small.weights = Quantised::Int8;
        small.reduction.gradients = Quantised::Int4;
        small.after_forward = AfterForward::ReleaseTo(count(2));
        let expected = Job::new(rank, &setup.by(small.clone()))?.train(STEPS)?;
        let everything = offloaded(&small, What::Everything);
        let found = Job::new(rank, &setup.by(everything))?.train(STEPS)?;
        compare(&expected, &found, None, "small integers");
        // Momentum begins with the first gradient.
        let expected = Job::with(rank, &setup.by(plan.clone()), sgd)?.train(STEPS)?;
        let everything = offloaded(&plan, What::Everything);
        let found = Job::with(rank, &setup.by(everything.clone()), sgd)?.train(STEPS)?;
        compare(&expected, &found, None, "momentum");
        // All pieces of a part are one vector.
        let rmsprop = |model: &crate::job::Model| {
            let config = RmsPropConfig {
                momentum: 0.9,
                ..RmsPropConfig::default()
            };
            RmsProp::new(groups(model), config)
        };
        let expected = Job::with(rank, &setup.by(plan), rmsprop)?.train(STEPS)?;
        let found = Job::with(rank, &setup.by(everything), rmsprop)?.train(STEPS)?;
        compare(&expected, &found, Some(1e-6), "rmsprop");
        Ok(())
    });
}

#[test]
fn a_state_goes_to_and_from_disk() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = shared_folder(rank, "state");
        let files = disk();
        for layout in [Layout::Plain, Layout::Fsdp] {
            let mut plan = plan(rank, Sharded::Parameters, by_class());
            plan.state_dict.layout = layout;
            let in_memory = Setup::default().by(plan.clone());
            let from_disk = Setup::default().by(on_disk(plan, What::Everything, files.path()));
            let state = folder.join(format!("{layout:?}"));
            let mut job = Job::new(rank, &from_disk)?;
            job.train(2)?;
            job.accelerator.save_state(Some(&state))?;
            let names: Vec<String> = names(&job.optimizer.state_dict()?);
            let after = job.train(2)?;
            for setup in [&from_disk, &in_memory] {
                // Other weights and moments, until it loads.
                let mut other = Job::new(rank, setup)?;
                other.goes_on_behind(40);
                other.train(1)?;
                other.accelerator.load_state(Some(&state))?;
                assert_eq!(crate::offload::names(&other.optimizer.state_dict()?), names);
                other.goes_on_behind(2);
                let found = other.train(2)?;
                compare(&after, &found, None, &format!("{layout:?}"));
            }
            job.accelerator.wait_for_everyone()?;
        }
        if rank.index() == 0 {
            fs::remove_dir_all(&folder).unwrap();
        }
        Ok(())
    });
}

fn names(state: &accelerate::optim::StateDict) -> Vec<String> {
    state.iter().map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn a_folder_that_one_rank_cannot_use_ends_all_of_them() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        // There is no folder in a file.
        let folder = match rank.index() {
            0 => folder.path().to_owned(),
            _ => PathBuf::from("/proc/version/inside"),
        };
        for (what, of) in [
            (What::Everything, "the parameters"),
            (What::Optimizer, "the gradients"),
        ] {
            let plan = plan(rank, Sharded::Parameters, by_class());
            let setup = Setup::default().by(on_disk(plan, what, &folder));
            assert_told(rank, Job::new(rank, &setup).map(drop), of);
        }
        // State of a whole model: nothing but that is on disk.
        let mut plan = plan(rank, Sharded::Parameters, by_class());
        plan.offload.optimizer_state = Storage::Disk { folder };
        let made = Job::new(rank, &Setup::default().by(plan));
        assert_told(rank, made.map(drop), "the state of `AdamW`");
        Ok(())
    });
}

#[track_caller]
fn assert_told(rank: Rank, made: Result<()>, of: &str) {
    let error = made.unwrap_err();
    if rank.index() == 0 {
        assert!(
            matches!(error, Error::OtherRankFailed { rank: 1 }),
            "{error}"
        );
        return;
    }
    let text = error.to_string();
    for part in ["bytes of", of, "of rank 1 in `", "name a folder"] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
}

const FULL: &str = "SHARDED_OFFLOAD_FULL";

/// The part that runs as one of two ranks, of which the second has a disk that takes 2 KiB.
#[test]
fn rank_with_a_full_disk() {
    let Some(folder) = std::env::var_os(FULL).map(PathBuf::from) else {
        return;
    };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let rank = Rank::new(number("RANK"), number("WORLD_SIZE"), 0);
    let plan = plan(rank, Sharded::Gradients, by_class());
    let setup = Setup::default().by(on_disk(plan, What::Optimizer, &folder));
    assert_told(rank, Job::new(rank, &setup).map(drop), "reserve");
}

#[test]
fn a_full_disk_is_told_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = start_ranks(2, Duration::from_secs(60), |rank| {
        let program = std::env::current_exe().unwrap();
        let mut command = match rank.index() {
            0 => Command::new(program),
            _ => {
                // The limit of the size of files stands for the disk.
                let mut shell = Command::new("sh");
                shell
                    .args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\""])
                    .arg(program);
                shell
            }
        };
        command
            .args(["--exact", "offload::rank_with_a_full_disk", "--nocapture"])
            .envs(rank.environment())
            .env(FULL, folder.path());
        command
    });
    for output in outputs.unwrap() {
        let fine = output.status.is_some_and(|status| status.success());
        assert!(fine, "{}", output.text);
    }
}

#[test]
fn parameters_on_disk_that_are_not_in_shards_are_refused() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let whole = ParallelPlan::replicated(crate::job::count(rank.world()));
        let plan = on_disk(whole, What::Everything, folder.path());
        let text = Job::new(rank, &Setup::default().by(plan))
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(text.contains("a plan that shards parameters"), "{text}");
        Ok(())
    });
}

/// An optimizer by itself, of a parameter that is larger than a part and one without a gradient.
#[test]
fn an_optimizer_keeps_what_it_has_when_it_goes_to_disk() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let traffic = DiskTraffic {
        sub_group_size: 128,
        ..DiskTraffic::default()
    };
    let parameters = || -> Result<Vec<Tensor>> {
        let numbers = Tensor::f_arange(300i64, (Kind::Float, Device::Cpu))?.f_mul_scalar(0.01)?;
        let made = [(0, 300, [30, 10]), (10, 6, [2, 3]), (20, 5, [5, 1])].map(
            |(start, count, shape)| -> Result<Tensor> {
                let part = numbers.f_narrow(0, start, count)?.f_reshape(shape)?;
                Ok(part.f_detach_copy()?.set_requires_grad(true))
            },
        );
        made.into_iter().collect()
    };
    let step = |optimizer: &mut AdamW, parameters: &[Tensor], number: usize| -> Result<()> {
        for (place, parameter) in parameters.iter().enumerate() {
            // The second has none in some steps.
            let gradient = match place == 1 && number.is_multiple_of(2) {
                true => None,
                false => Some(parameter.f_detach()?.f_mul_scalar(number as f64)?),
            };
            autograd::set_grad(parameter, gradient.as_ref())?;
        }
        optimizer.step()
    };
    let (expected, found) = (parameters()?, parameters()?);
    let handles = |of: &[Tensor]| of.iter().map(Tensor::shallow_clone).collect::<Vec<_>>();
    let mut in_memory = AdamW::new(handles(&expected), AdamWConfig::default())?;
    let mut from_disk = AdamW::new(handles(&found), AdamWConfig::default())?;
    for number in 0..6 {
        if number == 2 {
            let folder = DiskFolder::new(folder.path(), 0, &traffic)?;
            from_disk.keep_state_on_disk(&folder)?;
        }
        if number == 4 {
            let state = in_memory.state_dict()?;
            from_disk.load_state_dict(&state)?;
        }
        step(&mut in_memory, &expected, number)?;
        step(&mut from_disk, &found, number)?;
        assert_eq!(expected, found, "step {number}");
    }
    let (expected, found) = (in_memory.state_dict()?, from_disk.state_dict()?);
    assert_eq!(names(&expected), names(&found));
    for ((name, expected), (_, found)) in expected.iter().zip(found.iter()) {
        if let (StateValue::Tensor(expected), StateValue::Tensor(found)) = (expected, found) {
            assert_eq!(expected, found, "{name}");
        }
    }
    // A parameter that was cut in the meantime.
    let cut = found_parameter(&folder, &traffic)?;
    assert!(cut.contains("prepare the model before"), "{cut}");
    Ok(())
}

/// The message for a parameter that has another size than when its file was made.
fn found_parameter(folder: &tempfile::TempDir, traffic: &DiskTraffic) -> Result<String> {
    let parameter = model(&Setup::default())?
        .head
        .weight
        .tensor()
        .shallow_clone();
    let mut optimizer = AdamW::new(vec![parameter.shallow_clone()], AdamWConfig::default())?;
    optimizer.keep_state_on_disk(&DiskFolder::new(folder.path(), 0, traffic)?)?;
    let part = parameter.f_detach()?.f_reshape([-1])?.f_narrow(0, 0, 10)?;
    accelerate_torch::storage::alias(&parameter, &part)?;
    autograd::set_grad(&parameter, Some(&part.f_ones_like()?))?;
    Ok(optimizer.step().unwrap_err().to_string())
}

/// The groups of one model go to disk with the model, in any order of `prepare`.
#[test]
fn the_order_of_preparing_does_not_matter() {
    ranks(&[2], |rank| -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let plan = plan(rank, Sharded::Parameters, by_class());
        let plan = on_disk(plan, What::Everything, folder.path());
        let accelerator = accelerate::Accelerator::builder()
            .cpu(true)
            .parallel_plan(plan)
            .build()?;
        let model = model(&Setup::default())?;
        let optimizer = adamw(&model)?;
        let (mut optimizer, model) = accelerator.prepare((optimizer, model))?;
        let ids = crate::job::batch(0, rank);
        accelerator.backward(&crate::job::loss(&model, &ids)?)?;
        optimizer.step()?;
        optimizer.zero_grad()
    });
}
