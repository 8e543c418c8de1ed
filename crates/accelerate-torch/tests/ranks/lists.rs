//! Operations on lists of tensors, and on bytes.

use accelerate_torch::{Error, ProcessGroup, ReduceOp, Result};
use tch::{Kind, Tensor};

use crate::support::{Outcome, empty_places, float, marked, numbers, on_ranks, real};

#[test]
fn ranks_exchange_lists_and_bytes() {
    on_ranks!(
        all_gather_fills_a_place_for_each_rank,
        reduce_scatter_gives_each_rank_its_part,
        gather_fills_the_places_of_the_root,
        scatter_hands_out_what_the_root_has,
        all_to_all_swaps_lists_of_uneven_tensors,
        all_to_all_of_one_tensor_takes_uneven_splits,
        a_list_has_one_tensor_for_each_rank,
        many_tensors_are_broadcast_in_small_buffers,
        bytes_of_any_length_are_gathered,
        bytes_of_the_root_are_broadcast,
        a_condition_on_one_rank_is_known_to_all,
    );
}

fn assert_marked(places: &[Tensor], length: usize) -> Result<()> {
    for (rank, place) in places.iter().enumerate() {
        assert_eq!(numbers(place)?, marked(rank, length), "place {rank}");
    }
    Ok(())
}

fn all_gather_fills_a_place_for_each_rank(group: &ProcessGroup) -> Outcome {
    let mine = float(&marked(group.rank(), 4))?;
    let places = empty_places(group.size(), 4)?;
    group.all_gather(&places, &mine)?;
    assert_marked(&places, 4)?;
    let places = empty_places(group.size(), 4)?;
    group.all_gather_async(&places, &mine)?.wait()?;
    assert_marked(&places, 4)?;
    Ok(())
}

fn reduce_scatter_gives_each_rank_its_part(group: &ProcessGroup) -> Outcome {
    let (rank, world) = (group.rank(), group.size());
    // What rank r has for rank i is r + 10 i, and r - i.
    let inputs = (0..world)
        .map(|part| float(&[real(rank) + 10.0 * real(part), real(rank) - real(part)]))
        .collect::<Result<Vec<_>>>()?;
    let ranks_sum = real(world * (world - 1) / 2);
    let (n, part) = (real(world), real(rank));
    for (op, expected) in [
        (
            ReduceOp::Sum,
            [ranks_sum + 10.0 * n * part, ranks_sum - n * part],
        ),
        (
            ReduceOp::Avg,
            [ranks_sum / n + 10.0 * part, ranks_sum / n - part],
        ),
        (ReduceOp::Min, [10.0 * part, -part]),
        (ReduceOp::Max, [n - 1.0 + 10.0 * part, n - 1.0 - part]),
    ] {
        let (blocking, later) = (float(&[-1.0, -1.0])?, float(&[-1.0, -1.0])?);
        group.reduce_scatter(&blocking, &inputs, op)?;
        group.reduce_scatter_async(&later, &inputs, op)?.wait()?;
        assert_eq!(numbers(&blocking)?, expected, "{op:?}");
        assert_eq!(numbers(&later)?, expected, "asynchronous {op:?}");
    }
    Ok(())
}

fn gather_fills_the_places_of_the_root(group: &ProcessGroup) -> Outcome {
    let root = group.size() - 1;
    let mine = float(&marked(group.rank(), 2))?;
    let places = |root| {
        if group.rank() == root {
            group.size()
        } else {
            0
        }
    };
    let of_root = empty_places(places(root), 2)?;
    group.gather(&of_root, &mine, root)?;
    assert_marked(&of_root, 2)?;
    let of_first = empty_places(places(0), 2)?;
    group.gather_async(&of_first, &mine, 0)?.wait()?;
    assert_marked(&of_first, 2)?;
    Ok(())
}

fn scatter_hands_out_what_the_root_has(group: &ProcessGroup) -> Outcome {
    let root = group.size() - 1;
    let given = |root| -> Result<Vec<Tensor>> {
        let count = if group.rank() == root {
            group.size()
        } else {
            0
        };
        (0..count).map(|rank| float(&marked(rank, 3))).collect()
    };
    let mine = float(&[-1.0; 3])?;
    group.scatter(&mine, &given(root)?, root)?;
    assert_eq!(numbers(&mine)?, marked(group.rank(), 3));
    let mine = float(&[-1.0; 3])?;
    group.scatter_async(&mine, &given(0)?, 0)?.wait()?;
    assert_eq!(numbers(&mine)?, marked(group.rank(), 3));
    Ok(())
}

fn all_to_all_swaps_lists_of_uneven_tensors(group: &ProcessGroup) -> Outcome {
    let (rank, world) = (group.rank(), group.size());
    // Rank r sends r + i + 1 values to rank i, all of them 10 r + i.
    let message = |from: usize, to: usize| vec![real(10 * from + to); from + to + 1];
    let inputs = (0..world)
        .map(|to| float(&message(rank, to)))
        .collect::<Result<Vec<_>>>()?;
    for blocking in [true, false] {
        let outputs = (0..world)
            .map(|from| float(&vec![-1.0; from + rank + 1]))
            .collect::<Result<Vec<_>>>()?;
        if blocking {
            group.all_to_all(&outputs, &inputs)?;
        } else {
            group.all_to_all_async(&outputs, &inputs)?.wait()?;
        }
        for (from, output) in outputs.iter().enumerate() {
            assert_eq!(numbers(output)?, message(from, rank), "from rank {from}");
        }
    }
    Ok(())
}

