//! Ranks that train apart and meet now and then.

use std::num::NonZeroUsize;
use std::panic::Location;

use accelerate_torch::{ProcessGroup, ReduceOp};
use tch::Tensor;

use super::DataParallel;
use crate::Error;
use crate::Result;
use crate::collectives::Site;
use crate::nn::Module;
use crate::state::{DistributedType, PartialState};

/// Local SGD: ranks step on their own gradients, and every few steps their parameters
/// are averaged.
///
/// While it lives, gradients of the model stay local. Call [`step`](Self::step) after each
/// step of the optimizer, and [`finish`](Self::finish) after the loop: it averages once
/// more. Dropping it does the same, so that an error does not leave ranks apart, except in
/// a panic. Accumulation of gradients works inside. The state of the optimizer is not
/// averaged.
///
/// # Collective
/// Every rank makes it, steps and finishes equally often.
///
/// # Source
/// `accelerate.local_sgd.LocalSGD`. Differs: parameters are averaged all at once, not one
/// after the other.
#[derive(Debug)]
pub struct LocalSgd<'m> {
    /// What is averaged and between whom; none where nothing is to be done.
    exchange: Option<Exchange<'m>>,
    local_sgd_steps: NonZeroUsize,
    num_steps: usize,
}

#[derive(Debug)]
struct Exchange<'m> {
    parameters: Vec<Tensor>,
    state: PartialState,
    group: ProcessGroup,
    data_parallel: Option<&'m DataParallel>,
    /// Whether gradients stayed local before.
    held: bool,
}

impl<'m> LocalSgd<'m> {
    /// Begins: from now on gradients stay local.
    ///
    /// `local_sgd_steps` is the number of steps between averages. Off, and for a process
    /// by itself, nothing is changed.
    ///
    /// # Errors
    /// [`Error::Argument`] for a way of training other than data parallelism.
    pub fn new(
        state: &PartialState,
        module: &dyn Module,
        data_parallel: Option<&'m DataParallel>,
        local_sgd_steps: NonZeroUsize,
        enabled: bool,
    ) -> Result<Self> {
        let of = state.distributed_type();
        if !allowed(of) {
            return Err(Error::Argument {
                operation: "local SGD",
                expected: "one process, or data parallelism over several".to_owned(),
                found: of.to_string(),
            });
        }
        let exchange = state
            .process_group()
            .filter(|_| enabled)
            .map(|group| Exchange {
                parameters: module
                    .parameters()
                    .into_iter()
                    .map(|parameter| parameter.tensor().shallow_clone())
                    .collect(),
                state: state.clone(),
                group: group.clone(),
                data_parallel,
                held: data_parallel.is_some_and(|model| model.hold_local(true)),
            });
        Ok(Self {
            exchange,
            local_sgd_steps,
            num_steps: 0,
        })
    }

    /// After each step of the optimizer; averages the parameters when it is time.
    ///
    /// # Errors
    /// What the backend reports.
    #[track_caller]
    pub fn step(&mut self) -> Result<()> {
        self.num_steps += 1;
        match &self.exchange {
            Some(exchange) if self.num_steps.is_multiple_of(self.local_sgd_steps.get()) => {
                exchange.average()
            }
            _ => Ok(()),
        }
    }

    /// Averages once more and lets gradients travel again.
    ///
    /// # Errors
    /// What the backend reports.
    #[track_caller]
    pub fn finish(mut self) -> Result<()> {
        self.end()
    }

    #[track_caller]
    fn end(&mut self) -> Result<()> {
        match self.exchange.take() {
            Some(exchange) => {
                exchange.release();
                exchange.average()
            }
            None => Ok(()),
        }
    }
}

impl Drop for LocalSgd<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The others cannot count on this rank.
            if let Some(exchange) = &self.exchange {
                exchange.release();
            }
        } else if let Err(error) = self.end() {
            tracing::error!(%error, "parameters are not averaged at the end of local SGD");
        }
    }
}

impl Exchange<'_> {
    fn release(&self) {
        if let Some(model) = self.data_parallel {
            model.hold_local(self.held);
        }
    }

    /// Every parameter becomes the mean over ranks.
    #[track_caller]
    fn average(&self) -> Result<()> {
        self.state.wait_for_everyone()?;
        let site = Site::Code(Location::caller());
        self.state
            .counted("average of local SGD", site, |_| self.exchange())
    }

    fn exchange(&self) -> Result<()> {
        let ranks = i64::try_from(self.group.size()).unwrap_or(i64::MAX);
        let mut under_way = Vec::with_capacity(self.parameters.len());
        for parameter in &self.parameters {
            let packed = parameter.f_detach()?.f_contiguous()?;
            let sum = self.group.all_reduce_async(&packed, ReduceOp::Sum)?;
            under_way.push((sum, packed));
        }
        for (parameter, (sum, mut packed)) in self.parameters.iter().zip(under_way) {
            sum.wait()?;
            tch::no_grad(|| -> Result<()> {
                let _ = packed.f_div_scalar_(ranks)?;
                if packed.data_ptr() != parameter.data_ptr() {
                    parameter.shallow_clone().f_copy_(&packed)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// Whether each rank has a whole model of its own.
fn allowed(of: DistributedType) -> bool {
    matches!(
        of,
        DistributedType::No | DistributedType::MultiCpu | DistributedType::MultiGpu
    )
}
