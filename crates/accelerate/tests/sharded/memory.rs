//! How much memory training takes, measured.

use std::fs;

use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};
use accelerate::optim::{AdamW, AdamWConfig, Optimizer};
use accelerate::{Accelerator, Result};
use accelerate_plan::parallel::Sharded;
use accelerate_testkit::{Rank, ranks};
use tch::{Kind, Tensor};

use crate::job::{by_class, plan};

const WIDTH: i64 = 512;
const BLOCKS: usize = 16;
const MIB: f64 = 1_048_576.0;

#[derive(Debug, Module)]
struct Block {
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
struct Deep {
    blocks: Vec<Block>,
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

fn deep() -> Result<Deep> {
    let factory = Factory::default();
    let block = || -> Result<Block> {
        Ok(Block {
            first: Linear::new(WIDTH, 4 * WIDTH, &factory)?,
            second: Linear::new(4 * WIDTH, WIDTH, &factory)?,
            state: ModuleState::default(),
        })
    };
    Ok(Deep {
        blocks: (0..BLOCKS).map(|_| block()).collect::<Result<_>>()?,
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

/// The most memory that some steps take besides what the process had before the model, in MiB.
fn peak(rank: Rank, sharded: Sharded) -> Result<f64> {
    let accelerator = Accelerator::builder()
        .cpu(true)
        .parallel_plan(plan(rank, sharded, by_class()))
        .build()?;
    // The first products load what they need.
    let probe = Tensor::f_ones([WIDTH, WIDTH], (Kind::Float, tch::Device::Cpu))?;
    let _ = probe.f_matmul(&probe)?;
    let before = status("VmRSS:");
    let model = deep()?;
    let parameters: Vec<Tensor> = model
        .parameters()
        .into_iter()
        .map(|parameter| parameter.tensor().shallow_clone())
        .collect();
    let optimizer = AdamW::new(parameters, AdamWConfig::default())?;
    let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
    for _ in 0..3 {
        let input = Tensor::f_ones([4, WIDTH], (Kind::Float, tch::Device::Cpu))?;
        let loss = model.call(input)?.f_square()?.f_mean(Kind::Float)?;
        accelerator.backward(&loss)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
    }
    Ok(status("VmHWM:") - before)
}

#[test]
#[cfg(target_os = "linux")]
fn a_rank_needs_its_part_of_the_state_and_some_units() {
    ranks(&[2], |rank| -> Result<()> {
        let all = deep()?;
        let unit = (all.blocks[0].num_parameters() * 4) as f64 / MIB;
        let model = (all.num_parameters() * 4) as f64 / MIB;
        drop(all);
        let found = peak(rank, Sharded::Parameters)?;
        // Parameters, gradients and two moments of AdamW, half of each; then whole parameters and
        // gradients of the largest unit, each twice.
        let formula = 4.0 * model / 2.0 + 4.0 * unit;
        assert!(
            found <= 1.05 * formula,
            "{found:.0} MiB, not {formula:.0}: model {model:.0}, unit {unit:.1}"
        );
        // A whole copy of the four would be twice as much.
        assert!(found < 4.0 * model * 0.8, "{found:.0} MiB");
        Ok(())
    });
}

/// The median time of a step in milliseconds, and the peak of memory in MiB.
fn pace(rank: Rank, sharded: Sharded) -> Result<(f64, f64)> {
    let accelerator = Accelerator::builder()
        .cpu(true)
        .parallel_plan(plan(rank, sharded, by_class()))
        .build()?;
    let before = status("VmRSS:");
    let model = deep()?;
    let parameters: Vec<Tensor> = model
        .parameters()
        .into_iter()
        .map(|parameter| parameter.tensor().shallow_clone())
        .collect();
    let optimizer = AdamW::new(parameters, AdamWConfig::default())?;
    let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
    let mut times = Vec::new();
    for _ in 0..12 {
        let input = Tensor::f_ones([128, WIDTH], (Kind::Float, tch::Device::Cpu))?;
        let start = std::time::Instant::now();
        let loss = model.call(input)?.f_square()?.f_mean(Kind::Float)?;
        accelerator.backward(&loss)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], status("VmHWM:") - before))
}

/// Prints what each stage takes beside data parallelism: `cargo test --workspace --test sharded
/// pace -- --ignored --nocapture`, with `SHARDED_PACE` one of `Nothing`, `OptimizerState`,
/// `Gradients` and `Parameters`.
#[test]
#[ignore = "measures, and tests nothing"]
fn pace_of_each_stage() {
    ranks(&[2], |rank| -> Result<()> {
        let stage = std::env::var("SHARDED_PACE").unwrap_or_default();
        let sharded = match stage.as_str() {
            "OptimizerState" => Sharded::OptimizerState,
            "Gradients" => Sharded::Gradients,
            "Parameters" => Sharded::Parameters,
            _ => Sharded::Nothing,
        };
        let (step, memory) = pace(rank, sharded)?;
        let line = format!("{sharded:?}: {step:.1} ms a step, {memory:.0} MiB\n");
        std::fs::write(
            std::env::temp_dir().join(format!("pace-{}", rank.index())),
            line,
        )
        .unwrap();
        Ok(())
    });
}
