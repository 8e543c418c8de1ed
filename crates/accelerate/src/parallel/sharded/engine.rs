//! All units of one model on one rank: what is whole when.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use accelerate_torch::autograd;

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
        let engine = Arc::new(Self {
            groups,
            timing,
            trains: units.iter().any(Unit::has_trained),
            syncs: AtomicBool::new(true),
            state: Mutex::new(State {
                units,
                pool: Pool::default(),
                order: Order::default(),
                ran: Vec::new(),
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
    pub(super) fn leave(&self, unit: usize, records: bool) -> Result<()> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.is_summoned || state.in_backward {
            return Ok(());
        }
        let drops = !records || self.timing.drops_after_forward;
        // The backward pass begins with what was used last.
        let last = state.order.last().filter(|_| records);
        let keeps_root = records && self.timing.keeps_root;
        let stays = last == Some(unit) || (unit == ROOT && keeps_root);
        if drops && !stays {
            state.release(unit)?;
        }
        if unit == ROOT {
            state.order.end();
            if drops {
                // Gathered ahead and not used.
                let others = ROOT + 1..state.units.len();
                for other in others.filter(|&other| last != Some(other)) {
                    state.release(other)?;
                }
            }
        }
        Ok(())
    }

    /// Drops what forward passes left whole, outside of backward passes.
    pub(super) fn rest(&self) -> Result<()> {
        let mut state = self.lock();
        match state.is_summoned || state.in_backward {
            true => Ok(()),
            false => state.release_all(),
        }
    }

    /// The calls of these units hold frozen parameters, whose backward pass nothing else ends.
    pub(super) fn has_frozen(&self, unit: usize) -> bool {
        self.lock().units.get(unit).is_some_and(Unit::has_frozen)
    }
}

impl State {
    /// A forward pass of the whole model begins from shards, which an optimizer may have changed.
    fn begin_forward(&mut self) -> Result<()> {
        self.release_all()?;
        self.order.begin();
        Ok(())
    }

    /// Makes a unit whole.
    pub(super) fn gather(&mut self, unit: usize, groups: &Groups) -> Result<()> {
        self.start_gather(unit, groups)?;
        for flat in self.flats(unit)? {
            flat.finish_gather()?;
        }
        Ok(())
    }

    /// Begins to make a unit whole, if it is not.
    pub(super) fn start_gather(&mut self, unit: usize, groups: &Groups) -> Result<()> {
        let Self { units, pool, .. } = self;
        for flat in &mut unit_at(units, unit)?.flats {
            flat.start_gather(&groups.gather, pool)?;
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

    fn flats(&mut self, unit: usize) -> Result<&mut Vec<Flat>> {
        Ok(&mut unit_at(&mut self.units, unit)?.flats)
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
        // With copies the end is a collective, which ranks have to come to at the same time.
        let front = self.reducing.front().filter(|_| groups.replicate.is_none());
        let Some(&(unit, flat)) = front else {
            return Ok(());
        };
        let storage = unit_at(&mut self.units, unit)?.flats.get(flat);
        match storage.and_then(|storage| storage.gradients.as_ref()) {
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
