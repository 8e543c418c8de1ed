//! What rank 0 reads for all ranks, and what each of them gets.

use accelerate::data::{
    BatchSource, DataLoader, FnIterableDataset, IterableDataLoader, PreparedLoader,
};
use accelerate::tch::Tensor;
use accelerate::{Accelerator, DataLoaderConfiguration};

use super::loading::dealt;
use crate::failure::Failure;
use crate::probe::{Probe, whole_numbers};
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("samples with an index", indexed),
    Step::new("a stream", stream),
    Step::new("values for metrics", metrics),
    Step::new("going on where a loop was left", resumed),
];

/// The numbers of samples with a tail that fills no step, with none, and too few for all ranks.
const SAMPLES: [usize; 4] = [23, 24, 5, 1];
const BATCH: usize = 4;

fn dispatching(probe: &Probe<'_>) -> Result<Accelerator, Failure> {
    let config = DataLoaderConfiguration {
        dispatch_batches: Some(true),
        ..DataLoaderConfiguration::default()
    };
    Ok(probe.builder().dataloader_config(config).build()?)
}

fn loader_of(
    accelerator: &Accelerator,
    samples: usize,
) -> Result<PreparedLoader<impl BatchSource<Batch = Tensor> + use<>>, Failure> {
    let numbers: Vec<i64> = (0..).take(samples).collect();
    let loader = DataLoader::builder(numbers).batch_size(BATCH).build()?;
    Ok(accelerator.prepare(loader)?)
}

/// By definition: a step is a batch for each rank, one after the other; the last one goes on
/// from the first samples of the first until all ranks get equally many.
fn definition(samples: usize, batch: usize, world: usize) -> Vec<Vec<Vec<i64>>> {
    let all: Vec<i64> = (0..).take(samples).collect();
    let mut dealt = vec![Vec::new(); world];
    for step in all.chunks(batch * world) {
        let filling = all.iter().take(world.min(batch * world)).cycle();
        let length = step.len().next_multiple_of(world);
        let filled: Vec<i64> = step.iter().chain(filling).take(length).copied().collect();
        for (own, part) in dealt.iter_mut().zip(filled.chunks(length / world)) {
            own.push(part.to_vec());
        }
    }
    dealt
}

fn indexed(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = dispatching(probe)?;
    for samples in SAMPLES {
        let found = dealt(probe, &loader_of(&accelerator, samples)?)?;
        let expected = definition(samples, BATCH, probe.world());
        let what = format!("batches of {samples} samples by rank");
        probe.equal(what, expected, found);
    }
    Ok(())
}

fn stream(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = dispatching(probe)?;
    for samples in SAMPLES {
        let numbers = FnIterableDataset::new(move || (0i64..).take(samples).map(Ok));
        let loader = IterableDataLoader::builder(numbers)
            .batch_size(BATCH)
            .build()?;
        let found = dealt(probe, &accelerator.prepare(loader)?)?;
        let expected = definition(samples, BATCH, probe.world());
        let what = format!("batches of a stream of {samples} by rank");
        probe.equal(what, expected, found);
    }
    Ok(())
}

/// Over an epoch every sample comes out once, in order, whatever filled the last step up.
fn metrics(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = dispatching(probe)?;
    for samples in SAMPLES {
        let mut found = Vec::new();
        for batch in &loader_of(&accelerator, samples)? {
            found.extend(whole_numbers(&accelerator.gather_for_metrics(&batch?)?)?);
        }
        let expected: Vec<i64> = (0..).take(samples).collect();
        probe.equal(format!("{samples} samples for metrics"), expected, found);
    }
    Ok(())
}

fn resumed(probe: &mut Probe<'_>) -> Result<(), Failure> {
    let accelerator = dispatching(probe)?;
    let samples = 3 * BATCH * probe.world() + 1;
    let begun = loader_of(&accelerator, samples)?;
    for batch in begun.iter().take(2) {
        drop(batch?);
    }
    let other = loader_of(&accelerator, samples)?;
    other.load_state_dict(&begun.state_dict()?)?;
    let found = dealt(probe, &other)?;
    let expected: Vec<_> = definition(samples, BATCH, probe.world())
        .into_iter()
        .map(|batches| batches.into_iter().skip(2).collect::<Vec<_>>())
        .collect();
    probe.equal("batches behind the second step by rank", expected, found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_fills_the_last_step_up_with_first_samples() {
        assert_eq!(
            definition(9, 2, 2),
            [
                vec![vec![0, 1], vec![4, 5], vec![8]],
                vec![vec![2, 3], vec![6, 7], vec![0]],
            ]
        );
        assert_eq!(definition(1, 4, 3), [[[0]], [[0]], [[0]]]);
    }
}
