//! The loop over one rank's part of a stream.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use accelerate_torch::ProcessGroup;

use super::IterableDataset;
use super::loader::{IterableDataLoaderIter, Start};
use super::lock_step::{Step, Turn, agree};
use super::position::HandedOut;
use super::prepared::IterableDataLoaderShard;
use super::rank_stream::RankStream;
use super::turns::Turns;
use crate::data::collate::Collate;
use crate::data::dispatcher::place;
use crate::data::progress::LoaderScope;
use crate::{Error, Result};

/// A loop that has begun.
pub(super) struct Begun<'a, D: IterableDataset, C: Collate<D::Item>>
where
    C::Batch: 'static,
{
    pub(super) batches: IterableDataLoaderIter<'a, RankStream<D>, C>,
    pub(super) again: Option<IterableDataLoaderIter<'a, RankStream<D>, C>>,
    pub(super) base_seed: u64,
    pub(super) handed_out: Rc<RefCell<HandedOut>>,
}

/// The batches of one epoch of an [`IterableDataLoaderShard`].
pub struct IterableDataLoaderShardIter<'a, D: IterableDataset, C: Collate<D::Item>>
where
    C::Batch: 'static,
{
    shard: &'a IterableDataLoaderShard<D, C>,
    /// This rank's batches; `None` once they have ended.
    batches: Option<IterableDataLoaderIter<'a, RankStream<D>, C>>,
    /// The same batches again, for a rank that is through while others are not.
    again: Option<IterableDataLoaderIter<'a, RankStream<D>, C>>,
    /// What seeds the workers in this epoch.
    base_seed: u64,
    read_any: bool,
    /// Whether the loop began behind the epoch's first batch.
    begun_within: bool,
    handed_out: Option<Rc<RefCell<HandedOut>>>,
    ahead: Ahead<C::Batch>,
    scope: Option<LoaderScope>,
}

/// What of a rank's stream a batch is.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// It is read for the first time, of this part.
    Own(usize),
    /// It is read again, of this part; `true` where that begins.
    Again(usize, bool),
}

/// What was read ahead.
enum Ahead<B> {
    /// Nothing yet.
    Nothing,
    /// The batch that comes next.
    Batch(Origin, B),
    /// The error that comes next, and last.
    Failed(Error),
    /// The last batch was handed out.
    End,
}

