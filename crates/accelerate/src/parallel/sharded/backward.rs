//! The backward pass: units are gathered again, and their gradients reduced as they are complete.

use accelerate_plan::settings::BackwardPrefetch;

use super::agreement::{Agreement, Report};
use super::engine::{Engine, ROOT, State};
use super::flat::Flat;
use super::groups::Groups;
use super::pool::Pool;
use super::unit::{Unit, unit_at};
use super::units::is_below;
use crate::{Error, Result};

impl Engine {
    /// The gradient of an output of a unit is there: its backward pass begins.
    pub(super) fn before_backward(&self, unit: usize, call: u64) -> Result<()> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.is_summoned {
            return self.refuse_summoned();
        }
        // Through a model that is only evaluated, gradients just pass: nothing ends that.
        if self.trains {
            self.begin_backward(state)?;
            let place = state.route.iter().position(|&next| next == unit);
            if let Some(place) = place {
                self.catch_up(state, place)?;
                state.passed = state.passed.max(place + 1);
                if self.syncs() {
                    state.reduce_behind(unit, place, &self.groups)?;
                }
            }
        }
        let own = unit_at(&mut state.units, unit)?;
        if !own.active.contains(&call) {
            own.active.push(call);
        }
        self.make_ready(state, unit)
    }

    /// Makes a unit whole for its backward pass, and begins to gather the one that comes next.
    fn make_ready(&self, state: &mut State, unit: usize) -> Result<()> {
        state.gather(unit, &self.groups)?;
        for flat in &mut unit_at(&mut state.units, unit)?.flats {
            flat.begin_gradients()?;
        }
        if self.timing.prefetch_backward == BackwardPrefetch::BackwardPre {
            state.prefetch_backward(unit, &self.groups)?;
        }
        Ok(())
    }

    fn refuse_summoned(&self) -> Result<()> {
        if !self.trains {
            return Ok(());
        }
        Err(Error::Argument {
            operation: "backward pass of a sharded model",
            expected:
                "one outside of `with_whole_parameters`, where gradients have shards to go to"
                    .to_owned(),
            found: "one inside".to_owned(),
        })
    }

    /// The gradients of all inputs of a call are there: its frozen parameters are done with.
    pub(super) fn after_backward(&self, unit: usize, call: u64) -> Result<()> {
        let mut guard = self.lock();
        let State { units, pool, .. } = &mut *guard;
        let own = unit_at(units, unit)?;
        own.active.retain(|&active| active != call);
        if own.active.is_empty() {
            own.is_done |= !own.has_trained();
            for flat in own.flats.iter_mut().filter(|flat| flat.gradients.is_none()) {
                flat.release(pool)?;
            }
        }
        Ok(())
    }

    /// A parameter has its gradient of this backward pass.
    pub(super) fn gradient_arrived(&self, unit: usize, flat: usize, index: usize) -> Result<()> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.is_summoned {
            return self.refuse_summoned();
        }
        self.begin_backward(state)?;
        state.finish_what_is_reduced(&self.groups)?;
        let own = unit_at(&mut state.units, unit)?;
        let gradients = own
            .flats
            .get_mut(flat)
            .and_then(|flat| flat.gradients.as_mut());
        if !gradients.is_some_and(|gradients| gradients.arrive(index)) {
            return Ok(());
        }
        let is_whole_unit = own.is_complete();
        own.is_done = is_whole_unit;
        if !self.syncs() {
            let State { units, pool, .. } = state;
            if let Some(complete) = unit_at(units, unit)?.flats.get_mut(flat) {
                complete.release(pool)?;
            }
        } else if is_whole_unit {
            state.reduce_complete(&self.groups)?;
        }
        if is_whole_unit && self.timing.prefetch_backward == BackwardPrefetch::BackwardPost {
            state.prefetch_backward(unit, &self.groups)?;
        }
        Ok(())
    }

    fn begin_backward(&self, state: &mut State) -> Result<()> {
        if state.in_backward {
            return Ok(());
        }
        state.begin_backward()?;
        self.tell(state, true)
    }

    /// Begins to tell the other ranks what this one does in a backward pass that is theirs too.
    fn tell(&self, state: &mut State, goes_back: bool) -> Result<()> {
        let is_shared = self.syncs() || self.timing.drops_after_forward;
        if !self.trains || !is_shared {
            return Ok(());
        }
        let mut left = Vec::with_capacity(state.units.len());
        for (unit, own) in state.units.iter().enumerate() {
            left.push(!state.ran.contains(&unit) && own.has_whole_gradients()?);
        }
        let report = Report {
            goes_back,
            ran: &state.ran,
            left: &left,
        };
        let agreement = Agreement::start(&self.groups.agree, self.device, &report)?;
        state.agreement = Some(agreement);
        Ok(())
    }

    /// Tells the other ranks that no gradient came to this model, where that is so.
    ///
    /// # Collective
    /// Every rank calls this behind a backward pass, before [`finish_backward`](Self::finish_backward).
    pub(super) fn join_backward(&self) -> Result<()> {
        let mut guard = self.lock();
        match guard.in_backward || guard.is_summoned {
            true => Ok(()),
            false => self.tell(&mut guard, false),
        }
    }

    /// Whether nothing has to be waited for to know what the other ranks do.
    pub(super) fn is_agreed(&self) -> Result<bool> {
        match &self.lock().agreement {
            Some(agreement) => agreement.is_complete(),
            None => Ok(true),
        }
    }

    /// The backward pass is over: reduces what is left, and leaves shards with their gradients. Where
    /// gradients came to the model on other ranks only, this one brings zeros.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// [`Error::Argument`] on all ranks if they used other units than each other.
    pub(super) fn finish_backward(&self) -> Result<()> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let goes_back = state.settle()?;
        if !state.in_backward {
            if !goes_back {
                return Ok(());
            }
            state.begin_backward()?;
        }
        self.catch_up(state, usize::MAX)?;
        if self.syncs() {
            state.reduce_rest(&self.groups)?;
        }
        for unit in ROOT..state.units.len() {
            state.release(unit)?;
        }
        state.forget_second()?;
        for unit in &mut state.units {
            unit.end_pass()?;
        }
        state.forget_pass();
        Ok(())
    }

    /// Makes the exchanges of units that gradients of other ranks may go through, up to a place on the
    /// way back, with gradients that are zero: this rank's have passed them by.
    ///
    /// The way is that of one forward pass. Of several before one backward pass it is the last one's.
    fn catch_up(&self, state: &mut State, place: usize) -> Result<()> {
        while state.passed < place.min(state.route.len()) {
            let Some(unit) = state.route.get(state.passed).copied() else {
                break;
            };
            state.passed += 1;
            self.make_ready(state, unit)?;
            let behind = state.route.iter().take(state.passed);
            let behind: Vec<usize> = behind.copied().collect();
            if self.syncs() {
                state.reduce_passed(&behind, &self.groups)?;
            }
            if self.timing.prefetch_backward == BackwardPrefetch::BackwardPost {
                state.prefetch_backward(unit, &self.groups)?;
            }
        }
        Ok(())
    }

    /// The backward pass failed: nothing of it is waited for any more.
    pub(super) fn abandon_backward(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.is_summoned {
            // Parameters look at something else than shards until somebody ends that.
            return;
        }
        state.reducing.clear();
        state.forget_pass();
        let State { units, pool, .. } = state;
        for unit in units {
            if let Err(error) = unit.abandon_pass(pool) {
                tracing::debug!(%error, "a unit is not in shards after a failed backward pass");
            }
        }
    }
}