fn all_to_all_of_one_tensor_takes_uneven_splits(group: &ProcessGroup) -> Outcome {
    let (rank, world) = (group.rank(), group.size());
    // Rank r sends r + 2 i rows to rank i: none from rank 0 to itself.
    let rows = |from: usize, to: usize| from + 2 * to;
    let splits = |count: &dyn Fn(usize) -> usize| -> Result<Vec<i64>, std::num::TryFromIntError> {
        (0..world).map(|peer| i64::try_from(count(peer))).collect()
    };
    let (to, from) = (
        splits(&|peer| rows(rank, peer))?,
        splits(&|peer| rows(peer, rank))?,
    );
    let sent: Vec<f64> = (0..world)
        .flat_map(|peer| vec![real(10 * rank + peer); 2 * rows(rank, peer)])
        .collect();
    let expected: Vec<f64> = (0..world)
        .flat_map(|peer| vec![real(10 * peer + rank); 2 * rows(peer, rank)])
        .collect();
    let input = float(&sent)?.f_view([-1, 2])?;
    let output = float(&vec![-1.0; expected.len()])?.f_view([-1, 2])?;
    group.all_to_all_single(&output, &input, &from, &to)?;
    assert_eq!(numbers(&output)?, expected);

    let equal = float(
        &(0..world)
            .map(|peer| real(10 * rank + peer))
            .collect::<Vec<_>>(),
    )?;
    let output = float(&vec![-1.0; world])?;
    group
        .all_to_all_single_async(&output, &equal, &[], &[])?
        .wait()?;
    let expected: Vec<f64> = (0..world).map(|peer| real(10 * peer + rank)).collect();
    assert_eq!(numbers(&output)?, expected);
    Ok(())
}

fn a_list_has_one_tensor_for_each_rank(group: &ProcessGroup) -> Outcome {
    let one = float(&[1.0])?;
    let many = empty_places(group.size() + 1, 1)?;
    let right = empty_places(group.size(), 1)?;
    let own = group.rank();
    for error in [
        group.all_gather(&many, &one).unwrap_err(),
        group
            .reduce_scatter(&one, &many, ReduceOp::Sum)
            .unwrap_err(),
        group.gather(&many, &one, own).unwrap_err(),
        group.scatter(&one, &many, own).unwrap_err(),
        group.all_to_all(&many, &right).unwrap_err(),
        group.all_to_all(&right, &many).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(matches!(error, Error::Argument { .. }), "{text}");
        let expected = format!(
            "one tensor for each of {} ranks, found {}",
            group.size(),
            many.len()
        );
        assert!(text.contains(&expected), "{text}");
    }
    let error = group.all_to_all_single(&one, &one, &[1], &[]).unwrap_err();
    assert!(error.to_string().contains("found 1 and 0"), "{error}");
    Ok(())
}

fn many_tensors_are_broadcast_in_small_buffers(group: &ProcessGroup) -> Outcome {
    let root = group.size() - 1;
    let kinds = [
        Kind::Float,
        Kind::Int64,
        Kind::Double,
        Kind::Float,
        Kind::BFloat16,
    ];
    let tensors = (1usize..)
        .zip(kinds)
        .map(|(index, kind)| {
            let values = vec![real(10 * index + group.rank()); 7 * index];
            Ok(float(&values)?.f_view([7, -1])?.f_to_kind(kind)?)
        })
        .collect::<Result<Vec<_>>>()?;
    group.broadcast_coalesced(&tensors, 64, root)?;
    for (index, tensor) in (1usize..).zip(&tensors) {
        assert_eq!(numbers(tensor)?, vec![real(10 * index + root); 7 * index]);
    }
    Ok(())
}

fn bytes_of_any_length_are_gathered(group: &ProcessGroup) -> Outcome {
    // Rank 0 has nothing, rank r has 300 r times its number.
    let of = |rank: usize| vec![u8::try_from(rank).unwrap_or(u8::MAX); 300 * rank];
    let all = group.all_gather_bytes(&of(group.rank()))?;
    assert_eq!(all, (0..group.size()).map(of).collect::<Vec<_>>());
    assert_eq!(
        group.all_gather_bytes(b"")?,
        vec![Vec::<u8>::new(); group.size()]
    );
    Ok(())
}

fn bytes_of_the_root_are_broadcast(group: &ProcessGroup) -> Outcome {
    let root = group.size() - 1;
    let own = [u8::try_from(group.rank())?, 0, 255];
    assert_eq!(
        group.broadcast_bytes(&own, root)?,
        [u8::try_from(root)?, 0, 255]
    );
    // What the others pass is not used, whatever its length.
    let own: &[u8] = if group.rank() == root { b"" } else { b"other" };
    assert_eq!(group.broadcast_bytes(own, root)?, b"");
    Ok(())
}

fn a_condition_on_one_rank_is_known_to_all(group: &ProcessGroup) -> Outcome {
    assert!(group.any(group.rank() == group.size() - 1)?);
    assert!(!group.any(false)?);
    assert!(group.any(true)?);
    Ok(())
}
