//! All units of one model on one rank: what is whole when.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use accelerate_torch::autograd;
use tch::Device;

use super::agreement::Agreement;
use super::flat::Flat;
use super::groups::Groups;
use super::order::Order;
use super::pool::Pool;
use super::unit::{Timing, Unit, unit_at};
use crate::{Error, Result};

/// The root's place among the units.
pub(super) const ROOT: usize = 0;

/// The engine of one model. Hooks of the backward pass run on threads of libtorch's, so it can be
/// shared between threads.
pub(super) struct Engine {
    pub(super) groups: Groups,
    pub(super) timing: Timing,
    /// Where units compute.
    pub(super) device: Device,
    /// Whether any parameter is trained.
    pub(super) trains: bool,
    /// Whether backward passes reduce gradients.
    syncs: AtomicBool,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) units: Vec<Unit>,
    pub(super) pool: Pool,
    pub(super) order: Order,
    /// The units that forward passes used since the last backward pass, in the order of first use.
    pub(super) ran: Vec<usize>,
    /// The same units in the order in which their last passes ended, as far as gradients can come to
    /// them: the backward pass takes them the other way round.
    pub(super) watched: Vec<usize>,
    /// The way of this backward pass through the units, and how many of them it has come to.
    pub(super) route: Vec<usize>,
    pub(super) passed: usize,
    /// What ranks are telling each other of this backward pass.
    pub(super) agreement: Option<Agreement>,
    /// Of every unit, whether any rank has whole gradients of it that this pass has to add up.
    pub(super) left: Vec<bool>,
    /// Units of this backward pass whose gradients are still to be reduced, in the order in which
    /// all ranks reduce them.
    pub(super) queue: VecDeque<usize>,
    /// Reductions on their way: unit and storage.
    pub(super) reducing: VecDeque<(usize, usize)>,
    pub(super) in_backward: bool,
    /// Whether parameters have no values until some are loaded.
    pub(super) is_empty: bool,
    /// Whether all parameters are whole at somebody's request.
    pub(super) is_summoned: bool,
    /// Numbers the calls of units.
    pub(super) calls: u64,
}

impl Engine {
    /// Takes the units over, and tells itself of their gradients as they come.
    pub(super) fn new(units: Vec<Unit>, groups: Groups, timing: Timing) -> Result<Arc<Self>> {
        let first = units.iter().flat_map(|unit| &unit.flats).next();
        let engine = Arc::new(Self {
            groups,
            timing,
            device: first.map_or(Device::Cpu, Flat::device),
            trains: units.iter().any(Unit::has_trained),
            syncs: AtomicBool::new(true),
            state: Mutex::new(State {
                units,
                pool: Pool::default(),
                order: Order::default(),
                ran: Vec::new(),
                watched: Vec::new(),
                route: Vec::new(),
                passed: 0,
                agreement: None,
                left: Vec::new(),
                queue: VecDeque::new(),
                reducing: VecDeque::new(),
                in_backward: false,
                is_empty: false,
                is_summoned: false,
                calls: 0,
            }),
        });
        engine.listen()?;
        Ok(engine)
    }