impl Unit {
    fn forget_pass(&mut self) {
        self.active.clear();
        self.is_done = false;
        for gradients in self
            .flats
            .iter_mut()
            .filter_map(|flat| flat.gradients.as_mut())
        {
            gradients.end_pass();
        }
    }

    fn abandon_pass(&mut self, pool: &mut Pool) -> Result<()> {
        self.forget_pass();
        let mut flats = self.flats.iter_mut();
        flats.try_for_each(|flat| flat.abandon(pool))
    }

    fn end_pass(&mut self) -> Result<()> {
        self.forget_pass();
        for flat in &mut self.flats {
            if let Some(gradients) = &mut flat.gradients {
                gradients.show(&flat.members)?;
            }
        }
        Ok(())
    }
}

impl State {
    fn begin_backward(&mut self) -> Result<()> {
        self.in_backward = true;
        // What was used first has its gradients last.
        self.queue = self.ran.iter().rev().copied().collect();
        self.route = self.watched.iter().rev().copied().collect();
        self.passed = 0;
        let mut flats = self.units.iter_mut().flat_map(|unit| &mut unit.flats);
        flats.try_for_each(Flat::begin_gradients)
    }

    fn forget_pass(&mut self) {
        self.queue.clear();
        self.ran.clear();
        self.watched.clear();
        self.route.clear();
        self.left.clear();
        self.agreement = None;
        self.in_backward = false;
    }

