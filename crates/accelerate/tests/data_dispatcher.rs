//! Loaders that rank 0 reads and deals out.
#![forbid(unsafe_code)]

use accelerate::data::{
    BatchSource, DataLoader, FnDataset, FnIterableDataset, IterableDataLoader, IterableDataset,
    PreparedLoader,
};
use accelerate::tree::Tree;
use accelerate::{Accelerator, DataLoaderConfiguration, Error, Result};
use accelerate_testkit::{Rank, ranks};
use tch::{Kind, Tensor};

#[derive(serde::Deserialize)]
struct Recording {
    cases: Vec<Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    world_size: usize,
    kind: String,
    samples: i64,
    batch_size: usize,
    drop_last: bool,
    split_batches: bool,
    dispatch_batches: Option<bool>,
    length: Option<usize>,
    ranks: Vec<Vec<Step>>,
}

#[derive(serde::Deserialize)]
struct Step {
    batch: Vec<i64>,
    end: bool,
    remainder: i64,
    gathered: Vec<i64>,
}

fn accelerator(dispatch: Option<bool>, split: bool) -> Result<Accelerator> {
    Accelerator::builder()
        .cpu(true)
        .dataloader_config(DataLoaderConfiguration {
            dispatch_batches: dispatch,
            split_batches: split,
            ..Default::default()
        })
        .build()
}

fn values(batch: &Tensor) -> Result<Vec<i64>> {
    Ok(Vec::try_from(batch)?)
}

fn all(batches: impl IntoIterator<Item = Result<Tensor>>) -> Result<Vec<Vec<i64>>> {
    batches.into_iter().map(|batch| values(&batch?)).collect()
}

fn numbers(len: i64) -> Vec<i64> {
    (0..len).collect()
}

fn stream(len: i64) -> impl IterableDataset<Item = i64> + 'static {
    FnIterableDataset::new(move || (0..len).map(Ok))
}

#[test]
fn every_recorded_step_is_taken() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let text = include_str!("../../../tests/parity/fixtures/dispatched_loader.json");
        let recording: Recording = serde_json::from_str(text).unwrap();
        let own = |case: &&Case| case.world_size == rank.world();
        for case in recording.cases.iter().filter(own) {
            let accelerator = accelerator(case.dispatch_batches, case.split_batches)?;
            if case.kind == "map" {
                let loader = DataLoader::builder(numbers(case.samples))
                    .batch_size(case.batch_size)
                    .drop_last(case.drop_last)
                    .build()?;
                let loader = accelerator.prepare(loader)?;
                assert_eq!(Some(loader.len()), case.length);
                compare(case, &accelerator, &loader, rank.index())?;
            } else {
                let loader = IterableDataLoader::builder(stream(case.samples))
                    .batch_size(case.batch_size)
                    .drop_last(case.drop_last)
                    .build()?;
                let loader = accelerator.prepare(loader)?;
                assert_eq!(
                    loader.as_shard().is_some(),
                    case.dispatch_batches == Some(false)
                );
                compare(case, &accelerator, &loader, rank.index())?;
            }
        }
        Ok(())
    });
}

fn compare<S: BatchSource<Batch = Tensor>>(
    case: &Case,
    accelerator: &Accelerator,
    loader: &PreparedLoader<S>,
    rank: usize,
) -> Result<()> {
    let text = format!(
        "{} of {}, batches of {}, drop last {}, split {}, dispatch {:?}",
        case.kind,
        case.samples,
        case.batch_size,
        case.drop_last,
        case.split_batches,
        case.dispatch_batches
    );
    let state = accelerator.gradient_state();
    let mut steps = case.ranks[rank].iter();
    for batch in loader {
        let batch = batch?;
        let Some(step) = steps.next() else {
            return Err(Error::data(format!("too many steps: {text}")));
        };
        assert_eq!(values(&batch)?, step.batch, "{text}");
        assert_eq!(state.end_of_dataloader(), step.end, "{text}");
        let gathered: Tensor = accelerator.gather_for_metrics(&batch)?;
        let gathered = values(&gathered)?;
        if case.dispatch_batches == Some(false) {
            // The original trims nothing here; ours what is repeated.
            assert!(step.gathered.starts_with(&gathered), "{text}");
        } else {
            let remainder = state.remainder().and_then(|n| i64::try_from(n).ok());
            assert_eq!(remainder.unwrap_or(-1), step.remainder, "{text}");
            assert_eq!(gathered, step.gathered, "{text}");
        }
    }
    assert!(steps.next().is_none(), "too few steps: {text}");
    Ok(())
}

#[test]
fn metrics_see_each_sample_once_and_in_order() {
    ranks(&[1, 2, 3], |_rank: Rank| -> Result<()> {
        for split in [false, true] {
            let accelerator = accelerator(Some(true), split)?;
            for len in 1..14 {
                for size in if split { vec![6] } else { vec![1, 2, 5] } {
                    let mapped = DataLoader::builder(numbers(len)).batch_size(size).build()?;
                    let streamed = IterableDataLoader::builder(stream(len))
                        .batch_size(size)
                        .num_workers(1)
                        .build()?;
                    let (mapped, streamed) = accelerator.prepare((mapped, streamed))?;
                    let found = (
                        gathered(&accelerator, &mapped)?,
                        gathered(&accelerator, &streamed)?,
                    );
                    let expected = numbers(len);
                    assert_eq!(found, (expected.clone(), expected), "{len} by {size}");
                }
            }
        }
        Ok(())
    });
}

