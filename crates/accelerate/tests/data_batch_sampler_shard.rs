//! The batches that each rank gets, against the original's and against what must hold for any.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;

use accelerate::data::{
    BatchIndices, BatchSampler, BatchSamplerShard, IndexBatches, SequentialSampler, ShardLayout,
};
use accelerate::{Error, Result};
use proptest::prelude::*;

#[derive(serde::Deserialize)]
struct Case {
    n: usize,
    batch_size: NonZeroUsize,
    num_processes: NonZeroUsize,
    split_batches: bool,
    even_batches: bool,
    drop_last: bool,
    batches: Option<Vec<Part>>,
    error: Option<String>,
}

/// Batches of given sizes over `0..`.
#[derive(Clone)]
struct OfSizes(Vec<usize>);

impl IndexBatches for OfSizes {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn batch_size(&self) -> Option<NonZeroUsize> {
        None
    }

    fn last_batch_len(&self) -> Option<usize> {
        None
    }

    fn epoch(&self) -> BatchIndices<'_> {
        let starts = self.0.iter().scan(0, |start, &len| {
            *start += len;
            Some((*start - len..*start).collect())
        });
        Box::new(starts.map(Ok))
    }
}

/// The batches of one rank.
type Part = Vec<Vec<usize>>;

fn all(batches: &impl IndexBatches) -> Result<Part> {
    batches.epoch().collect()
}

fn layout(ranks: usize, rank: usize, split_batches: bool, even_batches: bool) -> ShardLayout {
    let num_processes = NonZeroUsize::new(ranks).unwrap_or(NonZeroUsize::MIN);
    ShardLayout {
        num_processes,
        process_index: rank,
        split_batches,
        even_batches,
    }
}

fn shard(case: &Case, rank: usize) -> Result<BatchSamplerShard<BatchSampler>> {
    let order = SequentialSampler::new(case.n);
    BatchSamplerShard::new(
        BatchSampler::new(order, case.batch_size, case.drop_last),
        layout(
            case.num_processes.get(),
            rank,
            case.split_batches,
            case.even_batches,
        ),
    )
}

#[test]
fn every_recorded_case_is_met() {
    let text = include_str!("../../../tests/golden/batch_sampler_shard.json");
    let cases: Vec<Case> = serde_json::from_str(text).unwrap();
    let (mut met, mut refused) = (0, 0);
    for (number, case) in cases.iter().enumerate() {
        if case.error.is_some() {
            let found = shard(case, 0);
            assert!(
                matches!(found, Err(Error::Argument { .. })),
                "case {number}: {found:?}"
            );
            refused += 1;
            continue;
        }
        for (rank, expected) in case.batches.iter().flatten().enumerate() {
            let shard = shard(case, rank).unwrap();
            let found = all(&shard).unwrap();
            assert_eq!(&found, expected, "case {number}, rank {rank}");
            assert_eq!(shard.len(), found.len(), "case {number}, rank {rank}");
            met += 1;
        }
    }
    assert!(
        met > 400 && refused + met > cases.len(),
        "met {met}, refused {refused}"
    );
}

#[test]
fn batches_of_varying_size_are_dealt_out_whole() {
    let five = [3, 2, 4, 3, 2];
    let cases = [
        (five.to_vec(), 2, false, vec![vec![0, 2, 4], vec![1, 3]]),
        (five.to_vec(), 2, true, vec![vec![0, 2, 4], vec![1, 3, 0]]),
        (
            (1..8).collect(),
            3,
            true,
            vec![vec![0, 3, 6], vec![1, 4, 0], vec![2, 5, 1]],
        ),
    ];
    for (sizes, ranks, even, expected) in cases {
        let whole = all(&OfSizes(sizes.clone())).unwrap();
        for (rank, expected) in expected.iter().enumerate() {
            let layout = layout(ranks, rank, false, even);
            let shard = BatchSamplerShard::new(OfSizes(sizes.clone()), layout).unwrap();
            let found = all(&shard).unwrap();
            let expected: Vec<_> = expected.iter().map(|&batch| whole[batch].clone()).collect();
            assert_eq!(found, expected, "rank {rank} of {ranks}");
            assert_eq!(shard.len(), found.len());
        }
    }
}

