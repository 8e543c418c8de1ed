//! Which samples a prepared loader gives to which rank.

use accelerate::data::{BatchSource, DataLoader, PreparedDataLoader, PreparedLoader};
use accelerate::tch::Tensor;
use accelerate::{Accelerator, DataLoaderConfiguration};

use crate::failure::Failure;
use crate::probe::{Probe, whole_numbers};
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("even batches", even),
    Step::new("uneven batches", uneven),
    Step::new("split batches", split),
    Step::new("shuffled", shuffled),
    Step::new("worker threads", worker_threads),
    Step::new("values for metrics", metrics),
    Step::new("end of the loop", end_of_loop),
];

/// A prepared loader of whole numbers.
pub(super) type Loader = PreparedDataLoader<Vec<i64>>;

/// What is dealt out, before it is prepared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deal {
    pub(super) samples: usize,
    pub(super) batch: usize,
    pub(super) shuffle: bool,
    pub(super) workers: usize,
}

impl Deal {
    /// The numbers from 0 on, in order.
    pub(super) const fn plain(samples: usize, batch: usize) -> Self {
        Self {
            samples,
            batch,
            shuffle: false,
            workers: 0,
        }
    }

    /// The prepared loader.
    pub(super) fn loader(&self, accelerator: &Accelerator) -> Result<Loader, Failure> {
        let samples: Vec<i64> = (0..).take(self.samples).collect();
        let loader = DataLoader::builder(samples)
            .batch_size(self.batch)
            .shuffle(self.shuffle)
            .num_workers(self.workers)
            .build()?;
        Ok(accelerator.prepare(loader)?)
    }
}

/// The numbers of samples with a tail that fills no batch, with none, and too few for all ranks.
const SAMPLES: [usize; 4] = [23, 24, 5, 1];
const BATCH: usize = 4;

/// The batches of every rank in one epoch.
pub(super) fn dealt<S: BatchSource<Batch = Tensor>>(
    probe: &mut Probe<'_>,
    loader: &PreparedLoader<S>,
) -> Result<Vec<Vec<Vec<i64>>>, Failure> {
    let mut own = Vec::new();
    for batch in loader {
        let batch = batch?;
        probe.equal("device of a batch", probe.device(), batch.device());
        let numbers = whole_numbers(&batch)?;
        own.push(i64::try_from(numbers.len()).unwrap_or(i64::MAX));
        own.extend(numbers);
    }
    Ok(probe
        .of_all_ranks(&own)?
        .iter()
        .map(|list| batches(list))
        .collect())
}

/// Undoes the writing of batches one after the other, each after its length.
fn batches(mut list: &[i64]) -> Vec<Vec<i64>> {
    let mut batches = Vec::new();
    while let Some((&length, rest)) = list.split_first() {
        let length = usize::try_from(length).unwrap_or(0).min(rest.len());
        let (batch, rest) = rest.split_at(length);
        batches.push(batch.to_vec());
        list = rest;
    }
    batches
}

/// By definition: batch `i` goes to rank `i` modulo the number of ranks. Even batches go on from the
/// first sample until all ranks have equally many full ones.
fn definition(samples: usize, batch: usize, world: usize, even: bool) -> Vec<Vec<Vec<i64>>> {
    let length = match even {
        true => samples.next_multiple_of(batch * world),
        false => samples,
    };
    let stream: Vec<i64> = (0..).take(samples).cycle().take(length).collect();
    let all: Vec<Vec<i64>> = stream.chunks(batch).map(<[i64]>::to_vec).collect();
    (0..world)
        .map(|rank| all.iter().skip(rank).step_by(world).cloned().collect())
        .collect()
}

fn configured(
    probe: &Probe<'_>,
    even_batches: bool,
    split_batches: bool,
) -> Result<Accelerator, Failure> {
    let config = DataLoaderConfiguration {
        even_batches,
        split_batches,
        ..DataLoaderConfiguration::default()
    };
    Ok(probe.builder().dataloader_config(config).build()?)
}

