//! One order on all ranks, although their random numbers differ.

use accelerate::tch;
use accelerate::{Accelerator, DataLoaderConfiguration};

use super::loading::{Deal, dealt};
use crate::failure::Failure;
use crate::probe::Probe;
use crate::stage::Step;

pub(super) const STEPS: &[Step] = &[
    Step::new("shuffled order", shuffled),
    Step::new("seeded order", seeded),
];

/// Enough that two orders are never equal by chance.
const SAMPLES: usize = 61;
const DEAL: Deal = Deal {
    samples: SAMPLES,
    batch: 3,
    shuffle: true,
    workers: 0,
};

/// Every rank starts from a seed of its own; rank 0's order holds for all, and it is another one in
/// every epoch.
fn shuffled(probe: &mut Probe<'_>) -> Result<(), Failure> {
    tch::manual_seed(1000 + i64::try_from(probe.rank()).unwrap_or(0));
    let accelerator = uneven(probe, false, None)?;
    let loader = DEAL.loader(&accelerator)?;
    let orders = [order(probe, &loader)?, order(probe, &loader)?];
    for (epoch, order) in orders.iter().enumerate() {
        whole(probe, &format!("samples of epoch {epoch}"), order);
    }
    probe.equal(
        "whether epochs have one order",
        false,
        orders[0] == orders[1],
    );
    Ok(())
}

/// An order that is a function of seed and epoch alone.
fn seeded(probe: &mut Probe<'_>) -> Result<(), Failure> {
    tch::manual_seed(2000 + i64::try_from(probe.rank()).unwrap_or(0));
    let accelerator = uneven(probe, true, Some(11))?;
    let first = DEAL.loader(&accelerator)?;
    let again = DEAL.loader(&accelerator)?;
    let (epoch_0, epoch_1) = (order(probe, &first)?, order(probe, &first)?);
    whole(probe, "samples of epoch 0", &epoch_0);
    whole(probe, "samples of epoch 1", &epoch_1);
    probe.equal("whether epochs have one order", false, epoch_0 == epoch_1);
    let repeated = order(probe, &again)?;
    probe.equal(
        "order of another loader with this seed",
        &epoch_0,
        &repeated,
    );
    again.set_epoch(1);
    let repeated = order(probe, &again)?;
    probe.equal("order of its epoch 1", &epoch_1, &repeated);
    Ok(())
}

fn uneven(
    probe: &Probe<'_>,
    use_seedable_sampler: bool,
    data_seed: Option<u64>,
) -> Result<Accelerator, Failure> {
    let config = DataLoaderConfiguration {
        even_batches: false,
        use_seedable_sampler,
        data_seed,
        ..DataLoaderConfiguration::default()
    };
    Ok(probe.builder().dataloader_config(config).build()?)
}

/// The order in which all ranks together see the samples: batch by batch, rank by rank.
fn order(probe: &mut Probe<'_>, loader: &super::loading::Loader) -> Result<Vec<i64>, Failure> {
    let of_ranks = dealt(probe, loader)?;
    let rounds = of_ranks.iter().map(Vec::len).max().unwrap_or(0);
    Ok((0..rounds)
        .flat_map(|round| {
            of_ranks
                .iter()
                .filter_map(move |batches| batches.get(round))
        })
        .flatten()
        .copied()
        .collect())
}

/// Every sample is there once, and not in its own place.
fn whole(probe: &mut Probe<'_>, what: &str, order: &[i64]) {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    let all: Vec<i64> = (0..).take(SAMPLES).collect();
    probe.equal(what, &all, &sorted);
    probe.equal(format!("whether {what} are shuffled"), true, order != all);
}