    /// Waits for what the other ranks tell of this backward pass, if that has not been done; whether
    /// gradients of any rank go through the model.
    ///
    /// # Errors
    /// [`Error::Argument`] if they do and ranks used other units than each other.
    fn settle(&mut self) -> Result<bool> {
        let Some(agreement) = self.agreement.take() else {
            return Ok(self.in_backward);
        };
        let agreed = agreement.finish()?;
        if agreed.goes_back && !agreed.same_units {
            let own = self.ran.iter().filter_map(|&unit| self.units.get(unit));
            let own: Vec<String> = own.map(|unit| format!("`{}`", unit.name)).collect();
            return Err(Error::Argument {
                operation: "backward pass of a sharded model",
                expected: "the same units in the same order on every rank".to_owned(),
                found: format!("others than this rank's {}", own.join(", ")),
            });
        }
        self.left = agreed.left;
        Ok(agreed.goes_back)
    }

    /// Begins to gather the unit whose backward pass comes after that of `unit`.
    fn prefetch_backward(&mut self, unit: usize, groups: &Groups) -> Result<()> {
        let place = self.ran.iter().position(|&ran| ran == unit).unwrap_or(0);
        let mut before = self.ran.iter().take(place).rev().copied();
        let next = before.find(|&unit| self.units.get(unit).is_some_and(|own| !own.is_done));
        match next {
            Some(next) => self.start_gather(next, groups),
            None => Ok(()),
        }
    }

    /// Reduces the units that are complete, as far as it is their turn.
    fn reduce_complete(&mut self, groups: &Groups) -> Result<()> {
        self.reduce_passed(&[], groups)
    }

    /// Reduces the units whose turn it is, if gradients have passed them or are complete.
    fn reduce_passed(&mut self, passed: &[usize], groups: &Groups) -> Result<()> {
        while let Some(&unit) = self.queue.front() {
            let own = unit_at(&mut self.units, unit)?;
            if !passed.contains(&unit) && own.has_trained() && !own.is_complete() {
                break;
            }
            self.queue.pop_front();
            self.reduce(unit, groups)?;
        }
        Ok(())
    }

    /// Reduces what gradients have passed when they come to `unit`, also where a parameter got none:
    /// on another rank it may have one, and that rank would wait for this one.
    fn reduce_behind(&mut self, unit: usize, place: usize, groups: &Groups) -> Result<()> {
        let turn = self.queue.iter().position(|&next| next == unit);
        let (Some(turn), Some(own)) = (turn, self.units.get(unit)) else {
            return Ok(());
        };
        let is_passed = |other: &usize| {
            let other_unit = self.units.get(*other);
            let is_around = other_unit.is_some_and(|one| is_below(&own.name, &one.name));
            !is_around && self.route.iter().take(place).any(|passed| passed == other)
        };
        let ahead = self.queue.iter().take(turn).copied();
        let behind: Vec<usize> = ahead.take_while(is_passed).collect();
        self.reduce_passed(&behind, groups)
    }

    fn reduce(&mut self, unit: usize, groups: &Groups) -> Result<()> {
        self.settle()?;
        for flat in 0..unit_at(&mut self.units, unit)?.flats.len() {
            let storage = unit_at(&mut self.units, unit)?.flats.get_mut(flat);
            let Some(storage) = storage.filter(|flat| flat.gradients.is_some()) else {
                continue;
            };
            // No gradient of this rank may have come to it.
            storage.hide_gradients()?;
            // The one before went on while these gradients were computed; its memory serves.
            self.finish_reductions(groups)?;
            self.start_reduction(unit, flat, groups)?;
        }
        Ok(())
    }

    /// Reduces the units whose turn did not come, those that got gradients behind theirs, and those
    /// that keep gradients of passes which did not synchronise, on any rank, and were not used in this
    /// one.
    fn reduce_rest(&mut self, groups: &Groups) -> Result<()> {
        while let Some(unit) = self.queue.pop_front() {
            self.reduce(unit, groups)?;
        }
        self.finish_reductions(groups)?;
        for unit in 0..self.units.len() {
            let is_left = self.left.get(unit).copied().unwrap_or_default();
            if is_left || unit_at(&mut self.units, unit)?.has_whole_gradients()? {
                self.reduce(unit, groups)?;
            }
        }
        self.finish_reductions(groups)
    }
}
