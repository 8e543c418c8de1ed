//! What data parallelism does while ranks run out of inputs at different times.
//!
//! Every collective of a forward and backward pass has its shadow here, in the same order.

use accelerate_torch::autograd::{self, BackwardOptions};
use accelerate_torch::{ProcessGroup, ReduceOp};
use tch::{Device, Kind, Tensor};

use super::DataParallel;
use crate::Result;
use crate::parallel::join::{Joinable, count_active};

/// What a model does inside a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Role {
    /// There is none.
    #[default]
    Outside,
    /// It tells the others that this rank goes on.
    First,
    /// Another model of this rank tells them.
    Other,
    /// This rank has finished and mirrors the others.
    Finished,
}

impl DataParallel {
    /// At the start of a forward pass: this rank has not finished.
    pub(super) fn say_active(&self) -> Result<()> {
        if self.join.get() == Role::First {
            count_active(self, true)?;
        }
        Ok(())
    }

    /// Whether ranks may have finished while this one goes on.
    pub(super) fn is_joined(&self) -> bool {
        self.join.get() != Role::Outside
    }

    /// Tells ranks that have finished whether a reduction of gradients comes.
    pub(super) fn say_whether_syncing(&self, syncs: bool) -> Result<()> {
        self.any(syncs).map(drop)
    }

    /// Whose buffers count: rank 0's, and in a join those of the highest rank that goes on.
    pub(super) fn root_of_buffers(&self) -> Result<usize> {
        match self.join.get() {
            Role::Outside => Ok(0),
            role => self.highest_rank(role != Role::Finished),
        }
    }

    fn any(&self, condition: bool) -> Result<bool> {
        let device = Joinable::device(self);
        let flag = Tensor::f_full([1], f64::from(u8::from(condition)), (Kind::Float, device))?;
        self.group.all_reduce(&flag, ReduceOp::Sum)?;
        Ok(flag.f_double_value(&[0])? > 0.0)
    }

    /// The highest rank that holds a condition; 0 where none does.
    fn highest_rank(&self, condition: bool) -> Result<usize> {
        let own = i64::try_from(self.group.rank()).unwrap_or(i64::MAX);
        let own = if condition { own } else { -1 };
        let highest = Tensor::f_full([1], own, (Kind::Int64, Joinable::device(self)))?;
        self.group.all_reduce(&highest, ReduceOp::Max)?;
        Ok(usize::try_from(highest.f_int64_value(&[0])?).unwrap_or(0))
    }

    /// A backward pass without values: every parameter reports, none brings a gradient.
    fn reduce_nothing(&self) -> Result<()> {
        self.reducer.prepare_for_forward()?;
        let device = Joinable::device(self);
        let count = self.trained.len();
        let inputs: Vec<&Tensor> = self.trained.iter().collect();
        let outputs = autograd::function(
            &inputs,
            move |_, _| Ok(vec![Tensor::f_zeros([0i64; 0], (Kind::Float, device))?]),
            move |_, _| Ok((0..count).map(|_| None).collect()),
        )?;
        self.reducer.prepare_for_backward(&outputs)?;
        Ok(autograd::backward(
            &outputs,
            None,
            BackwardOptions::default(),
        )?)
    }

    /// Does something with parameters that have no gradients; those that they have come back.
    pub(super) fn without_gradients(&self, run: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut kept = Vec::with_capacity(self.trained.len());
        for parameter in &self.trained {
            let gradient = autograd::grad(parameter)?;
            // A view of a bucket would be written over.
            let copy = self.kwargs.gradient_as_bucket_view;
            kept.push(match gradient {
                Some(view) if copy => Some(tch::no_grad(|| view.f_detach_copy())?),
                other => other,
            });
            autograd::set_grad(parameter, None)?;
        }
        let done = run();
        for (parameter, gradient) in self.trained.iter().zip(&kept) {
            autograd::set_grad(parameter, gradient.as_ref())?;
        }
        done
    }
}

impl Joinable for DataParallel {
    fn group(&self) -> Option<&ProcessGroup> {
        Some(&self.group)
    }

    fn device(&self) -> Device {
        self.trained.first().map_or(Device::Cpu, Tensor::device)
    }

    fn enter_join(&self, first: bool) {
        self.join.set(if first { Role::First } else { Role::Other });
    }

    fn leave_join(&self) {
        self.join.set(Role::Outside);
    }

    fn mirror_step(&self) -> Result<()> {
        self.join.set(Role::Finished);
        let syncs = self.pass("forward", |_| {
            self.sync_buffers()?;
            let syncs = self.any(false)?;
            self.synced_before.set(syncs);
            if syncs {
                self.reducer.rebuild_buckets()?;
            }
            Ok(syncs)
        })?;
        if syncs {
            self.pass("backward", |_| {
                self.without_gradients(|| self.reduce_nothing())
            })?;
        }
        Ok(())
    }

    fn take_last_finished(&self, last: bool) -> Result<()> {
        self.pass("end of join", |_| {
            let root = self.highest_rank(last)?;
            self.send_from(root)
        })
    }
}
