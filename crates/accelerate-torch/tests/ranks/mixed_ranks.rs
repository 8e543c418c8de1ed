//! Rust ranks in one group with ranks of Python's `torch.distributed`.
//!
//! The Python side is `tests/parity/mixed_rank.py`; its README lists the calls, which
//! come here in the same order with the same values.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, thread};

use accelerate_testkit::{Rank, parity_python, start_ranks};
use accelerate_torch::{
    ProcessGroup, ReduceOp, Reducer, ReducerOptions, Result, autograd, fused, verify_parameters,
};
use tch::{Kind, Tensor};

use crate::network::{Network, gradients};
use crate::support::{Outcome, empty_places, float, join, numbers, real};

/// Set in a Rust rank's process to its numbers: index, world and port.
const RANK: &str = "ACCELERATE_MIXED_RANK";
/// Python takes seconds to start where the machine is busy.
const DEADLINE: Duration = Duration::from_secs(60);
/// The size of the packets in which data-parallel training hands out its parameters.
const BROADCAST_BYTES: usize = 250 * accelerate_torch::MIB;

#[test]
fn parity_rust_serves_python() -> Outcome {
    mixed(&["rust", "python"])
}

#[test]
fn parity_python_serves_rust() -> Outcome {
    mixed(&["python", "rust"])
}

#[test]
fn parity_python_between_two_rust_ranks() -> Outcome {
    mixed(&["rust", "python", "rust"])
}

/// Runs one process for each rank, and compares what all of them say at the end.
fn mixed(languages: &[&str]) -> Outcome {
    if let Some(rank) = this_rank() {
        return rust_rank(rank);
    }
    let test = thread::current().name().unwrap_or_default().to_owned();
    let Some(python) = parity_python(&test) else {
        return Ok(());
    };
    let this_program = env::current_exe()?;
    let outputs = start_ranks(languages.len(), DEADLINE, |rank| {
        if languages[rank.index()] == "python" {
            python_rank(&python, rank)
        } else {
            same_test(&this_program, &test, rank)
        }
    })?;
    let sums: Vec<_> = outputs.iter().map(|output| sum_in(&output.text)).collect();
    let well = outputs
        .iter()
        .all(|output| output.status.is_some_and(|status| status.success()));
    assert!(
        well && sums.iter().all(|sum| sum.is_some() && *sum == sums[0]),
        "{outputs:#?}"
    );
    Ok(())
}

fn python_rank(python: &Path, rank: Rank) -> Command {
    let script: PathBuf = [
        env!("CARGO_MANIFEST_DIR"),
        "..",
        "..",
        "tests",
        "parity",
        "mixed_rank.py",
    ]
    .iter()
    .collect();
    let mut command = Command::new(python);
    command.arg(script).envs(rank.environment());
    // Python's torch brings its own libtorch.
    command.env_remove("LD_LIBRARY_PATH");
    command
}

fn same_test(program: &Path, test: &str, rank: Rank) -> Command {
    let mut command = Command::new(program);
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(
            RANK,
            format!("{} {} {}", rank.index(), rank.world(), rank.port()),
        )
        .envs(rank.environment());
    command
}

fn this_rank() -> Option<Rank> {
    let text = env::var(RANK).ok()?;
    let mut words = text.split(' ');
    let index = words.next()?.parse().ok()?;
    let world = words.next()?.parse().ok()?;
    Some(Rank::new(index, world, words.next()?.parse().ok()?))
}

fn sum_in(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("MIXED OK ")?;
    rest.split_whitespace().next()
}

fn rust_rank(rank: Rank) -> Outcome {
    let group = join(rank)?;
    collectives(&group)?;
    subgroup(&group)?;
    one_tensor_collectives(&group)?;
    let sum = data_parallel(&group)?;
    println!("MIXED OK {sum:.6}");
    group.barrier()?;
    Ok(())
}

fn collectives(group: &ProcessGroup) -> Result<()> {
    let (rank, world) = (group.rank(), group.size());
    let total = float(&[2.0 * real(rank + 1), 10.0 * real(rank + 1)])?;
    group.all_reduce(&total, ReduceOp::Sum)?;
    let factor = real(world * (world + 1) / 2);
    assert_eq!(numbers(&total)?, [2.0 * factor, 10.0 * factor]);

    let shared = if rank == 0 {
        float(&[0.0, 1.0, 2.0, 3.0, 4.0])?
    } else {
        float(&[-1.0; 5])?
    };
    group.broadcast(&shared, 0)?;
    assert_eq!(numbers(&shared)?, [0.0, 1.0, 2.0, 3.0, 4.0]);

    let everyone = empty_places(world, 2)?;
    group.all_gather(&everyone, &float(&[real(rank), real(rank) + 0.5])?)?;
    for (r, place) in everyone.iter().enumerate() {
        assert_eq!(numbers(place)?, [real(r), real(r) + 0.5]);
    }
    Ok(())
}

