//! All-gather and reduce-scatter made of sends and receives.
//!
//! Over Gloo the native forms move the same bytes several times slower than the ranks
//! can send to each other directly, since they reduce or copy everything before they
//! cut it. Use these where every rank of the group is ours; ranks of Python expect the
//! native forms. Over NCCL the native forms are the fast ones and are used here too.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use tch::Tensor;

use super::{Backend, ProcessGroup, ReduceOp, Work};
use crate::{Error, Result};

/// Tags of exchanges start above every tag that [`ProcessGroup::send`] takes.
const FIRST_TAG: usize = 1 << 16;
/// How many exchanges may be under way before a tag comes again.
const TAGS: usize = 1 << 20;

impl ProcessGroup {
    /// [`all_gather_into_tensor`](Self::all_gather_into_tensor), by the fast way of the backend.
    ///
    /// `input` may be this rank's own part of `output`, which saves its copy.
    ///
    /// # Shapes
    /// - input: `[n, ...]`
    /// - output: `[world * n, ...]`
    ///
    /// # Errors
    /// [`Error::Argument`] if the sizes do not fit; what the backend refuses at once.
    pub fn exchange_all_gather_async(&self, output: &Tensor, input: &Tensor) -> Result<Work> {
        if self.backend() == Backend::Nccl {
            return self.all_gather_into_tensor_async(output, input);
        }
        let _range = self.range("exchanged all-gather", &[input])?;
        let parts = self.parts("exchanged all-gather", output, input)?;
        let tag = self.next_tag();
        let mut works = Vec::with_capacity(2 * (self.size() - 1));
        for peer in self.peers() {
            works.push(self.receive_tagged(&parts[peer], peer, tag)?);
        }
        for peer in self.peers() {
            works.push(self.send_tagged(input, peer, tag)?);
        }
        let own = &parts[self.rank()];
        if own.data_ptr() != input.data_ptr() {
            tch::no_grad(|| own.shallow_clone().f_copy_(input))?;
        }
        Ok(Work::joined(
            "exchanged all-gather",
            self.place().clone(),
            works,
        ))
    }

    /// [`reduce_scatter_tensor`](Self::reduce_scatter_tensor) of sums or averages, by the
    /// fast way of the backend.
    ///
    /// `received` is room for the other ranks' parts, so that it can come from a pool; its
    /// content is undefined after. `output` may be this rank's own part of `input`.
    /// The parts are added in the order of ranks, so every number of processes gives the
    /// same bits in every run.
    ///
    /// # Shapes
    /// - input: `[world * n, ...]`
    /// - output: `[n, ...]`
    /// - received: `[(world - 1) * n, ...]`
    ///
    /// # Errors
    /// [`Error::Argument`] for another operation or sizes that do not fit.
    pub fn exchange_reduce_scatter_async(
        &self,
        output: &Tensor,
        input: &Tensor,
        received: &Tensor,
        op: ReduceOp,
    ) -> Result<Work> {
        let operation = "exchanged reduce-scatter";
        if self.backend() == Backend::Nccl {
            return self.reduce_scatter_tensor_async(output, input, op);
        }
        let divide_by = match op {
            ReduceOp::Sum => None,
            ReduceOp::Avg => Some(i64::try_from(self.size()).unwrap_or(i64::MAX)),
            other => {
                return Err(Error::Argument {
                    operation,
                    expected: "a sum or an average".to_owned(),
                    found: format!("{other:?}"),
                });
            }
        };
        let _range = self.range(operation, &[input])?;
        let parts = self.parts(operation, input, output)?;
        let room = self.room(operation, received, output)?;
        let tag = self.next_tag();
        let mut works = Vec::with_capacity(2 * (self.size() - 1));
        for (peer, place) in self.peers().zip(&room) {
            works.push(self.receive_tagged(place, peer, tag)?);
        }
        for peer in self.peers() {
            works.push(self.send_tagged(&parts[peer], peer, tag)?);
        }
        let own = self.rank();
        let mut addends = room;
        addends.insert(own, parts[own].shallow_clone());
        let output = output.shallow_clone();
        let work = Work::joined(operation, self.place().clone(), works);
        Ok(work.then(move || add(&output, &addends, own, divide_by)))
    }

    /// `whole` cut into one part for each rank, each shaped as `part`.
    fn parts(&self, operation: &'static str, whole: &Tensor, part: &Tensor) -> Result<Vec<Tensor>> {
        self.cut(operation, whole, part, self.size())
    }

    /// `received` cut into one part for each other rank.
    fn room(
        &self,
        operation: &'static str,
        received: &Tensor,
        part: &Tensor,
    ) -> Result<Vec<Tensor>> {
        self.cut(operation, received, part, self.size() - 1)
    }

    fn cut(
        &self,
        operation: &'static str,
        whole: &Tensor,
        part: &Tensor,
        count: usize,
    ) -> Result<Vec<Tensor>> {
        let fits = whole.numel() == part.numel() * count
            && whole.kind() == part.kind()
            && whole.is_contiguous()
            && part.is_contiguous();
        if !fits {
            return Err(Error::Argument {
                operation,
                expected: format!(
                    "contiguous tensors of {:?}, one {count} times as large as {:?}",
                    part.kind(),
                    part.size()
                ),
                found: format!("{:?} {:?}", whole.kind(), whole.size()),
            });
        }
        let flat = whole.f_view([-1])?;
        let length = i64::try_from(part.numel()).unwrap_or(i64::MAX);
        (0..count)
            .map(|index| {
                let start = i64::try_from(index).unwrap_or(i64::MAX) * length;
                Ok(flat
                    .f_narrow(0, start, length)?
                    .f_view(part.size().as_slice())?)
            })
            .collect()
    }

    /// The other ranks, in the order in which their parts are added.
    fn peers(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank();
        (0..self.size()).filter(move |&rank| rank != own)
    }

    /// Equal on all ranks, since all start their exchanges in one order.
    fn next_tag(&self) -> c_int {
        let number = self.inner.exchanges.fetch_add(1, Ordering::Relaxed);
        c_int::try_from(FIRST_TAG + number % TAGS).unwrap_or(c_int::MAX)
    }
}

/// Writes the sum of the ranks' parts, in the order of ranks.
///
/// What is received serves for the sums in between, so that `output` may be the part of
/// the rank `own`.
fn add(output: &Tensor, addends: &[Tensor], own: usize, divide_by: Option<i64>) -> Result<()> {
    tch::no_grad(|| {
        match addends {
            [first, between @ .., last] => {
                let received = &addends[usize::from(own == 0)];
                let mut sum = first;
                for next in between {
                    sum.f_add_out(received, next).map(drop)?;
                    sum = received;
                }
                sum.f_add_out(output, last).map(drop)?;
            }
            [only] => output.shallow_clone().f_copy_(only)?,
            [] => {}
        }
        if let Some(ranks) = divide_by {
            drop(output.shallow_clone().f_div_scalar_(ranks)?);
        }
        Ok(())
    })
}
