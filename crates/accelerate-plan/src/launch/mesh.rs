//! Whether the mesh has a place for every process.

use std::{fmt, num::NonZeroUsize};

use super::uses_mesh;
use crate::{
    Error, Result,
    settings::{
        Key, Origin, PARALLELISM_CP_SIZE, PARALLELISM_DP_REPLICATE_SIZE, PARALLELISM_DP_SHARD_SIZE,
        PARALLELISM_SP_BACKEND, PARALLELISM_SP_SIZE, PARALLELISM_TP_SIZE, Settings, Sourced,
        SpBackend,
    },
};

static SIZES: [&Key<NonZeroUsize>; 5] = [
    &PARALLELISM_DP_REPLICATE_SIZE,
    &PARALLELISM_DP_SHARD_SIZE,
    &PARALLELISM_TP_SIZE,
    &PARALLELISM_CP_SIZE,
    &PARALLELISM_SP_SIZE,
];

/// A mesh for another number of processes than there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} makes {product} processes, but `num_processes` is {world_size} ({origin})", equation(.factors))]
#[non_exhaustive]
pub struct MeshMismatch {
    /// Name of each size that somebody gave, its value and where that came from.
    pub factors: Vec<(&'static str, usize, Origin)>,
    /// What the sizes make.
    pub product: usize,
    /// Processes of the job.
    pub world_size: usize,
    /// Who said so.
    pub origin: Origin,
}

/// Refuses a mesh whose sizes do not make `world_size`. Sizes that are all 1 say nothing; where
/// DeepSpeed cuts the sequences, it lays the processes out itself.
///
/// # Errors
/// [`Error::Mesh`] with every size and where it came from.
pub fn check_mesh(settings: &Settings, world_size: &Sourced<NonZeroUsize>) -> Result<()> {
    let size = |key: &Key<NonZeroUsize>| settings.get(key).map_or(1, NonZeroUsize::get);
    let product = SIZES
        .iter()
        .fold(1_usize, |product, key| product.saturating_mul(size(key)));
    let is_by_deepspeed = size(&PARALLELISM_SP_SIZE) > 1
        && settings.get(&PARALLELISM_SP_BACKEND) == Some(SpBackend::DeepSpeed);
    if !uses_mesh(settings) || product == 1 || is_by_deepspeed || product == world_size.value.get()
    {
        return Ok(());
    }
    let factors = SIZES
        .iter()
        .filter(|key| settings.origin(key).is_given())
        .map(|key| (key.name(), size(key), settings.origin(key).clone()));
    Err(Error::Mesh(Box::new(MeshMismatch {
        factors: factors.collect(),
        product,
        world_size: world_size.value.get(),
        origin: world_size.origin.clone(),
    })))
}

fn equation(factors: &[(&'static str, usize, Origin)]) -> impl fmt::Display {
    let factors = factors
        .iter()
        .map(|(name, size, origin)| format!("`{name}` ({size}, {origin})"));
    factors.collect::<Vec<_>>().join(" x ")
}
