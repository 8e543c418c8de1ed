//! Gradients of one storage: whole while a backward pass makes them, a shard when they are reduced.

use accelerate_torch::{ReduceOp, Work, autograd, storage};
use tch::{Device, Tensor};

use super::flat::{Kinds, Member, bytes, length, part};
use super::groups::Groups;
use super::layout::Layout;
use super::offload::Home;
use super::pool::Pool;
use super::wire::GradientWire;
use crate::Result;

/// What gradients are divided by before and after they are added up over ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Divisors {
    pub(super) before: f64,
    pub(super) after: f64,
}

pub(super) struct Gradients {
    /// `[whole]`, in the type of the reduction; has memory only while a reduction runs.
    whole: Tensor,
    /// The place of each parameter's gradient in `whole`.
    views: Vec<Tensor>,
    /// This rank's part of `whole`.
    own: Tensor,
    /// Room for the parts of other ranks.
    received: Tensor,
    /// What this rank keeps: `[shard]`, in the master type. Without memory until the first reduction.
    shard: Tensor,
    home: Home,
    /// The part of `shard` that belongs to each parameter's slice.
    slices: Vec<Tensor>,
    divisors: Divisors,
    /// How gradients travel, where that is not as they are.
    wire: Option<GradientWire>,
    /// Whether the sum under way is written into `shard` at once.
    is_direct: bool,
    /// Whether `shard` holds gradients that count; what parameters show overrules it.
    is_valid: bool,
    /// Whether parameters show the gradients of their slices: also while they are whole, until a
    /// backward pass begins.
    is_shown: bool,
    /// Whether parameters have whole gradients of this rank alone.
    is_accumulating: bool,
    /// Which parameters had their gradient in this backward pass.
    arrived: Vec<bool>,
    reduction: Option<Work>,
}

impl Gradients {
    pub(super) fn new(
        members: &[Member],
        layout: &Layout,
        kinds: Kinds,
        divisors: Divisors,
        (device, home): (Device, &Home),
        groups: &Groups,
        wire: Option<GradientWire>,
    ) -> Result<Self> {
        let others = layout.whole() - layout.shard();
        let whole = Tensor::f_empty([length(layout.whole())], (kinds.reduce, device))?;
        let received = Tensor::f_empty([length(others)], (kinds.reduce, device))?;
        let kept = home.room(layout.shard(), kinds.master, device)?;
        let mut views = Vec::with_capacity(members.len());
        for (member, place) in members.iter().zip(layout.places()) {
            let view = part(&whole, place.start, place.length)?;
            views.push(view.f_view(&member.shape[..])?);
        }
        let mut slices = Vec::with_capacity(members.len());
        for slice in layout.slices(groups.rank()) {
            slices.push(part(&kept, slice.in_shard, slice.length)?);
        }
        let own = part(&whole, groups.rank() * layout.shard(), layout.shard())?;
        for tensor in [&whole, &received] {
            storage::release(tensor)?;
        }
        // Neither the memory of a file nor pinned memory can be taken from under a tensor.
        let is_pinned = matches!(
            (home, device),
            (Home::Cpu { is_pinned: true }, Device::Cuda(_))
        );
        if !home.is_on_disk() && !is_pinned {
            storage::release(&kept)?;
        }
        Ok(Self {
            whole,
            views,
            own,
            received,
            shard: kept,
            home: home.clone(),
            slices,
            divisors,
            wire,
            is_direct: false,
            is_valid: false,
            is_shown: false,
            is_accumulating: false,
            arrived: vec![false; members.len()],
            reduction: None,
        })
    }

    /// Notes that a parameter has its gradient; whether all have theirs.
    ///
    /// One that comes again in the same pass belongs to another use of the unit, whose backward pass
    /// is under way: then all are waited for once more.
    pub(super) fn arrive(&mut self, index: usize) -> bool {
        self.is_accumulating = true;
        if self.arrived.get(index) == Some(&true) {
            self.arrived.fill(false);
        }
        if let Some(arrived) = self.arrived.get_mut(index) {
            *arrived = true;
        }
        self.are_complete()
    }

    pub(super) fn are_complete(&self) -> bool {
        self.arrived.iter().all(|&arrived| arrived)
    }

    pub(super) fn has_any(&self) -> bool {
        self.arrived.contains(&true)
    }

