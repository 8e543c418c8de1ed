//! An accelerator in one job with ranks of Python's `DistributedDataParallel`.
//!
//! The Python side is `tests/parity/mixed_rank.py` with the argument `ddp`.
#![expect(clippy::print_stdout, reason = "ranks say what they came to")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, thread};

use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};
use accelerate::optim::{Optimizer, Sgd, SgdConfig};
use accelerate::{Accelerator, Result};
use accelerate_testkit::{Rank, RankOutput, parity_python, start_ranks};
use tch::{Device, Kind, Tensor};

/// Set in a Rust rank's process.
const RANK: &str = "ACCELERATE_MIXED_DDP_RANK";
/// Python takes seconds to start where the machine is busy.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Module)]
struct Network {
    first: Linear,
    second: Linear,
    state: ModuleState,
}

impl Forward for Network {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        self.second.call(self.first.call(x)?.f_relu()?)
    }
}

fn network() -> Result<Network> {
    let factory = Factory::default();
    Ok(Network {
        first: Linear::new(8, 16, &factory)?,
        second: Linear::new(16, 4, &factory)?,
        state: ModuleState::default(),
    })
}

/// Runs one process for each rank; nothing where there is no Python.
fn mixed(languages: &[&str], argument: &[&str]) -> Result<Option<Vec<RankOutput>>, Box<dyn Error>> {
    let test = thread::current().name().unwrap_or_default().to_owned();
    let Some(python) = parity_python(&test) else {
        return Ok(None);
    };
    let this_program = env::current_exe()?;
    let outputs = start_ranks(languages.len(), DEADLINE, |rank| {
        match languages[rank.index()] {
            "python" => python_rank(&python, rank, argument),
            _ => same_test(&this_program, &test, rank),
        }
    })?;
    Ok(Some(outputs))
}

fn python_rank(python: &Path, rank: Rank, argument: &[&str]) -> Command {
    let parts = [
        env!("CARGO_MANIFEST_DIR"),
        "../../tests/parity/mixed_rank.py",
    ];
    let script: PathBuf = parts.iter().collect();
    let mut command = Command::new(python);
    command.arg(script).args(argument).envs(rank.environment());
    // Python's torch brings its own libtorch.
    command.env_remove("LD_LIBRARY_PATH");
    command
}

fn same_test(program: &Path, test: &str, rank: Rank) -> Command {
    let mut command = Command::new(program);
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(RANK, "yes")
        .envs(rank.environment());
    command
}

fn is_rank() -> bool {
    env::var_os(RANK).is_some()
}

fn train_together(languages: &[&str]) -> Result<(), Box<dyn Error>> {
    if is_rank() {
        return train();
    }
    let Some(outputs) = mixed(languages, &["ddp"])? else {
        return Ok(());
    };
    let sum_in = |output: &RankOutput| {
        let (_, rest) = output.text.split_once("MIXED OK ")?;
        Some(rest.split_whitespace().next()?.to_owned())
    };
    let sums: Vec<_> = outputs.iter().map(sum_in).collect();
    let well = |output: &RankOutput| output.status.is_some_and(|status| status.success());
    assert!(
        outputs.iter().all(well) && sums.iter().all(|sum| sum.is_some() && *sum == sums[0]),
        "{outputs:#?}"
    );
    Ok(())
}

/// Two steps, as every rank of Python makes them.
fn train() -> Result<(), Box<dyn Error>> {
    let accelerator = Accelerator::new()?;
    let model = network()?;
    let parameters = model.parameters().into_iter();
    let parameters: Vec<Tensor> = parameters.map(|p| p.tensor().shallow_clone()).collect();
    let flat: Vec<Tensor> = parameters
        .iter()
        .map(|p| p.detach().flatten(0, -1))
        .collect();
    let sgd = Sgd::new(parameters, SgdConfig::new(0.1))?;
    let (model, mut optimizer) = accelerator.prepare((model, sgd))?;
    let rows = Tensor::arange(32, (Kind::Float, Device::Cpu)).view([4, 8]) / 32;
    let rows = rows + accelerator.process_index() as f64;
    let mut losses = Vec::new();
    for _ in 0..2 {
        let loss = model.call(&rows)?.f_square()?.f_mean(Kind::Float)?;
        accelerator.backward(&loss)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        losses.push(loss.double_value(&[]));
    }
    assert!(losses[1] < losses[0], "the loss did not fall: {losses:?}");
    let group = accelerator.state().process_group().ok_or("no group")?;
    let flat = Tensor::f_cat(&flat, 0)?;
    let everyone: Vec<Tensor> = (0..group.size()).map(|_| flat.zeros_like()).collect();
    group.all_gather(&everyone, &flat)?;
    for (rank, other) in everyone.iter().enumerate() {
        assert!(*other == flat, "the parameters of rank {rank} differ");
    }
    println!(
        "MIXED OK {:.6}",
        flat.to_kind(Kind::Double).sum(None).double_value(&[])
    );
    group.barrier()?;
    Ok(accelerator.end_training()?)
}

#[test]
fn parity_an_accelerator_serves_a_wrapper_of_python() -> Result<(), Box<dyn Error>> {
    train_together(&["rust", "python"])
}

#[test]
fn parity_a_wrapper_of_python_serves_two_accelerators() -> Result<(), Box<dyn Error>> {
    train_together(&["python", "rust", "rust"])
}

#[test]
fn parity_a_model_that_differs_from_pythons_is_named() -> Result<(), Box<dyn Error>> {
    if is_rank() {
        let accelerator = Accelerator::new()?;
        let error = accelerator.prepare(network()?).map(drop).err();
        let error = error.ok_or("the models fit")?.to_string();
        println!("REFUSED {error}");
        return Ok(());
    }
    let Some(outputs) = mixed(&["python", "rust"], &["ddp", "differ"])? else {
        return Ok(());
    };
    let text = &outputs[1].text;
    assert!(
        text.contains("REFUSED all ranks need the same model")
            && text.contains("found `first.weight`: [16, 8] on rank 1"),
        "{outputs:#?}"
    );
    Ok(())
}