fn even(probe: &mut Probe<'_>) -> Result<(), Failure> {
    // One process has all samples as they are: nothing needs to be evened out.
    let is_even = probe.world() > 1;
    follows_definition(probe, true, is_even)
}

fn uneven(probe: &mut Probe<'_>) -> Result<(), Failure> {
    follows_definition(probe, false, false)
}

fn follows_definition(
    probe: &mut Probe<'_>,
    even_batches: bool,
    is_filled: bool,
) -> Result<(), Failure> {
    let accelerator = configured(probe, even_batches, false)?;
    for samples in SAMPLES {
        let loader = Deal::plain(samples, BATCH).loader(&accelerator)?;
        let found = dealt(probe, &loader)?;
        let expected = definition(samples, BATCH, probe.world(), is_filled);
        probe.equal(
            format!("batches of {samples} samples by rank"),
            expected,
            found,
        );
    }
    Ok(())
}

/// The loader's batch is that of all ranks together.
fn split(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = configured(probe, true, true)?;
    let world = probe.world();
    for samples in SAMPLES {
        let loader = Deal::plain(samples, BATCH * world).loader(&accelerator)?;
        let found = dealt(probe, &loader)?;
        let expected = definition(samples, BATCH, world, world > 1);
        probe.equal(
            format!("batches of {samples} samples by rank"),
            expected,
            found,
        );
    }
    Ok(())
}

/// In whatever order: disjoint parts that are together the whole.
fn shuffled(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = configured(probe, false, false)?;
    for samples in SAMPLES {
        let deal = Deal {
            shuffle: true,
            ..Deal::plain(samples, BATCH)
        };
        let loader = deal.loader(&accelerator)?;
        let mut found: Vec<i64> = dealt(probe, &loader)?
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        found.sort_unstable();
        let expected: Vec<i64> = (0..).take(samples).collect();
        probe.equal(format!("{samples} samples of all ranks"), expected, found);
    }
    Ok(())
}

fn worker_threads(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = configured(probe, false, false)?;
    let deal = Deal {
        workers: 2,
        ..Deal::plain(23, BATCH)
    };
    let found = dealt(probe, &deal.loader(&accelerator)?)?;
    let expected = definition(23, BATCH, probe.world(), false);
    probe.equal("batches of two worker threads by rank", expected, found);
    Ok(())
}

/// Over an epoch every sample comes out once, in order, whatever filled the last step up.
fn metrics(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = configured(probe, true, false)?;
    for samples in SAMPLES {
        let loader = Deal::plain(samples, BATCH).loader(&accelerator)?;
        let mut found = Vec::new();
        for batch in &loader {
            found.extend(whole_numbers(&accelerator.gather_for_metrics(&batch?)?)?);
        }
        let expected: Vec<i64> = (0..).take(samples).collect();
        probe.equal(format!("{samples} samples for metrics"), expected, found);
    }
    Ok(())
}

/// The loop knows its last batch while it works on it.
fn end_of_loop(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = configured(probe, true, false)?;
    let loader = Deal::plain(23, BATCH).loader(&accelerator)?;
    let mut found = Vec::new();
    for batch in &loader {
        drop(batch?);
        found.push(accelerator.gradient_state().end_of_dataloader());
    }
    let mut expected = vec![false; loader.len()];
    if let Some(last) = expected.last_mut() {
        *last = true;
    }
    probe.equal("end of the loop by batch", expected, found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_deals_every_sample() {
        let uneven = definition(5, 2, 2, false);
        assert_eq!(uneven, [vec![vec![0, 1], vec![4]], vec![vec![2, 3]]]);
        let even = definition(5, 2, 2, true);
        assert_eq!(
            even,
            [vec![vec![0, 1], vec![4, 0]], vec![vec![2, 3], vec![1, 2]]]
        );
    }

    #[test]
    fn batches_are_read_as_they_were_written() {
        assert_eq!(batches(&[2, 7, 8, 0, 1, 9]), [vec![7, 8], vec![], vec![9]]);
    }
}
