//! Operations on one tensor per rank.

use accelerate_torch::{Error, ProcessGroup, ReduceOp, Result};
use tch::{Kind, Tensor};

use crate::support::{Outcome, float, marked, numbers, on_ranks, real};

#[test]
fn ranks_reduce_and_spread_one_tensor() {
    on_ranks!(
        all_reduce_knows_five_operations,
        all_reduce_adds_every_kind,
        whole_numbers_have_no_average,
        broadcast_copies_the_root,
        reduce_writes_on_the_root,
        a_root_is_a_rank_of_the_group,
        gathers_and_scatters_of_one_tensor,
        sizes_that_do_not_fit_are_refused,
        a_barrier_waits_for_the_last,
        collectives_are_counted,
        the_future_of_a_collective_brings_its_tensor,
    );
}

/// What a rank gives to reductions: different signs and sizes, exact in float32.
fn given(rank: usize) -> Vec<f64> {
    let r = real(rank);
    vec![r + 1.5, 2.0 - 3.0 * r, 4.0, -0.25 * r]
}

/// The reduction of what all ranks give, computed here.
fn reduced(op: ReduceOp, world: usize) -> Vec<f64> {
    let fold = |a: f64, b: f64| match op {
        ReduceOp::Product => a * b,
        ReduceOp::Min => a.min(b),
        ReduceOp::Max => a.max(b),
        _ => a + b,
    };
    let mut all = given(0);
    for rank in 1..world {
        all = all
            .iter()
            .zip(given(rank))
            .map(|(&a, b)| fold(a, b))
            .collect();
    }
    if op == ReduceOp::Avg {
        for value in &mut all {
            // Divided in float32, as the tensors are.
            *value = f64::from((*value as f32) / (world as f32));
        }
    }
    all
}

const OPERATIONS: [ReduceOp; 5] = [
    ReduceOp::Sum,
    ReduceOp::Avg,
    ReduceOp::Product,
    ReduceOp::Min,
    ReduceOp::Max,
];

/// One tensor for every operation, all under way at once, waited in another order.
fn at_once(
    group: &ProcessGroup,
    start: impl Fn(&Tensor, ReduceOp) -> Result<accelerate_torch::Work>,
) -> Result<Vec<Tensor>> {
    let tensors = OPERATIONS.map(|_| float(&given(group.rank())));
    let tensors = tensors.into_iter().collect::<Result<Vec<_>>>()?;
    let mut works = tensors
        .iter()
        .zip(OPERATIONS)
        .map(|(tensor, op)| start(tensor, op))
        .collect::<Result<Vec<_>>>()?;
    while let Some(last) = works.pop() {
        last.wait()?;
    }
    Ok(tensors)
}

fn all_reduce_knows_five_operations(group: &ProcessGroup) -> Outcome {
    for op in OPERATIONS {
        let tensor = float(&given(group.rank()))?;
        group.all_reduce(&tensor, op)?;
        assert_eq!(numbers(&tensor)?, reduced(op, group.size()), "{op:?}");
    }
    let tensors = at_once(group, |tensor, op| group.all_reduce_async(tensor, op))?;
    for (tensor, op) in tensors.iter().zip(OPERATIONS) {
        assert_eq!(
            numbers(tensor)?,
            reduced(op, group.size()),
            "asynchronous {op:?}"
        );
    }
    Ok(())
}

fn all_reduce_adds_every_kind(group: &ProcessGroup) -> Outcome {
    for kind in [
        Kind::Uint8,
        Kind::Int8,
        Kind::Int,
        Kind::Int64,
        Kind::Half,
        Kind::BFloat16,
        Kind::Float,
        Kind::Double,
    ] {
        let factor = real(group.rank() + 1);
        let tensor = float(&[factor, 7.0 * factor])?.f_to_kind(kind)?;
        group.all_reduce(&tensor, ReduceOp::Sum)?;
        let all = real(group.size() * (group.size() + 1) / 2);
        assert_eq!(numbers(&tensor)?, [all, 7.0 * all], "{kind:?}");
        assert_eq!(tensor.kind(), kind);
    }
    Ok(())
}

fn whole_numbers_have_no_average(group: &ProcessGroup) -> Outcome {
    let tensor = Tensor::from_slice(&[3i64]);
    let error = group.all_reduce(&tensor, ReduceOp::Avg).unwrap_err();
    assert!(
        matches!(&error, Error::Argument { found, .. } if found == "Int64"),
        "{error}"
    );
    let error = group.reduce(&tensor, 0, ReduceOp::Avg).unwrap_err();
    assert!(matches!(&error, Error::Argument { .. }), "{error}");
    assert_eq!(numbers(&tensor)?, [3.0], "a refused tensor stays as it is");
    Ok(())
}

fn broadcast_copies_the_root(group: &ProcessGroup) -> Outcome {
    let root = group.size() - 1;
    let tensor = float(&marked(group.rank(), 5))?;
    group.broadcast(&tensor, root)?;
    assert_eq!(numbers(&tensor)?, marked(root, 5));
    let tensor = float(&marked(group.rank(), 3))?;
    let work = group.broadcast_async(&tensor, 1)?;
    work.wait()?;
    assert_eq!(numbers(&tensor)?, marked(1, 3));
    Ok(())
}

