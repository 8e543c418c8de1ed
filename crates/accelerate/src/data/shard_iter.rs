use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use super::collate::Collate;
use super::dataset::Dataset;
use super::loader::{DataLoaderIter, Start};
use super::loader_state::with_global;
use super::progress::LoaderScope;
use super::shard::DataLoaderShard;
use super::shard_position::RunningLoop;
use crate::{Error, Result};

impl<D, C> DataLoaderShard<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// Starts an epoch, or goes on with the one of a state that was loaded.
    ///
    /// A failure to start is the first item.
    pub fn iter(&self) -> DataLoaderShardIter<'_, D, C> {
        self.iter_from(0)
    }

    /// Starts an epoch behind the next `skipped` batches of this rank.
    pub(super) fn iter_from(&self, skipped: usize) -> DataLoaderShardIter<'_, D, C> {
        let handed_out = Rc::new(Cell::new(0));
        let (failed, batches) = match self.begin(skipped, &handed_out) {
            Ok(batches) => (None, Some(batches)),
            Err(error) => (Some(error), None),
        };
        let remainder = self.remainder_after(handed_out.get());
        DataLoaderShardIter {
            shard: self,
            failed,
            batches,
            ahead: Ahead::Nothing,
            begun_within: handed_out.get() > 0,
            handed_out,
            scope: Some(self.options.progress.begin(remainder)),
        }
    }

    /// Draws the epoch's order, from `handed_out` on, which it sets.
    fn begin(
        &self,
        skipped: usize,
        handed_out: &Rc<Cell<usize>>,
    ) -> Result<DataLoaderIter<'_, D, C>> {
        let position = &self.position;
        let loaded = position.loaded.borrow().clone();
        if let Some(state) = &loaded {
            position.restore(&state.generators)?;
        }
        let resumed = loaded.filter(|state| state.in_epoch);
        self.synchronize(resumed.is_some())?;
        position.batches.set_epoch(position.epoch.get());

        let per_step = position.batches_per_step.get();
        let follows_rank_0 = resumed.is_none() && self.draws_from_rank_0();
        let (done, drawn_from) = match &resumed {
            Some(state) => (state.batches, state.generators.clone()),
            None if follows_rank_0 => (0, self.generators_of_rank_0()?),
            None => (0, position.generators(true)?),
        };
        let start = Start {
            passed_over: done.saturating_add(skipped.saturating_mul(per_step)),
            number: (done / per_step).saturating_add(skipped),
            draw_now: resumed.is_some() || follows_rank_0,
            notes_indices: self.options.progress.recording().is_some(),
        };
        handed_out.set(start.passed_over);
        // Rank 0 itself moves on, as a process by itself would.
        let own_draws = follows_rank_0 && self.options.process_index == 0;
        let global = drawn_from.global.as_ref();
        let global = global.filter(|_| start.draw_now && !own_draws);
        let batches = with_global(global, || self.loader.iter_from(start))?;
        position.loaded.replace(None);
        position.running.replace(Some(RunningLoop {
            handed_out: Rc::clone(handed_out),
            drawn_from,
        }));
        Ok(batches)
    }
}

impl<'a, D, C> IntoIterator for &'a DataLoaderShard<D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;
    type IntoIter = DataLoaderShardIter<'a, D, C>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The batches of one epoch of a [`DataLoaderShard`].
pub struct DataLoaderShardIter<'a, D: Dataset, C: Collate<D::Item>>
where
    C::Batch: 'static,
{
    shard: &'a DataLoaderShard<D, C>,
    failed: Option<Error>,
    batches: Option<DataLoaderIter<'a, D, C>>,
    ahead: Ahead<C::Batch>,
    /// Whether the loop began behind the epoch's first batch.
    begun_within: bool,
    /// How far the epoch has come, in batches of all ranks.
    handed_out: Rc<Cell<usize>>,
    scope: Option<LoaderScope>,
}

/// The batch that was read ahead.
enum Ahead<B> {
    /// Nothing was read yet.
    Nothing,
    /// It comes next.
    Batch(Result<B>),
    /// The last batch was handed out.
    End,
}

impl<D, C> DataLoaderShardIter<'_, D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    fn read(&mut self) -> Option<Result<C::Batch>> {
        self.batches
            .as_mut()?
            .next()
            .map(|batch| self.shard.place(batch))
    }

    fn recorded(&self, batch: C::Batch) -> Result<C::Batch> {
        self.scope.iter().for_each(|scope| scope.count(&batch));
        if let Some(scope) = self.scope.as_ref().filter(|scope| scope.is_recorded()) {
            let indices = self.batches.as_ref().and_then(DataLoaderIter::next_indices);
            scope.record(&batch, self.shard.position.epoch.get(), indices)?;
        }
        Ok(batch)
    }

    fn finish(&mut self, complete: bool) {
        self.batches = None;
        if self.scope.take().is_none() {
            return;
        }
        let position = &self.shard.position;
        let own = |running: &RunningLoop| Rc::ptr_eq(&running.handed_out, &self.handed_out);
        if position.running.borrow().as_ref().is_some_and(own) {
            position.running.replace(None);
        }
        if complete {
            position.epoch.set(position.epoch.get() + 1);
        }
    }
}

impl<D, C> Iterator for DataLoaderShardIter<'_, D, C>
where
    D: Dataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let _waiting = self.shard.options.progress.steps().wait_for_data();
        if let Some(error) = self.failed.take() {
            self.finish(false);
            return Some(Err(error));
        }
        let current = match std::mem::replace(&mut self.ahead, Ahead::End) {
            Ahead::Batch(batch) => Some(batch),
            Ahead::Nothing => self.read(),
            Ahead::End => {
                self.finish(true);
                return None;
            }
        };
        let Some(current) = current else {
            // An epoch without a batch does not count; one whose batches were all
            // handed out before does.
            self.finish(self.begun_within);
            return None;
        };
        match self.read() {
            Some(next) => self.ahead = Ahead::Batch(next),
            None => {
                if let Some(scope) = &self.scope {
                    scope.reach_end();
                    if let Some(samples) = self.shard.position.once_in_last_round.get() {
                        scope.set_remainder(Some(samples));
                    }
                }
            }
        }
        let step = self.shard.position.batches_per_step.get();
        self.handed_out.set(self.handed_out.get() + step);
        Some(current.and_then(|batch| self.recorded(batch)))
    }
}

impl<D: Dataset, C: Collate<D::Item>> fmt::Debug for DataLoaderShardIter<'_, D, C>
where
    C::Batch: 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderShardIter")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
