//! How much memory training takes, measured.

use std::fs;
use std::time::Instant;

use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};
use accelerate::optim::{AdamW, AdamWConfig, Optimizer};
use accelerate::{Accelerator, Result};
use accelerate_plan::parallel::{Offload, ParallelPlan, Sharded, Storage};
use accelerate_testkit::ranks;
use tch::{Kind, Tensor};

use crate::job::{by_class, plan};

const WIDTH: i64 = 512;
const BLOCKS: usize = 16;
const MIB: f64 = 1_048_576.0;

#[derive(Debug, Module)]
pub(crate) struct Block {
    first: Linear,
    second: Linear,
    state: ModuleState,
}

impl Forward for Block {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let hidden = self.first.call(&input)?.f_tanh()?;
        Ok(input.f_add(&self.second.call(hidden)?)?)
    }
}

#[derive(Debug, Module)]
pub(crate) struct Deep {
    pub(crate) blocks: Vec<Block>,
    state: ModuleState,
}

impl Forward for Deep {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.blocks
            .iter()
            .try_fold(input, |hidden, block| block.call(hidden))
    }
}

pub(crate) fn deep(width: i64, blocks: usize) -> Result<Deep> {
    let factory = Factory::default();
    let block = || -> Result<Block> {
        Ok(Block {
            first: Linear::new(width, 4 * width, &factory)?,
            second: Linear::new(4 * width, width, &factory)?,
            state: ModuleState::default(),
        })
    };
    Ok(Deep {
        blocks: (0..blocks).map(|_| block()).collect::<Result<_>>()?,
        state: ModuleState::default(),
    })
}

/// A number of this process in MiB, of `/proc/self/status`.
fn status(name: &str) -> f64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap();
    let kib: f64 = line
        .trim_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .unwrap();
    kib / 1024.0
}

/// Trains for some steps; the time of each in milliseconds.
fn train(accelerator: &Accelerator, model: Deep, rows: i64, steps: usize) -> Result<Vec<f64>> {
    let width = model.blocks[0].second.weight.shape()[0];
    let parameters: Vec<Tensor> = model
        .parameters()
        .into_iter()
        .map(|parameter| parameter.tensor().shallow_clone())
        .collect();
    let optimizer = AdamW::new(parameters, AdamWConfig::default())?;
    let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
    let mut times = Vec::new();
    for _ in 0..steps {
        let input = Tensor::f_ones([rows, width], (Kind::Float, tch::Device::Cpu))?;
        let start = Instant::now();
        let loss = model.call(input)?.f_square()?.f_mean(Kind::Float)?;
        accelerator.backward(&loss)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// The most memory that some steps take besides what the process had before the model, in MiB, and
/// the median time of a step in milliseconds.
fn measured(
    plan: ParallelPlan,
    (width, blocks): (i64, usize),
    rows: i64,
    steps: usize,
) -> Result<(f64, f64)> {
    let accelerator = Accelerator::builder()
        .cpu(true)
        .parallel_plan(plan)
        .build()?;
    // The first steps of a process load code, which is not what is measured.
    train(&accelerator, deep(width, 1)?, rows, 2)?;
    let _gave = accelerate_torch::memory::give_back_freed_memory();
    // The peak until now does not count either.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    let mut times = train(&accelerator, deep(width, blocks)?, rows, steps)?;
    times.sort_by(f64::total_cmp);
    Ok((status("VmHWM:") - before, times[steps / 2]))
}

#[test]
#[cfg(target_os = "linux")]
fn a_rank_needs_its_part_of_the_state_and_some_units() {
    ranks(&[2], |rank| -> Result<()> {
        let unit = (2 * 4 * WIDTH * WIDTH + 5 * WIDTH) as f64 * 4.0 / MIB;
        let model = unit * BLOCKS as f64;
        // On a machine that has much else to do a process now and then takes some more: the least of
        // a few trainings is what they need.
        let formula = 4.0 * model / 2.0 + 4.0 * unit;
        let mut found = f64::INFINITY;
        for _ in 0..3 {
            let plan = plan(rank, Sharded::Parameters, by_class());
            found = found.min(measured(plan, (WIDTH, BLOCKS), 4, 3)?.0);
            // All ranks try again or none.
            let accelerator = Accelerator::builder().cpu(true).build()?;
            let all = accelerator.gather(Tensor::from_slice(&[found]))?;
            if all.f_max()?.f_double_value(&[])? <= 1.05 * formula {
                break;
            }
        }
        // Parameters, gradients and two moments of AdamW, half of each; then whole parameters and
        // gradients of the largest unit, each twice.
        assert!(
            found <= 1.05 * formula,
            "{found:.0} MiB, not {formula:.0}: model {model:.0}, unit {unit:.1}"
        );
        // A whole copy of the four would be twice as much.
        assert!(found < 4.0 * model * 0.8, "{found:.0} MiB");
        Ok(())
    });
}

#[test]
#[cfg(target_os = "linux")]
fn what_is_on_disk_is_in_no_memory() {
    ranks(&[1], |rank| -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let mut on_disk = plan(rank, Sharded::Parameters, by_class());
        on_disk.offload = Offload::everything(Storage::Disk {
            folder: folder.path().to_owned(),
        });
        on_disk.offload.disk.sub_group_size = 64 << 10;
        let (width, blocks) = (256, 16);
        let (found, _) = measured(on_disk, (width, blocks), 4, 2)?;
        let unit = (2 * 4 * width * width + 5 * width) as f64 * 4.0 / MIB;
        let model = unit * blocks as f64;
        // The model as it was built and, while things are prepared, what of it is on its way to the
        // disk; whole parameters and gradients of the largest unit. In memory it is four times the
        // model and more.
        let expected = 2.0 * model + 6.0 * unit;
        assert!(
            found <= expected && expected < 3.0 * model,
            "{found:.0} MiB, not {expected:.0}: model {model:.0}, unit {unit:.1}"
        );
        Ok(())
    });
}

/// Writes what a stage takes into the file `SHARDED_PACE_FILE`, where `SHARDED_PACE` asks for one:
/// `Nothing` (data parallelism), `OptimizerState`, `Gradients` or `Parameters`.
#[test]
fn pace_of_a_stage_that_was_asked_for() {
    let Ok(stage) = std::env::var("SHARDED_PACE") else {
        return;
    };
    ranks(&[2], |rank| -> Result<()> {
        let sharded = match stage.as_str() {
            "OptimizerState" => Sharded::OptimizerState,
            "Gradients" => Sharded::Gradients,
            "Parameters" => Sharded::Parameters,
            _ => Sharded::Nothing,
        };
        let plan = plan(rank, sharded, by_class());
        let (memory, step) = measured(plan, (WIDTH, BLOCKS), 128, 15)?;
        if rank.index() == 0 {
            let line = format!("{sharded:?}: {step:.1} ms a step, {memory:.0} MiB\n");
            fs::write(std::env::var("SHARDED_PACE_FILE").unwrap(), line).unwrap();
        }
        Ok(())
    });
}
