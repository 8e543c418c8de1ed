//! What FSDP shards over which ranks.

use std::num::NonZeroUsize;

use super::FsdpSettings;
use crate::{
    parallel::{JobFacts, Mesh, PlanError, error::contradiction},
    settings::{Origin, ReshardAfterForward, ShardingStrategy, Sourced},
};

type Result<T> = std::result::Result<T, PlanError>;

impl FsdpSettings {
    /// The strategy, and the setting that decided it.
    pub(super) fn strategy_in_force(&self) -> Result<(ShardingStrategy, Origin)> {
        match self.is_old() {
            true => Ok(self.strategy_of_version_1()),
            false => self.strategy_of_version_2(),
        }
    }

    /// A strategy under the newer name counts where the older name has none; a truth value there is
    /// the launcher's default for version 2 and says nothing.
    fn strategy_of_version_1(&self) -> (ShardingStrategy, Origin) {
        let newer = self.reshard_after_forward.as_ref();
        let newer = newer.and_then(|given| Some((given.value.strategy()?, given.origin.clone())));
        let older = self.strategy.as_ref();
        let older = older.map(|given| (given.value, given.origin.clone()));
        older
            .or(newer)
            .unwrap_or((ShardingStrategy::FullShard, Origin::Default))
    }

    fn strategy_of_version_2(&self) -> Result<(ShardingStrategy, Origin)> {
        match &self.reshard_after_forward {
            Some(Sourced {
                value: ReshardAfterForward::Whether(whether),
                origin,
            }) => Ok((of_reshard(*whether), origin.clone())),
            Some(named) => Err(contradiction(
                "fsdp_reshard_after_forward",
                &Sourced {
                    value: named.value.strategy().map_or("", ShardingStrategy::name),
                    origin: named.origin.clone(),
                },
                "`true` or `false` in version 2 of FSDP",
                &self.version,
            )),
            // What the launcher exports by default decides nothing.
            None => match &self.strategy {
                Some(given) if given.origin.is_given() => Ok((given.value, given.origin.clone())),
                _ => Ok((ShardingStrategy::FullShard, Origin::Default)),
            },
        }
    }
}

fn of_reshard(whether: bool) -> ShardingStrategy {
    match whether {
        true => ShardingStrategy::FullShard,
        false => ShardingStrategy::ShardGradOp,
    }
}

/// The grid that a strategy asks for.
pub(super) fn mesh_of(
    strategy: ShardingStrategy,
    job: &JobFacts,
    origin: &Origin,
) -> Result<Sourced<Mesh>> {
    let world = job.world_size;
    let value = match strategy {
        ShardingStrategy::FullShard | ShardingStrategy::ShardGradOp => Mesh::sharded(world),
        ShardingStrategy::NoShard => Mesh::replicated(world),
        ShardingStrategy::HybridShard | ShardingStrategy::HybridShardZero2 => {
            let local = job.local_world_size;
            let machines = NonZeroUsize::new(world.get() / local.get());
            match machines.filter(|machines| machines.get() * local.get() == world.get()) {
                Some(machines) => Mesh::new(machines, local),
                None => {
                    return Err(PlanError::UnevenMachines {
                        what: strategy.name(),
                        origin: origin.clone(),
                        world_size: world.get(),
                        local_world_size: local.get(),
                    });
                }
            }
        }
    };
    Ok(Sourced {
        value,
        origin: origin.clone(),
    })
}