fn subgroup(group: &ProcessGroup) -> Result<()> {
    let pair = group.subgroup(&[0, 1])?;
    assert_eq!(pair.is_some(), group.rank() < 2);
    if let Some(pair) = pair {
        let value = float(&[real(group.rank() + 1)])?;
        pair.all_reduce(&value, ReduceOp::Sum)?;
        assert_eq!(numbers(&value)?, [3.0]);
    }
    Ok(())
}

fn one_tensor_collectives(group: &ProcessGroup) -> Result<()> {
    let (rank, world) = (group.rank(), group.size());
    let of = |r: usize| [real(r) + 1.0, real(r) + 1.25, real(r) + 1.5];
    let gathered = float(&vec![-1.0; 3 * world])?;
    group.all_gather_into_tensor(&gathered, &float(&of(rank))?)?;
    assert_eq!(
        numbers(&gathered)?,
        (0..world).flat_map(of).collect::<Vec<_>>()
    );

    let everything: Vec<f64> = (0..2 * world).map(|i| real(i + 10 * rank)).collect();
    let part = float(&[-1.0; 2])?;
    group.reduce_scatter_tensor(&part, &float(&everything)?, ReduceOp::Sum)?;
    let tens = 10 * world * (world - 1) / 2;
    let expected = [2 * rank, 2 * rank + 1].map(|i| real(world * i + tens));
    assert_eq!(numbers(&part)?, expected);
    Ok(())
}

/// Two steps as `DistributedDataParallel` makes them. Gives the sum of all parameters.
fn data_parallel(group: &ProcessGroup) -> Result<f64> {
    let network = Network::new(&[8, 16, 4])?;
    let parameters = network.tensors();
    if group.rank() > 0 {
        // Other values than rank 0's, which have to come from there.
        tch::no_grad(|| {
            parameters
                .iter()
                .try_for_each(|p| p.shallow_clone().f_fill_(9).map(drop))
        })?;
    }
    verify_parameters(group, &parameters)?;
    let values = parameters
        .iter()
        .map(|p| Ok(p.f_detach()?))
        .collect::<Result<Vec<_>>>()?;
    group.broadcast_coalesced(&values, BROADCAST_BYTES, 0)?;
    let reducer = Reducer::new(group, &network.parameters(), &ReducerOptions::default())?;
    let rows: Vec<f64> = (0..32)
        .map(|i| real(i) / 32.0 + real(group.rank()))
        .collect();
    let rows = float(&rows)?.f_view([4, 8])?;
    let mut losses = Vec::new();
    for _ in 0..2 {
        losses.push(network.reduced_step(&reducer, &rows)?);
        sgd(&parameters)?;
        network.clear_gradients()?;
    }
    assert!(losses[1] < losses[0], "the loss did not fall: {losses:?}");
    sum_of_equal(group, &parameters)
}

fn sgd(parameters: &[Tensor]) -> Result<()> {
    let step = fused::SgdStep {
        lr: 0.1,
        momentum: 0.0,
        dampening: 0.0,
        weight_decay: 0.0,
        nesterov: false,
        maximize: false,
        first_step: false,
    };
    assert!(
        parameters
            .iter()
            .all(|p| matches!(autograd::grad(p), Ok(Some(_))))
    );
    fused::sgd(
        parameters,
        &gradients(parameters)?,
        &[],
        &step,
        fused::GradScale::default(),
    )
}

/// The sum of the parameters, which every rank has to hold with the same bits.
fn sum_of_equal(group: &ProcessGroup, parameters: &[Tensor]) -> Result<f64> {
    let flat = parameters
        .iter()
        .map(|p| Ok(p.f_detach()?.f_flatten(0, -1)?))
        .collect::<Result<Vec<_>>>()?;
    let flat = Tensor::f_cat(&flat, 0)?;
    let everyone = empty_places(group.size(), flat.numel())?;
    group.all_gather(&everyone, &flat)?;
    for (rank, other) in everyone.iter().enumerate() {
        assert!(
            other.f_equal(&flat)?,
            "the parameters of rank {rank} differ"
        );
    }
    Ok(flat
        .f_to_kind(Kind::Double)?
        .f_sum(None::<Kind>)?
        .f_double_value(&[])?)
}
