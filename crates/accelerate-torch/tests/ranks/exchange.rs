//! All-gather and reduce-scatter made of sends and receives.

use accelerate_torch::{Error, ProcessGroup, ReduceOp, Result};
use tch::{Kind, Tensor};

use crate::support::{Outcome, float, marked, numbers, on_ranks, real};

#[test]
fn exchanges_equal_the_native_forms() {
    on_ranks!(
        an_exchanged_all_gather_equals_the_native_one,
        the_input_may_be_the_own_part_of_the_output,
        whole_numbers_are_reduced_as_by_the_native_form,
        floats_are_added_in_the_order_of_ranks,
        many_exchanges_are_under_way_at_once,
        exchanges_leave_messages_and_collectives_alone,
        sizes_that_do_not_fit_are_refused_before_anything_is_sent,
    );
}

/// Values with many different exponents, so that every order of addition has its own bits.
fn uneven(rank: usize, length: usize) -> Result<Tensor> {
    let values: Vec<f64> = (0..length)
        .map(|position| {
            let x = real(1 + position * 7 + rank * 13);
            (x * 12.9898).sin() * 10f64.powi(i32::try_from(position % 9).unwrap_or(0) - 4)
        })
        .collect();
    float(&values)
}

/// Room for the parts of the others.
fn room(group: &ProcessGroup, part: &Tensor) -> Result<Tensor> {
    let length = i64::try_from((group.size() - 1) * part.numel()).unwrap_or(i64::MAX);
    Ok(Tensor::f_empty([length], (part.kind(), part.device()))?)
}

fn reduce_scatter(
    group: &ProcessGroup,
    output: &Tensor,
    input: &Tensor,
    op: ReduceOp,
) -> Result<()> {
    let room = room(group, output)?;
    group
        .exchange_reduce_scatter_async(output, input, &room, op)?
        .wait()
}

fn an_exchanged_all_gather_equals_the_native_one(group: &ProcessGroup) -> Outcome {
    for kind in [Kind::Float, Kind::BFloat16, Kind::Int64, Kind::Uint8] {
        let mine = float(&marked(group.rank(), 6))?
            .f_view([2, 3])?
            .f_to_kind(kind)?;
        let shape = [2 * i64::try_from(group.size())?, 3];
        let native = Tensor::f_zeros(shape, (kind, mine.device()))?;
        let exchanged = Tensor::f_zeros(shape, (kind, mine.device()))?;
        group.all_gather_into_tensor(&native, &mine)?;
        group.exchange_all_gather_async(&exchanged, &mine)?.wait()?;
        assert!(native.f_equal(&exchanged)?, "{kind:?}");
        assert!(numbers(&exchanged)?.iter().any(|&value| value != 0.0));
    }
    Ok(())
}

fn the_input_may_be_the_own_part_of_the_output(group: &ProcessGroup) -> Outcome {
    let output = float(&vec![-1.0; 4 * group.size()])?;
    let own = output.f_narrow(0, 4 * i64::try_from(group.rank())?, 4)?;
    own.shallow_clone()
        .f_copy_(&float(&marked(group.rank(), 4))?)?;
    group.exchange_all_gather_async(&output, &own)?.wait()?;
    let expected: Vec<f64> = (0..group.size()).flat_map(|rank| marked(rank, 4)).collect();
    assert_eq!(numbers(&output)?, expected);

    // And for a reduce-scatter the output may be the own part of the input.
    let input = float(&vec![real(group.rank() + 1); 4 * group.size()])?;
    let own = input.f_narrow(0, 4 * i64::try_from(group.rank())?, 4)?;
    reduce_scatter(group, &own, &input, ReduceOp::Sum)?;
    assert_eq!(
        numbers(&own)?,
        [real(group.size() * (group.size() + 1) / 2); 4]
    );
    Ok(())
}

fn whole_numbers_are_reduced_as_by_the_native_form(group: &ProcessGroup) -> Outcome {
    let input = float(&marked(group.rank(), 5 * group.size()))?.f_to_kind(Kind::Int64)?;
    let native = Tensor::f_zeros([5], (Kind::Int64, input.device()))?;
    let exchanged = native.f_zeros_like()?;
    group.reduce_scatter_tensor(&native, &input, ReduceOp::Sum)?;
    reduce_scatter(group, &exchanged, &input, ReduceOp::Sum)?;
    assert!(native.f_equal(&exchanged)?);
    assert!(native.f_int64_value(&[4])? > 0);
    Ok(())
}