fn gathered<S: BatchSource<Batch = Tensor>>(
    accelerator: &Accelerator,
    loader: &PreparedLoader<S>,
) -> Result<Vec<i64>> {
    let mut found = Vec::new();
    for batch in loader {
        let all: Tensor = accelerator.gather_for_metrics(&batch?)?;
        found.extend(values(&all)?);
    }
    Ok(found)
}

#[test]
fn fewer_samples_than_ranks_are_repeated() {
    ranks(&[3], |_rank: Rank| -> Result<()> {
        let accelerator = accelerator(Some(true), false)?;
        let loader = accelerator.prepare(DataLoader::builder(numbers(1)).build()?)?;
        assert_eq!(all(&loader)?, [[0]]);
        Ok(())
    });
}

#[derive(Debug, Tree)]
struct Batch {
    ids: Tensor,
    half: Tensor,
    names: Vec<String>,
    weight: Option<f32>,
}

#[test]
fn texts_and_plain_values_travel_with_the_tensors() {
    ranks(&[1, 2, 3], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(Some(true), false)?;
        let loader = DataLoader::builder(numbers(7))
            .batch_size(2)
            .collate(|items: Vec<i64>| {
                let ids = Tensor::from_slice(&items);
                Ok(Batch {
                    half: ids.f_to_kind(Kind::BFloat16)?.f_unsqueeze(1)?,
                    names: items.iter().map(|n| format!("sample {n}")).collect(),
                    ids,
                    weight: Some(0.1),
                })
            })
            .build()?;
        let loader = accelerator.prepare(loader)?;
        let mut found = Vec::new();
        for batch in &loader {
            let batch = batch?;
            let ids = values(&batch.ids)?;
            let names: Vec<_> = ids.iter().map(|n| format!("sample {n}")).collect();
            assert_eq!((batch.names, batch.weight), (names, Some(0.1)));
            assert_eq!(batch.half.size(), [ids.len() as i64, 1]);
            assert_eq!(batch.half.kind(), Kind::BFloat16);
            assert_eq!(
                values(&batch.half.squeeze().reshape([-1]).to_kind(Kind::Int64))?,
                ids
            );
            found.extend(ids);
        }
        let expected: &[&[i64]] = match rank.world() {
            1 => &[&[0, 1, 2, 3, 4, 5, 6]],
            2 => &[&[0, 1, 4, 5], &[2, 3, 6, 0]],
            _ => &[&[0, 1, 6], &[2, 3, 0], &[4, 5, 1]],
        };
        assert_eq!(found, expected[rank.index()]);
        Ok(())
    });
}

/// Sample `n` has `n + 1` numbers; a batch is as wide as its widest.
fn pad(items: &[i64]) -> Result<Tensor> {
    let width = items.iter().max().map_or(1, |widest| widest + 1);
    Ok(Tensor::f_from_slice(items)?
        .f_unsqueeze(1)?
        .f_expand([-1, width], true)?)
}

#[test]
fn batches_of_different_width_are_refused_with_advice_or_split() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let padded = |size| DataLoader::builder(numbers(6)).batch_size(size);
        let joined = accelerator(Some(true), false)?;
        let loader = joined.prepare(padded(2).collate(|items: Vec<i64>| pad(&items)).build()?)?;
        let error = loader
            .iter()
            .next()
            .and_then(Result::err)
            .map(|e| e.to_string());
        assert!(
            error
                .as_ref()
                .is_some_and(|text| text.contains("split_batches: true")),
            "{error:?}"
        );
        let split = accelerator(Some(true), true)?;
        let loader = split.prepare(
            padded(rank.world() * 2)
                .collate(|items: Vec<i64>| pad(&items))
                .build()?,
        )?;
        let shapes = loader.iter().map(|batch| Ok(batch?.size()));
        let expected = match rank.world() {
            // The last two samples are filled up to four, and divided by two.
            2 => vec![vec![2, 4], vec![1, 6]],
            _ => vec![vec![2, 6]],
        };
        assert_eq!(shapes.collect::<Result<Vec<_>>>()?, expected);
        Ok(())
    });
}