    fn listen(self: &Arc<Self>) -> Result<()> {
        let state = self.lock();
        for (unit, own) in state.units.iter().enumerate() {
            for (flat, storage) in own.flats.iter().enumerate() {
                if storage.gradients.is_none() {
                    continue;
                }
                for (index, member) in storage.members.iter().enumerate() {
                    // The parameter holds the hook and the engine the parameter.
                    let engine: Weak<Self> = Arc::downgrade(self);
                    let parameter = &member.parameter;
                    let _stays = autograd::on_gradient_accumulated(parameter, move |_| {
                        if let Some(engine) = engine.upgrade() {
                            engine.gradient_arrived(unit, flat, index)?;
                        }
                        Ok(())
                    })?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // What a panic left half done, the next collective reports.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn syncs(&self) -> bool {
        self.timing.reduces_always || self.syncs.load(Ordering::Relaxed)
    }

    pub(super) fn set_syncs(&self, syncs: bool) -> bool {
        self.syncs.swap(syncs, Ordering::Relaxed)
    }

    /// Makes a unit whole for a forward pass, and begins to gather the one that comes next. Answers
    /// the number of this call.
    pub(super) fn enter(&self, unit: usize, records: bool) -> Result<u64> {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.calls += 1;
        let call = state.calls;
        if state.is_summoned {
            return Ok(call);
        }
        if state.is_empty {
            return Err(Error::OnMeta {
                operation: "forward pass of a sharded model",
                tensors: vec!["a model that was built without memory".to_owned()],
            });
        }
        if state.in_backward && unit == ROOT {
            return Err(Error::Argument {
                operation: "forward pass of a sharded model",
                expected: "backward passes that go through `Accelerator::backward`".to_owned(),
                found: "one that was begun some other way, so its gradients are not complete"
                    .to_owned(),
            });
        }
        if state.in_backward {
            // Computed again for its gradients.
            state.gather(unit, &self.groups)?;
            return Ok(call);
        }
        if unit == ROOT {
            state.begin_forward()?;
        }
        let next = state.order.step(unit);
        if records && !state.ran.contains(&unit) {
            state.ran.push(unit);
        }
        state.gather(unit, &self.groups)?;
        if let Some(next) = next.filter(|_| self.timing.prefetches_forward) {
            state.start_gather(next, &self.groups)?;
        }
        Ok(call)
    }

    /// Drops a unit after its forward pass, where that is its time.
    ///
    /// `is_watched`: whether gradients can come to its outputs.
    pub(super) fn leave(&self, unit: usize, records: bool, is_watched: bool) -> Result<()> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.is_summoned || state.in_backward {
            return Ok(());
        }
        if is_watched {
            state.watched.retain(|&watched| watched != unit);
            state.watched.push(unit);
        }
        let drops = !records || self.timing.drops_after_forward;
        // The backward pass begins with what was used last.
        let last = state.order.last().filter(|_| records);
        let keeps_root = records && self.timing.keeps_root;
        let is_kept = |unit: usize| records && state.units.get(unit).is_some_and(|one| one.is_kept);
        let stays = last == Some(unit) || (unit == ROOT && keeps_root) || is_kept(unit);
        // Gathered ahead and not used.
        let others = ROOT + 1..state.units.len();
        let others = others.filter(|&other| last != Some(other) && !is_kept(other));
        let others: Vec<usize> = others.filter(|_| unit == ROOT && drops).collect();
        if drops && !stays {
            state.release_behind(unit, records, &self.groups)?;
        }
        if unit == ROOT {
            state.order.end();
            for other in others {
                state.release(other)?;
            }
        }
        Ok(())
    }

    /// Drops what forward passes left whole, outside of backward passes: shards are about to change.
    pub(super) fn rest(&self) -> Result<()> {
        let mut state = self.lock();
        if state.is_summoned || state.in_backward {
            return Ok(());
        }
        state.release_all()?;
        state.forget_second()?;
        state.forget_whole()
    }

    /// The calls of these units hold frozen parameters, whose backward pass nothing else ends.
    pub(super) fn has_frozen(&self, unit: usize) -> bool {
        self.lock().units.get(unit).is_some_and(Unit::has_frozen)
    }
}

impl State {
    /// A forward pass of the whole model begins from shards, which somebody may have changed.
    fn begin_forward(&mut self) -> Result<()> {
        self.release_all()?;
        self.forget_second()?;
        self.order.begin();
        Ok(())
    }

    /// Makes a unit whole.
    pub(super) fn gather(&mut self, unit: usize, groups: &Groups) -> Result<()> {
        self.start_gather(unit, groups)?;
        let Self { units, pool, .. } = self;
        for flat in &mut unit_at(units, unit)?.flats {
            flat.finish_gather(pool)?;
        }
        Ok(())
    }

    /// Begins to make a unit whole, if it is not.
    pub(super) fn start_gather(&mut self, unit: usize, groups: &Groups) -> Result<()> {
        let Self { units, pool, .. } = self;
        for flat in &mut unit_at(units, unit)?.flats {
            flat.start_gather(groups, pool)?;
        }
        self.read_ahead(unit)
    }

    /// Begins to read from disk what will be gathered behind a unit.
    fn read_ahead(&self, unit: usize) -> Result<()> {
        let next = match self.in_backward {
            true => {
                let place = self.ran.iter().position(|&ran| ran == unit);
                let before = place.and_then(|place| place.checked_sub(1));
                before.and_then(|before| self.ran.get(before).copied())
            }
            false => self.order.behind(unit),
        };
        match next.and_then(|next| self.units.get(next)) {
            Some(next) => next.flats.iter().try_for_each(Flat::read_ahead),
            None => Ok(()),
        }
    }

    /// Drops what is whole of a unit.
    pub(super) fn release(&mut self, unit: usize) -> Result<()> {
        let Self { units, pool, .. } = self;
        for flat in &mut unit_at(units, unit)?.flats {
            flat.release(pool)?;
        }
        Ok(())
    }

    /// Drops what is whole of a unit behind its forward pass.
    fn release_behind(&mut self, unit: usize, records: bool, groups: &Groups) -> Result<()> {
        let Self { units, pool, .. } = self;
        for flat in &mut unit_at(units, unit)?.flats {
            match records {
                true => flat.release_to_second(groups, pool)?,
                false => flat.release(pool)?,
            }
        }
        Ok(())
    }

    /// Lets no backward pass gather from second shards any more.
    pub(super) fn forget_second(&mut self) -> Result<()> {
        let Self { units, pool, .. } = self;
        let mut flats = units.iter_mut().flat_map(|unit| &mut unit.flats);
        flats.try_for_each(|flat| flat.forget_second(pool))
    }

    /// What was gathered is not to be used again.
    pub(super) fn forget_whole(&mut self) -> Result<()> {
        let Self { units, pool, .. } = self;
        let mut flats = units.iter_mut().flat_map(|unit| &mut unit.flats);
        flats.try_for_each(|flat| flat.forget_whole(pool))
    }

    /// Adds the gradients of one storage up.
    pub(super) fn start_reduction(
        &mut self,
        unit: usize,
        flat: usize,
        groups: &Groups,
    ) -> Result<()> {
        let Self {
            units,
            pool,
            reducing,
            ..
        } = self;
        if let Some(storage) = unit_at(units, unit)?.flats.get_mut(flat) {
            storage.start_reduction(groups, pool)?;
            reducing.push_back((unit, flat));
        }
        Ok(())
    }

    /// Ends the reductions that need no waiting, so that their memory is free.
    pub(super) fn finish_what_is_reduced(&mut self, groups: &Groups) -> Result<()> {
        let Some(&(unit, flat)) = self.reducing.front() else {
            return Ok(());
        };
        let storage = unit_at(&mut self.units, unit)?.flats.get(flat);
        match storage.and_then(|storage| storage.gradients.as_ref()) {
            Some(gradients) if gradients.ends_together(groups) => Ok(()),
            Some(gradients) if !gradients.is_reduced()? => Ok(()),
            _ => self.finish_reductions(groups),
        }
    }

    /// Waits for the reductions that are on their way.
    pub(super) fn finish_reductions(&mut self, groups: &Groups) -> Result<()> {
        while !self.reducing.is_empty() {
            let Self {
                units,
                pool,
                reducing,
                ..
            } = self;
            let Some((unit, flat)) = reducing.pop_front() else {
                break;
            };
            if let Some(storage) = unit_at(units, unit)?.flats.get_mut(flat) {
                storage.finish_reduction(groups, pool)?;
            }
        }
        Ok(())
    }
}