fn reduce_writes_on_the_root(group: &ProcessGroup) -> Outcome {
    let root = group.size() - 1;
    for op in OPERATIONS {
        let tensor = float(&given(group.rank()))?;
        group.reduce(&tensor, root, op)?;
        if group.rank() == root {
            assert_eq!(numbers(&tensor)?, reduced(op, group.size()), "{op:?}");
        }
    }
    let tensors = at_once(group, |tensor, op| group.reduce_async(tensor, 0, op))?;
    for (tensor, op) in tensors.iter().zip(OPERATIONS) {
        if group.rank() == 0 {
            assert_eq!(
                numbers(tensor)?,
                reduced(op, group.size()),
                "asynchronous {op:?}"
            );
        }
    }
    Ok(())
}

fn a_root_is_a_rank_of_the_group(group: &ProcessGroup) -> Outcome {
    let outside = group.size();
    let tensor = float(&[1.0])?;
    for error in [
        group.broadcast(&tensor, outside).unwrap_err(),
        group.reduce(&tensor, outside, ReduceOp::Sum).unwrap_err(),
        group.gather(&[], &tensor, outside).unwrap_err(),
        group.scatter(&tensor, &[], outside).unwrap_err(),
        group.send(&tensor, outside, 0).unwrap_err(),
        group.receive(&tensor, outside, 0).unwrap_err(),
        group
            .broadcast_coalesced(&[tensor.shallow_clone()], 8, outside)
            .unwrap_err(),
        group.broadcast_bytes(b"", outside).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, Error::Argument { .. }), "{text}");
        assert!(
            text.contains(&format!("a rank below {outside}, found {outside}")),
            "{text}"
        );
    }
    Ok(())
}

fn gathers_and_scatters_of_one_tensor(group: &ProcessGroup) -> Outcome {
    let (rank, world) = (group.rank(), group.size());
    let everything: Vec<f64> = (0..world).flat_map(|r| marked(r, 3)).collect();
    let mine = float(&marked(rank, 3))?;
    for blocking in [true, false] {
        let output = float(&vec![-1.0; 3 * world])?;
        if blocking {
            group.all_gather_into_tensor(&output, &mine)?;
        } else {
            group.all_gather_into_tensor_async(&output, &mine)?.wait()?;
        }
        assert_eq!(numbers(&output)?, everything);
    }
    for op in OPERATIONS {
        // Part i is what rank 0.. give, times i + 1.
        let input: Vec<f64> = (0..world)
            .flat_map(|part| given(rank).into_iter().map(move |v| v * real(part + 1)))
            .collect();
        let input = float(&input)?;
        let (blocking, later) = (float(&[-1.0; 4])?, float(&[-1.0; 4])?);
        group.reduce_scatter_tensor(&blocking, &input, op)?;
        group
            .reduce_scatter_tensor_async(&later, &input, op)?
            .wait()?;
        let scale = match op {
            ReduceOp::Product => real(rank + 1).powi(i32::try_from(world)?),
            _ => real(rank + 1),
        };
        for (found, value) in numbers(&blocking)?.iter().zip(reduced(op, world)) {
            assert!(
                (found - value * scale).abs() <= 1e-6 * value.abs() * scale,
                "{op:?}"
            );
        }
        assert!(blocking.f_equal(&later)?, "{op:?}");
    }
    Ok(())
}

fn sizes_that_do_not_fit_are_refused(group: &ProcessGroup) -> Outcome {
    let three = float(&[1.0, 2.0, 3.0])?;
    let too_small = float(&vec![0.0; 3 * group.size() - 1])?;
    for error in [
        group
            .all_gather_into_tensor(&too_small, &three)
            .unwrap_err(),
        group
            .reduce_scatter_tensor(&three, &too_small, ReduceOp::Sum)
            .unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Libtorch { .. }), "{error:?}");
    }
    Ok(())
}

fn a_barrier_waits_for_the_last(group: &ProcessGroup) -> Outcome {
    for asynchronous in [false, true] {
        if group.rank() == group.size() - 1 {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        let came = now()?;
        if asynchronous {
            group.barrier_async(None)?.wait()?;
        } else {
            group.barrier()?;
        }
        let left = now()?;
        let came = Tensor::from_slice(&[came]);
        group.all_reduce(&came, ReduceOp::Max)?;
        assert!(
            left >= came.f_int64_value(&[0])?,
            "somebody left before the last came"
        );
    }
    Ok(())
}

/// Microseconds on the clock that all processes of a machine share.
fn now() -> Result<i64, Box<dyn std::error::Error>> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_micros())?)
}

fn collectives_are_counted(group: &ProcessGroup) -> Outcome {
    let tensor = float(&[1.0])?;
    let first = group.all_reduce_async(&tensor, ReduceOp::Sum)?;
    let number = first.sequence()?;
    first.wait()?;
    let second = group.all_reduce_async(&tensor, ReduceOp::Sum)?;
    assert_eq!(second.sequence()?, number + 1);
    let text = format!("{second:?}");
    assert!(
        text.contains("all-reduce") && text.contains("Place"),
        "{text}"
    );
    second.wait()?;
    Ok(())
}

fn the_future_of_a_collective_brings_its_tensor(group: &ProcessGroup) -> Outcome {
    let tensor = float(&[1.0, 2.0])?;
    let future = group.all_reduce_async(&tensor, ReduceOp::Sum)?.future()?;
    let doubled = future.then(|sum| Ok(sum.f_mul_scalar(2)?))?;
    let world = real(group.size());
    assert_eq!(numbers(&doubled.wait()?)?, [2.0 * world, 4.0 * world]);
    // An average is divided by whoever waits, so it has no future.
    let average = group.all_reduce_async(&tensor, ReduceOp::Avg)?;
    assert!(matches!(average.future(), Err(Error::Unavailable { .. })));
    Ok(())
}
