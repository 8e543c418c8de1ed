//! The backward pass: units are gathered again, and their gradients reduced as they are complete.

use accelerate_plan::settings::BackwardPrefetch;

use super::engine::{Engine, ROOT, State};
use super::flat::Flat;
use super::groups::Groups;
use super::pool::Pool;
use super::unit::{Unit, unit_at};
use crate::Result;

impl Engine {
    /// The gradient of an output of a unit is there: its backward pass begins.
    pub(super) fn before_backward(&self, unit: usize, call: u64) -> Result<()> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.is_summoned {
            return Ok(());
        }
        // Through a model that is only evaluated, gradients just pass: nothing ends that.
        if self.trains {
            state.begin_backward()?;
        }
        let own = unit_at(&mut state.units, unit)?;
        if !own.active.contains(&call) {
            own.active.push(call);
        }
        state.gather(unit, &self.groups)?;
        for flat in &mut unit_at(&mut state.units, unit)?.flats {
            flat.begin_gradients()?;
        }
        if self.timing.prefetch_backward == BackwardPrefetch::BackwardPre {
            state.prefetch_backward(unit, &self.groups)?;
        }
        Ok(())
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
            return Ok(());
        }
        state.begin_backward()?;
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

    /// The backward pass is over: reduces what is left, and leaves shards with their gradients.
    ///
    /// # Collective
    /// The ranks that ran the same units call this.
    pub(super) fn finish_backward(&self) -> Result<()> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if !state.in_backward {
            return Ok(());
        }
        if self.syncs() {
            state.reduce_rest(&self.groups)?;
        }
        for unit in ROOT..state.units.len() {
            state.release(unit)?;
        }
        for unit in &mut state.units {
            unit.end_pass()?;
        }
        state.queue.clear();
        state.ran.clear();
        state.in_backward = false;
        Ok(())
    }

    /// The backward pass failed: nothing of it is waited for any more.
    pub(super) fn abandon_backward(&self) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.queue.clear();
        state.reducing.clear();
        state.ran.clear();
        state.in_backward = false;
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
        if self.in_backward {
            return Ok(());
        }
        self.in_backward = true;
        // What was used first has its gradients last.
        self.queue = self.ran.iter().rev().copied().collect();
        let mut flats = self.units.iter_mut().flat_map(|unit| &mut unit.flats);
        flats.try_for_each(Flat::begin_gradients)
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
        while let Some(&unit) = self.queue.front() {
            let own = unit_at(&mut self.units, unit)?;
            if own.has_trained() && !own.is_complete() {
                break;
            }
            self.queue.pop_front();
            self.reduce(unit, groups)?;
        }
        Ok(())
    }

    fn reduce(&mut self, unit: usize, groups: &Groups) -> Result<()> {
        for flat in 0..unit_at(&mut self.units, unit)?.flats.len() {
            let storage = unit_at(&mut self.units, unit)?.flats.get(flat);
            if storage.is_some_and(|flat| flat.gradients.is_some()) {
                // The one before went on while these gradients were computed; its memory serves.
                self.finish_reductions(groups)?;
                self.start_reduction(unit, flat, groups)?;
            }
        }
        Ok(())
    }

    /// Reduces the units whose turn did not come, those that got gradients behind theirs, and those
    /// that keep gradients of passes which did not synchronise, and were not used in this one.
    fn reduce_rest(&mut self, groups: &Groups) -> Result<()> {
        while let Some(unit) = self.queue.pop_front() {
            self.reduce(unit, groups)?;
        }
        self.finish_reductions(groups)?;
        for unit in 0..self.units.len() {
            let own = unit_at(&mut self.units, unit)?;
            if own.has_whole_gradients()? {
                let mut flats = own.flats.iter_mut();
                flats.try_for_each(Flat::hide_gradients)?;
                self.reduce(unit, groups)?;
            }
        }
        self.finish_reductions(groups)
    }
}