    /// Whether parameters have whole gradients of this rank, of this backward pass or of one before.
    pub(super) fn has_whole(&self, members: &[Member]) -> Result<bool> {
        if self.has_any() {
            return Ok(true);
        }
        if !self.is_accumulating {
            return Ok(false);
        }
        for member in members {
            if autograd::grad(&member.parameter)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forgets what arrived: the backward pass is over.
    pub(super) fn end_pass(&mut self) {
        self.arrived.fill(false);
    }

    /// Takes the shard's gradients from the parameters, which are about to get whole ones.
    ///
    /// Where an optimizer dropped some of them, these begin at zero again; where somebody put others
    /// in their place, those count.
    pub(super) fn hide(&mut self, members: &[Member]) -> Result<()> {
        let mut shown = Vec::with_capacity(members.len());
        for member in members {
            shown.push(autograd::grad(&member.parameter)?);
        }
        let has_any = shown.iter().any(Option::is_some);
        if !self.is_shown {
            // Whole gradients that were being added up may have been dropped.
            if self.is_accumulating && !has_any {
                self.is_accumulating = false;
                self.is_valid = false;
            }
            return Ok(());
        }
        self.is_shown = false;
        self.is_valid = has_any;
        if !has_any {
            return Ok(());
        }
        self.make_room()?;
        for ((member, gradient), slice) in members.iter().zip(shown).zip(&self.slices) {
            let mut slice = slice.shallow_clone();
            match gradient {
                None => drop(tch::no_grad(|| slice.f_zero_())?),
                Some(gradient) if gradient.data_ptr() != slice.data_ptr() => {
                    tch::no_grad(|| slice.f_copy_(&gradient))?;
                }
                Some(_) => {}
            }
            autograd::set_grad(&member.parameter, None)?;
        }
        Ok(())
    }

    /// Gives parameters that look at their slices the gradients of these.
    pub(super) fn show(&mut self, members: &[Member]) -> Result<()> {
        if self.is_shown || self.is_accumulating {
            return Ok(());
        }
        self.is_shown = true;
        if self.is_valid {
            for (member, slice) in members.iter().zip(&self.slices) {
                autograd::set_grad(&member.parameter, Some(slice))?;
            }
        }
        Ok(())
    }

    /// Takes gradients from whole parameters that somebody looks at: they belong to no shard.
    pub(super) fn drop_foreign(&self, members: &[Member]) -> Result<()> {
        if self.is_shown || self.is_accumulating {
            return Ok(());
        }
        for member in members {
            autograd::set_grad(&member.parameter, None)?;
        }
        Ok(())
    }

    /// What is kept of a parameter's sum over ranks, while the parameter shows a whole gradient that is
    /// still to be added to it.
    pub(super) fn hidden(&self, index: usize) -> Option<&Tensor> {
        let hides = self.is_valid && self.is_accumulating && !self.is_shown;
        self.slices.get(index).filter(|_| hides)
    }

    /// Takes what [`hidden`](Self::hidden) answered at another time; the others begin at zero.
    pub(super) fn restore_hidden(&mut self, index: usize, saved: &Tensor) -> Result<()> {
        self.make_room()?;
        tch::no_grad(|| -> Result<()> {
            if !self.is_valid {
                drop(self.shard.f_zero_()?);
            }
            if let Some(slice) = self.slices.get_mut(index) {
                slice.f_copy_(saved)?;
            }
            Ok(())
        })?;
        self.is_valid = true;
        Ok(())
    }

    /// Parameters were given whole gradients of this rank, to which a backward pass is to add.
    pub(super) fn accumulate_from(&mut self) {
        self.is_accumulating = true;
        self.is_shown = false;
        self.is_valid = false;
    }

    /// No gradient of a slice is shown from here to the end of the reduction, also where no parameter
    /// got a gradient of this pass.
    pub(super) fn prepare_start(&mut self) {
        self.is_accumulating = true;
    }

    /// Starts to add the whole gradients up over ranks; parameters without one count as zero.
    ///
    /// # Collective
    /// The ranks that hold one copy call this in one order for all storages.
    pub(super) fn start(
        &mut self,
        members: &[Member],
        groups: &Groups,
        pool: &mut Pool,
    ) -> Result<()> {
        if let Some(left) = self.reduction.take() {
            // Of a backward pass that failed: it may still write where this one is to begin.
            left.wait()?;
        }
        let kind = self.whole.f_kind()?;
        pool.fill(&self.whole, bytes(self.whole.numel(), kind))?;
        tch::no_grad(|| self.pack(members))?;
        self.is_accumulating = false;
        self.end_pass();
        let work = match &mut self.wire {
            Some(wire) => wire.start(&self.whole, groups, pool)?,
            None => self.start_plain(groups, pool)?,
        };
        self.reduction = Some(work);
        Ok(())
    }

    fn start_plain(&mut self, groups: &Groups, pool: &mut Pool) -> Result<Work> {
        let kind = self.whole.f_kind()?;
        pool.fill(&self.received, bytes(self.received.numel(), kind))?;
        // What is kept needs no copy where nothing is added to it, nobody else's sum comes on top, and
        // it stays where it is computed.
        let is_here = self.home.is_at(self.whole.device(), &self.shard);
        let is_alone = !self.is_valid && groups.replicate.is_none();
        self.is_direct = is_here && is_alone && self.shard.f_kind()? == kind;
        if self.is_direct {
            self.make_room()?;
        }
        let sum = match self.is_direct {
            true => &self.shard,
            false => &self.own,
        };
        let work = groups.reduce.exchange_reduce_scatter_async(
            sum,
            &self.whole,
            &self.received,
            ReduceOp::Sum,
        )?;
        Ok(work)
    }

    fn pack(&mut self, members: &[Member]) -> Result<()> {
        for (member, view) in members.iter().zip(&mut self.views) {
            match autograd::grad(&member.parameter)? {
                Some(gradient) => {
                    view.f_copy_(&gradient)?;
                    autograd::set_grad(&member.parameter, None)?;
                }
                None => drop(view.f_zero_()?),
            }
        }
        if self.divisors.before != 1.0 {
            drop(self.whole.f_div_scalar_(self.divisors.before)?);
        }
        Ok(())
    }

    /// Whether the end of a reduction is a collective, for which ranks have to come at the same time.
    pub(super) fn ends_together(&self, groups: &Groups) -> bool {
        let has_two_levels = self.wire.as_ref().is_some_and(GradientWire::has_two_levels);
        has_two_levels || groups.replicate.is_some()
    }

    /// Whether the sum is there, or none is on its way.
    pub(super) fn is_reduced(&self) -> Result<bool> {
        match &self.reduction {
            Some(work) => Ok(work.is_completed()?),
            None => Ok(true),
        }
    }

    /// Waits for the sum, and adds this rank's part of it to what it keeps.
    ///
    /// # Collective
    /// Where there are several copies, the ranks that hold one shard call this in one order.
    pub(super) fn finish(&mut self, groups: &Groups, pool: &mut Pool) -> Result<()> {
        let Some(work) = self.reduction.take() else {
            return Ok(());
        };
        work.wait()?;
        if let Some(wire) = &mut self.wire {
            wire.finish(&self.own, groups, pool)?;
        }
        if let Some(copies) = &groups.replicate {
            copies.all_reduce(&self.own, ReduceOp::Sum)?;
        }
        self.make_room()?;
        let is_direct = std::mem::take(&mut self.is_direct);
        tch::no_grad(|| -> Result<()> {
            let sum = match is_direct {
                true => &mut self.shard,
                false => &mut self.own,
            };
            if self.divisors.after != 1.0 {
                drop(sum.f_div_scalar_(self.divisors.after)?);
            }
            match self.is_valid {
                _ if is_direct => {}
                true => {
                    let own = self.own.f_to_device(self.shard.device())?;
                    drop(self.shard.f_add_(&own)?);
                }
                false => self.shard.f_copy_(&self.own)?,
            }
            Ok(())
        })?;
        self.is_valid = true;
        self.home.forget(&self.shard)?;
        pool.drain(&self.whole)?;
        pool.drain(&self.received)
    }

    fn make_room(&mut self) -> Result<()> {
        if storage::storage_bytes(&self.shard)? == 0 && self.shard.numel() > 0 {
            let kind = self.shard.f_kind()?;
            storage::refill(&self.shard, bytes(self.shard.numel(), kind))?;
            // What lies between parameters is never read, but must not be slow numbers either.
            drop(tch::no_grad(|| self.shard.f_zero_())?);
        }
        Ok(())
    }
}