impl<'a, D, C> IterableDataLoaderShardIter<'a, D, C>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    /// A loop that `begun` began; where that failed, the failure is its only item.
    pub(super) fn new(
        shard: &'a IterableDataLoaderShard<D, C>,
        begun: Result<Begun<'a, D, C>>,
    ) -> Self {
        let (ahead, begun) = match begun {
            Ok(begun) => (Ahead::Nothing, Some(begun)),
            Err(error) => (Ahead::Failed(error), None),
        };
        let handed_out = begun.as_ref().map(|begun| Rc::clone(&begun.handed_out));
        let begun_within = handed_out
            .as_ref()
            .is_some_and(|out| out.borrow().steps > 0);
        let (batches, again, base_seed) = begun.map_or((None, None, 0), |begun| {
            (Some(begun.batches), begun.again, begun.base_seed)
        });
        Self {
            shard,
            batches,
            again,
            base_seed,
            read_any: begun_within,
            begun_within,
            handed_out,
            ahead,
            scope: Some(shard.options.progress.begin(None)),
        }
    }

    /// The next batch of this rank, `None` at the end of the loop.
    fn read(&mut self) -> Result<Option<(Origin, C::Batch)>> {
        let options = &self.shard.options;
        let read = match &self.shard.lock_step {
            None => self.read_own().transpose()?,
            Some(group) => self.read_together(group)?,
        };
        let Some((origin, batch)) = read else {
            return Ok(None);
        };
        let batch = place(batch, options.device, options.non_blocking)?;
        Ok(Some((origin, batch)))
    }

    fn read_own(&mut self) -> Option<Result<(Origin, C::Batch)>> {
        let read = self.batches.as_mut()?.next_of_part();
        match &read {
            Some(_) => self.read_any = true,
            None => self.batches = None,
        }
        read.map(|(part, batch)| Ok((Origin::Own(part), batch?)))
    }

    /// As [`read_own`](Self::read_own), at the pace of all ranks.
    fn read_together(&mut self, group: &ProcessGroup) -> Result<Option<(Origin, C::Batch)>> {
        let (turn, batch) = match self.read_own() {
            Some(Ok(batch)) => (Turn::Batch, Ok(Some(batch))),
            Some(Err(error)) => (Turn::Failed, Err(error)),
            None if !self.read_any => (Turn::Empty, Ok(None)),
            None => match self.read_again() {
                Ok(batch) => (Turn::Ended, Ok(Some(batch))),
                Err(error) => (Turn::Failed, Err(error)),
            },
        };
        match (agree(group, turn, batch.as_ref().err()), batch) {
            // A rank's own error says more than that there was one.
            (_, Err(error)) | (Err(error), _) => Err(error),
            (Ok(Step::End), _) => Ok(None),
            (Ok(Step::Go), batch) => batch,
        }
    }

    fn read_again(&mut self) -> Result<(Origin, C::Batch)> {
        if let Some((part, batch)) = self
            .again
            .as_mut()
            .and_then(IterableDataLoaderIter::next_of_part)
        {
            return Ok((Origin::Again(part, false), batch?));
        }
        let parts = self.handed_out.as_ref().map_or(1, |out| {
            let out = out.borrow();
            out.progress.read.parts.len()
        });
        let mut again = self.shard.loader().iter_from(Start {
            turns: Some(Turns::begin(parts)),
            // No draw that only some ranks make.
            base_seed: Some(self.base_seed),
        });
        let batch = again.next_of_part();
        self.again = Some(again);
        let Some((part, batch)) = batch else {
            return Err(Error::Argument {
                operation: "IterableDataset::shard",
                expected: "the same samples when it is called again, for ranks whose part is \
                           shorter than others'"
                    .to_owned(),
                found: "none; turn `even_batches` off for parts that can be read only once"
                    .to_owned(),
            });
        };
        Ok((Origin::Again(part, true), batch?))
    }

    /// Counts a batch that is handed out.
    fn count_out(&self, origin: Origin) {
        let Some(handed_out) = &self.handed_out else {
            return;
        };
        let mut handed_out = handed_out.borrow_mut();
        handed_out.steps += 1;
        let progress = &mut handed_out.progress;
        match origin {
            Origin::Own(part) => progress.read.handed_out(part),
            Origin::Again(part, begins) => {
                let parts = progress.read.parts.len();
                let again = progress.again.take().filter(|_| !begins);
                let mut again = again.unwrap_or_else(|| Turns::begin(parts));
                again.handed_out(part);
                progress.again = Some(again);
            }
        }
    }

    fn read_ahead(&mut self) {
        self.ahead = match self.read() {
            Ok(Some((origin, batch))) => Ahead::Batch(origin, batch),
            Err(error) => Ahead::Failed(self.shard.options.explained(error)),
            Ok(None) => {
                if let Some(scope) = &self.scope {
                    scope.set_remainder(self.shard.remainder());
                    scope.reach_end();
                }
                Ahead::End
            }
        };
    }

    fn finish(&mut self, complete: bool) {
        (self.batches, self.again) = (None, None);
        if self.scope.take().is_none() {
            return;
        }
        let position = &self.shard.position;
        let is_own = position.running.borrow().as_ref().is_some_and(|running| {
            let own = self.handed_out.as_ref();
            own.is_some_and(|own| Rc::ptr_eq(&running.handed_out, own))
        });
        if is_own {
            position.running.replace(None);
        }
        if complete {
            position.epoch.set(position.epoch.get() + 1);
        }
    }
}

impl<D, C> Iterator for IterableDataLoaderShardIter<'_, D, C>
where
    D: IterableDataset + 'static,
    C: Collate<D::Item> + 'static,
    C::Batch: 'static,
{
    type Item = Result<C::Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let _waiting = self.shard.options.progress.steps().wait_for_data();
        let first = matches!(self.ahead, Ahead::Nothing);
        if first {
            self.read_ahead();
        }
        match std::mem::replace(&mut self.ahead, Ahead::End) {
            Ahead::Batch(origin, batch) => {
                self.read_ahead();
                self.count_out(origin);
                self.scope.iter().for_each(|scope| scope.count(&batch));
                let recorded = match &self.scope {
                    Some(scope) => scope.record(&batch, self.shard.position.epoch.get(), None),
                    None => Ok(()),
                };
                Some(recorded.map(|()| batch))
            }
            Ahead::Failed(error) => {
                self.finish(false);
                Some(Err(error))
            }
            Ahead::Nothing | Ahead::End => {
                // An epoch without a batch does not count; one whose batches were all handed out
                // before does.
                self.finish(!first || self.begun_within);
                None
            }
        }
    }
}

impl<D: IterableDataset, C: Collate<D::Item>> fmt::Debug for IterableDataLoaderShardIter<'_, D, C>
where
    C::Batch: 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableDataLoaderShardIter")
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
