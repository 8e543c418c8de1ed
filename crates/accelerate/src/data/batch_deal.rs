use std::cell::Cell;
use std::iter::Peekable;

use super::batch_sampler::BatchIndices;
use super::batch_sampler_shard::ShardLayout;
use crate::{Error, Result};

/// Cuts every batch into equal parts.
pub(super) struct Split<'a> {
    batches: Peekable<BatchIndices<'a>>,
    size: usize,
    layout: ShardLayout,
    drop_last: bool,
    first: Option<Vec<usize>>,
    seen: usize,
    /// How many batches are to be passed over before the next one.
    skip: usize,
}

impl<'a> Split<'a> {
    pub(super) fn new(
        batches: BatchIndices<'a>,
        size: usize,
        layout: ShardLayout,
        drop_last: bool,
        skip: usize,
    ) -> Self {
        Self {
            batches: batches.peekable(),
            size,
            layout,
            drop_last,
            first: None,
            seen: 0,
            skip,
        }
    }

    fn pass_over(&mut self) -> Result<()> {
        while self.skip > 0 {
            self.skip -= 1;
            let Some(batch) = self.batches.next() else {
                self.skip = 0;
                break;
            };
            let batch = batch.inspect_err(|_| self.skip = 0)?;
            self.seen += 1;
            if batch.len() == self.size {
                self.first.get_or_insert(batch);
            }
        }
        Ok(())
    }

    fn part(&self, batch: &[usize]) -> Option<Vec<usize>> {
        let part = self.size / self.layout.num_processes.get();
        let start = part * self.layout.process_index;
        let end = batch.len().min(start + part);
        batch
            .get(start..end)
            .filter(|part| !part.is_empty())
            .map(<[usize]>::to_vec)
    }

    fn last_part(&self, mut batch: Vec<usize>) -> Option<Vec<usize>> {
        if self.drop_last {
            return None;
        }
        if self.layout.even_batches {
            let filling = self.first.clone().unwrap_or_else(|| batch.clone());
            let missing = self.size - batch.len();
            batch.extend(filling.iter().cycle().take(missing));
        }
        self.part(&batch)
    }
}

impl Iterator for Split<'_> {
    type Item = Result<Vec<usize>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.pass_over() {
            return Some(Err(error));
        }
        let batch = match self.batches.next()? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        self.seen += 1;
        if batch.len() == self.size {
            let part = self.part(&batch);
            self.first.get_or_insert(batch);
            part.map(Ok)
        } else if self.batches.peek().is_none() && batch.len() < self.size {
            self.last_part(batch).map(Ok)
        } else {
            Some(Err(Error::Argument {
                operation: "BatchSamplerShard",
                expected: format!("batches of {} samples to split them", self.size),
                found: format!("{} in batch {}", batch.len(), self.seen - 1),
            }))
        }
    }
}

/// Deals out whole batches in turn, one round at a time.
pub(super) struct Deal<'a> {
    batches: Peekable<BatchIndices<'a>>,
    /// `None` if sizes vary.
    size: Option<usize>,
    layout: ShardLayout,
    drop_last: bool,
    /// The batches of the first round: what the last round is filled up with.
    first_round: Vec<Vec<usize>>,
    /// How many batches of all ranks are to be passed over before the next round.
    skip: usize,
    /// Where the number of samples of a last round that repeats whole batches is written.
    once: &'a Cell<Option<usize>>,
    done: bool,
}

impl<'a> Deal<'a> {
    pub(super) fn new(
        batches: BatchIndices<'a>,
        size: Option<usize>,
        layout: ShardLayout,
        drop_last: bool,
        skip: usize,
        once: &'a Cell<Option<usize>>,
    ) -> Self {
        once.set(None);
        let (batches, first_round) = (batches.peekable(), Vec::new());
        Self {
            batches,
            size,
            layout,
            drop_last,
            first_round,
            skip,
            once,
            done: false,
        }
    }

    fn pass_over(&mut self) -> Result<()> {
        for _ in 0..std::mem::take(&mut self.skip) {
            let Some(batch) = self.batches.next() else {
                break;
            };
            self.remember(&batch?);
        }
        Ok(())
    }

    /// Keeps the batches of the first round, if they may be needed to fill up the last.
    fn remember(&mut self, batch: &[usize]) {
        let ranks = self.layout.num_processes.get();
        let fills_up = self.layout.even_batches && !self.drop_last;
        if fills_up && self.first_round.len() < ranks {
            self.first_round.push(batch.to_vec());
        }
    }

    /// The next batches, one per rank; fewer, or a short last one, at the end of the epoch.
    fn round(&mut self) -> Result<Vec<Vec<usize>>> {
        self.pass_over()?;
        let ranks = self.layout.num_processes.get();
        let round = self
            .batches
            .by_ref()
            .take(ranks)
            .collect::<Result<Vec<_>>>()?;
        for batch in &round {
            self.remember(batch);
        }
        Ok(round)
    }

    fn is_whole(&mut self, round: &[Vec<usize>]) -> bool {
        let full = |batch: &Vec<usize>| self.size.is_none_or(|size| batch.len() >= size);
        round.len() == self.layout.num_processes.get()
            && (round.last().is_some_and(full) || self.batches.peek().is_some())
    }

    /// What this rank gets of a last round that is not whole.
    fn last_round(&self, mut round: Vec<Vec<usize>>) -> Option<Vec<usize>> {
        let rank = self.layout.process_index;
        if self.drop_last || round.is_empty() {
            return None;
        }
        if self.layout.even_batches && self.size.is_none() {
            self.once.set(Some(round.iter().map(Vec::len).sum()));
        }
        if !self.layout.even_batches || round.get(rank).is_some_and(|batch| self.is_full(batch)) {
            return (rank < round.len()).then(|| round.swap_remove(rank));
        }
        let Some(size) = self.size else {
            // Batches of any size are repeated whole.
            let again = rank - round.len();
            return self
                .first_round
                .get(again % self.first_round.len())
                .cloned();
        };
        let mut filling = self.first_round.iter().flatten().copied().cycle();
        for index in 0..=rank {
            let mut batch = round.get(index).cloned().unwrap_or_default();
            let missing = size.saturating_sub(batch.len());
            batch.extend(filling.by_ref().take(missing));
            if index == rank {
                return Some(batch);
            }
        }
        None
    }

    fn is_full(&self, batch: &[usize]) -> bool {
        self.size.is_none_or(|size| batch.len() >= size)
    }
}

impl Iterator for Deal<'_> {
    type Item = Result<Vec<usize>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let mut round = match self.round() {
            Ok(round) => round,
            Err(error) => {
                self.done = true;
                return Some(Err(error));
            }
        };
        if self.is_whole(&round) {
            return Some(Ok(round.swap_remove(self.layout.process_index)));
        }
        self.done = true;
        self.last_round(round).map(Ok)
    }
}