#[test]
fn an_error_of_rank_0_ends_the_loop_on_all_ranks_and_the_next_works() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(Some(true), false)?;
        let first_time = std::sync::atomic::AtomicBool::new(true);
        let data = FnDataset::new(12, move |index| {
            let broken =
                index == 10 && first_time.swap(false, std::sync::atomic::Ordering::Relaxed);
            match broken {
                true => Err(Error::data("the disk is gone")),
                false => Ok(index as i64),
            }
        });
        let loader = accelerator.prepare(DataLoader::builder(data).build()?)?;
        let found: Vec<_> = loader.iter().collect();
        let error = found.last().and_then(|last| last.as_ref().err());
        assert!(found.iter().rev().skip(1).all(Result::is_ok));
        match error {
            Some(Error::Sample { index: 10, .. }) => assert_eq!(rank.index(), 0),
            Some(Error::ReadElsewhere { rank: 0, message }) => {
                assert!(
                    rank.index() > 0 && message.contains("the disk is gone"),
                    "{message}"
                );
            }
            other => panic!("{other:?}"),
        }
        assert!(!accelerator.gradient_state().progress().in_dataloader());
        assert_eq!(gathered(&accelerator, &loader)?, numbers(12));
        assert_eq!(loader.iteration(), 1);
        Ok(())
    });
}

#[test]
fn a_rank_that_left_its_loop_is_told() {
    ranks(&[2], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(Some(true), false)?;
        let loader = accelerator.prepare(DataLoader::builder(numbers(8)).build()?)?;
        if rank.index() == 0 {
            // The other rank ends, and with it this loop.
            let _steps = loader.iter().take_while(Result::is_ok).count();
            return Ok(());
        }
        assert!(loader.iter().next().is_some_and(|batch| batch.is_ok()));
        let again = loader.iter().next();
        assert!(
            matches!(
                again,
                Some(Err(Error::OutOfStep {
                    sent_loop: 0,
                    sent_step: 1,
                    own_loop: 1,
                    step: 0
                }))
            ),
            "{again:?}"
        );
        Ok(())
    });
}

#[test]
fn whole_steps_are_skipped() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        let accelerator = accelerator(Some(true), false)?;
        let mapped = DataLoader::builder(numbers(11)).batch_size(2).build()?;
        let streamed = IterableDataLoader::builder(stream(11))
            .batch_size(2)
            .build()?;
        let (mapped, streamed) = accelerator.prepare((mapped, streamed))?;
        let expected: &[&[&[i64]]] = match rank.world() {
            1 => &[&[&[2, 3], &[4, 5], &[6, 7], &[8, 9], &[10]]],
            _ => &[&[&[4, 5], &[8, 9]], &[&[6, 7], &[10, 0]]],
        };
        assert_eq!(all(mapped.skip_first_batches(1))?, expected[rank.index()]);
        assert_eq!(all(streamed.skip_first_batches(1))?, expected[rank.index()]);
        assert_eq!(all(mapped.skip_first_batches(9))?, Vec::<Vec<i64>>::new());
        let mut trimmed = Vec::new();
        for batch in mapped.skip_first_batches(1) {
            let all: Tensor = accelerator.gather_for_metrics(&batch?)?;
            trimmed.extend(values(&all)?);
        }
        assert_eq!(trimmed, numbers(11)[2 * rank.world()..]);
        Ok(())
    });
}

#[test]
fn the_order_is_that_of_rank_0_and_of_the_epoch() {
    ranks(&[1, 2, 3], |_rank: Rank| -> Result<()> {
        let accelerator = Accelerator::builder()
            .cpu(true)
            .dataloader_config(DataLoaderConfiguration {
                dispatch_batches: Some(true),
                use_seedable_sampler: true,
                data_seed: Some(42),
                ..Default::default()
            })
            .build()?;
        let loader = DataLoader::builder(numbers(10)).shuffle(true).build()?;
        let loader = accelerator.prepare(loader)?;
        assert_eq!(
            gathered(&accelerator, &loader)?,
            [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]
        );
        assert_eq!(
            gathered(&accelerator, &loader)?,
            [8, 4, 9, 0, 5, 1, 6, 7, 2, 3]
        );
        loader.set_epoch(0);
        assert_eq!(
            gathered(&accelerator, &loader)?,
            [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]
        );
        Ok(())
    });
}

#[test]
fn every_rank_draws_what_starting_an_epoch_draws() {
    ranks(&[2, 3], |_rank: Rank| -> Result<()> {
        let accelerator = accelerator(Some(true), false)?;
        tch::manual_seed(5);
        let loader = accelerator.prepare(DataLoader::builder(numbers(4)).build()?)?;
        all(&loader)?;
        let next = Tensor::f_rand([1], (Kind::Float, accelerator.device()))?;
        let drawn: Tensor = accelerator.gather(&next)?;
        let drawn = Vec::<f32>::try_from(&drawn)?;
        assert!(drawn.windows(2).all(|pair| pair[0] == pair[1]), "{drawn:?}");
        Ok(())
    });
}

#[test]
fn nothing_to_deal_out_is_an_error_on_all_ranks() {
    ranks(&[1, 2], |_rank: Rank| -> Result<()> {
        let accelerator = accelerator(None, false)?;
        let empty = accelerator.prepare(IterableDataLoader::builder(stream(0)).build()?)?;
        assert!(empty.iter().next().is_some_and(|batch| batch.is_err()));
        let short = IterableDataLoader::builder(stream(1))
            .batch_size(2)
            .drop_last(true);
        let short = accelerator.prepare(short.build()?)?;
        assert!(short.iter().next().is_none());
        accelerator.wait_for_everyone()
    });
}
