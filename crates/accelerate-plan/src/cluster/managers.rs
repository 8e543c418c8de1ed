//! Which variables each manager writes.

use std::{fmt, num::NonZeroUsize};

use super::{
    ClusterError, allocation,
    claims::{Claims, Fact},
};
use crate::{
    Result,
    env::{
        Environment, Found, MPI_LOCALNRANKS, MPI_LOCALRANKID, MV2_LOCAL_RANK, MV2_LOCAL_SIZE,
        MV2_RANK, MV2_SIZE, OMPI_LOCAL_RANK, OMPI_LOCAL_SIZE, OMPI_RANK, OMPI_SIZE,
        PALS_LOCAL_RANK, PALS_LOCAL_SIZE, PALS_NODE_RANK, PALS_RANK, PMI_LOCAL_RANK,
        PMI_LOCAL_SIZE, PMI_RANK, PMI_SIZE, PMIX_RANK, SLURM_LOCALID, SLURM_NODEID, SLURM_PROCID,
        Variable,
    },
};

/// Who started the tasks of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Manager {
    /// SLURM's `srun`.
    Slurm,
    /// PALS, the launcher of Cray systems under PBS.
    Pals,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// MPICH, Intel MPI, and whatever else speaks PMI.
    Pmi,
    /// MVAPICH.
    Mvapich,
    /// Whatever else speaks PMIx.
    Pmix,
}

impl Manager {
    /// The name that its users know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slurm => "SLURM",
            Self::Pals => "PALS",
            Self::OpenMpi => "Open MPI",
            Self::Pmi => "PMI",
            Self::Mvapich => "MVAPICH",
            Self::Pmix => "PMIx",
        }
    }

    /// The variable in which it states the rank.
    pub(super) fn rank_variable(self) -> &'static str {
        match self {
            Self::Slurm => SLURM_PROCID.name(),
            Self::Pals => PALS_RANK.name(),
            Self::OpenMpi => OMPI_RANK.name(),
            Self::Pmi => PMI_RANK.name(),
            Self::Mvapich => MV2_RANK.name(),
            Self::Pmix => PMIX_RANK.name(),
        }
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What every manager says that says anything, the outermost first.
pub(super) fn read(env: &Environment) -> Result<Vec<Claims>, ClusterError> {
    let mut all = Vec::from_iter(slurm(env)?);
    all.extend([pals(env)?, open_mpi(env)?, pmi(env)?, mvapich(env)?]);
    let mut pmix = Claims::of(Manager::Pmix);
    pmix.set(Fact::Rank, index(env, &[&PMIX_RANK])?);
    all.push(pmix);
    all.retain(|claims| !claims.is_silent());
    Ok(all)
}

/// What `srun` says to the tasks of a step; `None` outside of one.
fn slurm(env: &Environment) -> Result<Option<Claims>, ClusterError> {
    if !allocation::in_step(env)? {
        return Ok(None);
    }
    let mut claims = Claims::of(Manager::Slurm);
    claims.set(Fact::Rank, index(env, &[&SLURM_PROCID])?);
    claims.set(Fact::LocalRank, index(env, &[&SLURM_LOCALID])?);
    claims.set(Fact::NodeRank, index(env, &[&SLURM_NODEID])?);
    allocation::read_sizes(env, &mut claims)?;
    Ok(Some(claims))
}

fn pals(env: &Environment) -> Result<Claims> {
    let mut claims = Claims::of(Manager::Pals);
    claims.set(Fact::Rank, index(env, &[&PALS_RANK])?);
    claims.set(Fact::LocalRank, index(env, &[&PALS_LOCAL_RANK])?);
    claims.set(Fact::LocalWorldSize, count(env, &[&PALS_LOCAL_SIZE])?);
    claims.set(Fact::NodeRank, index(env, &[&PALS_NODE_RANK])?);
    Ok(claims)
}

fn open_mpi(env: &Environment) -> Result<Claims> {
    let mut claims = Claims::of(Manager::OpenMpi);
    claims.set(Fact::Rank, index(env, &[&OMPI_RANK])?);
    claims.set(Fact::WorldSize, count(env, &[&OMPI_SIZE])?);
    claims.set(Fact::LocalRank, index(env, &[&OMPI_LOCAL_RANK])?);
    claims.set(Fact::LocalWorldSize, count(env, &[&OMPI_LOCAL_SIZE])?);
    Ok(claims)
}

fn pmi(env: &Environment) -> Result<Claims> {
    let mut claims = Claims::of(Manager::Pmi);
    let local_rank = index(env, &[&MPI_LOCALRANKID, &PMI_LOCAL_RANK])?;
    let local_world_size = count(env, &[&MPI_LOCALNRANKS, &PMI_LOCAL_SIZE])?;
    claims.set(Fact::Rank, index(env, &[&PMI_RANK])?);
    claims.set(Fact::WorldSize, count(env, &[&PMI_SIZE])?);
    claims.set(Fact::LocalRank, local_rank);
    claims.set(Fact::LocalWorldSize, local_world_size);
    Ok(claims)
}

fn mvapich(env: &Environment) -> Result<Claims> {
    let mut claims = Claims::of(Manager::Mvapich);
    claims.set(Fact::Rank, index(env, &[&MV2_RANK])?);
    claims.set(Fact::WorldSize, count(env, &[&MV2_SIZE])?);
    claims.set(Fact::LocalRank, index(env, &[&MV2_LOCAL_RANK])?);
    claims.set(Fact::LocalWorldSize, count(env, &[&MV2_LOCAL_SIZE])?);
    Ok(claims)
}

fn index(
    env: &Environment,
    variables: &[&'static Variable<usize>],
) -> Result<Option<Found<usize>>> {
    env.first(variables)
}

pub(super) fn count(
    env: &Environment,
    variables: &[&'static Variable<NonZeroUsize>],
) -> Result<Option<Found<usize>>> {
    let found = env.first(variables)?;
    Ok(found.map(|found| Found {
        variable: found.variable,
        value: found.value.get(),
    }))
}
