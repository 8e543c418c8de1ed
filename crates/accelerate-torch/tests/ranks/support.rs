//! How the ranks of these tests meet, and the values they compare.

use std::error::Error;
use std::time::Duration;

use accelerate_testkit::{Rank, ranks};
use accelerate_torch::{Backend, GroupOptions, ProcessGroup, Rendezvous, Result, StoreServer};
use tch::Tensor;

/// What a rank of a test ends with.
pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// How long an operation may take on a machine that has much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn options() -> GroupOptions {
    GroupOptions::new(Backend::Gloo).with_timeout(PATIENCE)
}

pub(crate) fn rendezvous(rank: Rank) -> Rendezvous {
    Rendezvous {
        host: "127.0.0.1".to_owned(),
        port: rank.port(),
        rank: rank.index(),
        world: rank.world(),
        server: StoreServer::Rank0,
    }
}

pub(crate) fn join(rank: Rank) -> Result<ProcessGroup> {
    rendezvous(rank).join(&options(), |_| {})
}

/// A part of a test: all parts of a file share their processes, as each takes long to start.
pub(crate) type Section = fn(&ProcessGroup) -> Outcome;

/// Runs functions one after another in a group of 2 ranks, and in one of 3.
macro_rules! on_ranks {
    ($($section:ident),+ $(,)?) => {
        $crate::support::in_sections(&[$((stringify!($section), $section)),+])
    };
}
pub(crate) use on_ranks;

pub(crate) fn in_sections(sections: &[(&str, Section)]) {
    on_worlds(&[2, 3], |group| {
        for (name, section) in sections {
            println!("{name}");
            section(group)?;
        }
        Ok(())
    });
}

/// Runs `body` in a group of each of these numbers of ranks.
pub(crate) fn on_worlds(worlds: &[usize], body: impl FnOnce(&ProcessGroup) -> Outcome) {
    ranks(worlds, |rank| {
        let group = join(rank)?;
        body(&group)?;
        // Nobody closes its connections while another still reads from them.
        group.barrier()?;
        Ok::<_, Box<dyn Error>>(())
    });
}

/// The numbers in a tensor of any kind, in order.
pub(crate) fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    let flat = tensor
        .f_detach()?
        .f_to_kind(tch::Kind::Double)?
        .f_contiguous()?
        .f_view([-1])?;
    Ok(Vec::try_from(&flat)?)
}

/// A small number as a float, exactly.
pub(crate) fn real(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Values that no other rank or position has, and that add exactly: `100 rank + position`.
pub(crate) fn marked(rank: usize, length: usize) -> Vec<f64> {
    (0..length)
        .map(|position| 100.0 * real(rank) + real(position))
        .collect()
}

pub(crate) fn float(values: &[f64]) -> Result<Tensor> {
    Ok(Tensor::f_from_slice(values)?.f_to_kind(tch::Kind::Float)?)
}

/// `count` float32 tensors of `length` values that no result holds.
pub(crate) fn empty_places(count: usize, length: usize) -> Result<Vec<Tensor>> {
    (0..count).map(|_| float(&vec![-1.0; length])).collect()
}