fn floats_are_added_in_the_order_of_ranks(group: &ProcessGroup) -> Outcome {
    let (rank, world) = (group.rank(), group.size());
    let length = 1000 * world;
    let input = uneven(rank, length)?;
    let part = |from: usize| -> Result<Tensor> {
        let start = 1000 * i64::try_from(rank).unwrap_or(i64::MAX);
        Ok(uneven(from, length)?.f_narrow(0, start, 1000)?)
    };
    let mut sum = part(0)?;
    for from in 1..world {
        sum = sum.f_add(&part(from)?)?;
    }
    let output = float(&[-1.0; 1000])?;
    reduce_scatter(group, &output, &input, ReduceOp::Sum)?;
    assert!(output.f_equal(&sum)?);

    let average = sum.f_div_scalar(i64::try_from(world)?)?;
    reduce_scatter(group, &output, &input, ReduceOp::Avg)?;
    assert!(output.f_equal(&average)?);

    // With two ranks there is one order only, so the native form has the same bits.
    if world == 2 {
        group.reduce_scatter_tensor(&output, &input, ReduceOp::Sum)?;
        assert!(output.f_equal(&sum)?);
    }
    Ok(())
}

fn many_exchanges_are_under_way_at_once(group: &ProcessGroup) -> Outcome {
    let (rank, world) = (group.rank(), group.size());
    let mut under_way = Vec::new();
    for number in 0..12usize {
        let mine = float(&vec![real(100 * number + rank); 50 + number])?;
        let all = float(&vec![-1.0; (50 + number) * world])?;
        let gathering = group.exchange_all_gather_async(&all, &mine)?;
        let sum = mine.f_zeros_like()?;
        let input = float(&vec![real(number + rank); (50 + number) * world])?;
        let room = room(group, &sum)?;
        let reducing = group.exchange_reduce_scatter_async(&sum, &input, &room, ReduceOp::Sum)?;
        under_way.push((number, all, gathering, sum, reducing));
    }
    // The last first, and the second half of each pair first.
    for (number, all, gathering, sum, reducing) in under_way.into_iter().rev() {
        reducing.wait()?;
        gathering.wait()?;
        let expected: Vec<f64> = (0..world)
            .flat_map(|r| vec![real(100 * number + r); 50 + number])
            .collect();
        assert_eq!(numbers(&all)?, expected);
        let total = real(number * world + world * (world - 1) / 2);
        assert_eq!(numbers(&sum)?, vec![total; 50 + number]);
    }
    Ok(())
}

fn exchanges_leave_messages_and_collectives_alone(group: &ProcessGroup) -> Outcome {
    let (rank, world) = (group.rank(), group.size());
    let (next, before) = ((rank + 1) % world, (rank + world - 1) % world);
    let (mine, got) = (float(&[real(rank)])?, float(&[-1.0])?);
    let all = float(&vec![-1.0; world])?;
    let total = float(&[1.0])?;
    let sent = group.send_async(&mine, next, 0)?;
    let gathering = group.exchange_all_gather_async(&all, &mine)?;
    let adding = group.all_reduce_async(&total, ReduceOp::Sum)?;
    group.receive(&got, before, 0)?;
    sent.wait()?;
    adding.wait()?;
    gathering.wait()?;
    assert_eq!(numbers(&got)?, [real(before)]);
    assert_eq!(numbers(&total)?, [real(world)]);
    assert_eq!(numbers(&all)?, (0..world).map(real).collect::<Vec<_>>());
    Ok(())
}

fn sizes_that_do_not_fit_are_refused_before_anything_is_sent(group: &ProcessGroup) -> Outcome {
    let world = group.size();
    let part = float(&[0.0; 4])?;
    let whole = float(&vec![0.0; 4 * world])?;
    let short = float(&vec![0.0; 4 * world - 1])?;
    let strided = float(&vec![0.0; 8 * world])?
        .f_view([-1, 2])?
        .f_select(1, 0)?;
    let double = whole.f_to_kind(Kind::Double)?;
    let room = room(group, &part)?;
    let scatter =
        |output, input, room, op| group.exchange_reduce_scatter_async(output, input, room, op);
    for refused in [
        group.exchange_all_gather_async(&short, &part),
        group.exchange_all_gather_async(&strided, &part),
        group.exchange_all_gather_async(&double, &part),
        scatter(&part, &short, &room, ReduceOp::Sum),
        scatter(&part, &whole, &whole, ReduceOp::Sum),
        scatter(&part, &double, &room, ReduceOp::Sum),
        scatter(&part, &whole, &room, ReduceOp::Max),
    ] {
        assert!(
            matches!(refused, Err(Error::Argument { .. })),
            "{refused:?}"
        );
    }
    // Tags were not used up unevenly: the next exchange still fits together.
    group
        .exchange_all_gather_async(&whole, &float(&marked(group.rank(), 4))?)?
        .wait()?;
    assert_eq!(
        numbers(&whole)?,
        (0..world).flat_map(|r| marked(r, 4)).collect::<Vec<_>>()
    );
    Ok(())
}