#[test]
fn what_cannot_be_split_is_refused() {
    let size = NonZeroUsize::new(3).unwrap();
    let batches = || BatchSampler::new(SequentialSampler::new(9), size, false);
    let message = BatchSamplerShard::new(batches(), layout(2, 0, true, true)).unwrap_err();
    assert!(message.to_string().contains("a multiple of 2"), "{message}");
    assert!(BatchSamplerShard::new(OfSizes(vec![2, 2]), layout(2, 0, true, true)).is_err());
    assert!(BatchSamplerShard::new(batches(), layout(2, 2, false, true)).is_err());
}

fn parts(
    samples: usize,
    size: NonZeroUsize,
    ranks: usize,
    split: bool,
    even: bool,
    drop_last: bool,
) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for rank in 0..ranks {
        let batches = BatchSampler::new(SequentialSampler::new(samples), size, drop_last);
        let shard = BatchSamplerShard::new(batches, layout(ranks, rank, split, even))?;
        let part = all(&shard)?;
        assert_eq!(shard.len(), part.len(), "length on rank {rank}");
        let last = part.last().map_or(0, Vec::len);
        assert_eq!(
            shard.last_batch_len(),
            Some(last),
            "last batch on rank {rank}"
        );
        parts.push(part);
    }
    Ok(parts)
}

/// What a loop over all ranks sees: step by step, rank by rank.
fn in_step_order(parts: &[Part]) -> Vec<Vec<usize>> {
    let steps = parts.iter().map(Vec::len).max().unwrap_or_default();
    (0..steps)
        .map(|step| {
            parts
                .iter()
                .filter_map(|part| part.get(step))
                .flatten()
                .copied()
                .collect()
        })
        .collect()
}

proptest! {
    #[test]
    fn without_filling_up_every_sample_comes_once_and_in_order(
        samples in 0usize..60,
        part in 1usize..6,
        ranks in 1usize..5,
        split: bool,
    ) {
        let size = if split { part * ranks } else { part };
        let parts = parts(samples, NonZeroUsize::new(size).unwrap(), ranks, split, false, false);
        let seen = in_step_order(&parts.unwrap()).concat();
        prop_assert!(seen.into_iter().eq(0..samples));
    }

    #[test]
    fn filled_up_ranks_take_equal_steps_and_trimming_undoes_it(
        samples in 1usize..60,
        part in 1usize..6,
        ranks in 1usize..5,
        split: bool,
    ) {
        let size = if split { part * ranks } else { part };
        let parts = parts(samples, NonZeroUsize::new(size).unwrap(), ranks, split, true, false);
        let parts = parts.unwrap();
        prop_assert!(parts.iter().all(|own| own.len() == parts[0].len()));
        prop_assert!(parts.iter().flatten().all(|batch| batch.len() == part));
        let mut steps = in_step_order(&parts);
        let remainder = samples % (part * ranks);
        if let Some(last) = steps.last_mut().filter(|_| remainder > 0) {
            last.truncate(remainder);
        }
        prop_assert!(steps.concat().into_iter().eq(0..samples));
    }

    #[test]
    fn with_drop_last_ranks_share_whole_rounds_without_repetition(
        samples in 0usize..60,
        part in 1usize..6,
        ranks in 1usize..5,
        split: bool,
        even: bool,
    ) {
        let size = if split { part * ranks } else { part };
        let parts = parts(samples, NonZeroUsize::new(size).unwrap(), ranks, split, even, true);
        let seen = in_step_order(&parts.unwrap()).concat();
        let kept = samples - samples % (part * ranks);
        prop_assert!(seen.into_iter().eq(0..kept));
    }

    #[test]
    fn lengths_are_true_for_varying_sizes(
        sizes in proptest::collection::vec(1usize..6, 0..20),
        ranks in 1usize..5,
        even: bool,
    ) {
        for rank in 0..ranks {
            let layout = layout(ranks, rank, false, even);
            let shard = BatchSamplerShard::new(OfSizes(sizes.clone()), layout).unwrap();
            prop_assert_eq!(shard.len(), all(&shard).unwrap().len());
        }
    }
}
