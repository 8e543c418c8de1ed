use std::num::NonZeroUsize;

use super::channel::Step;
use super::source::Batches;
use crate::tree::{Parcel, Tree};
use crate::{Error, Result};

/// What rank 0 reads: the samples of all ranks, step by step, one step ahead.
pub(super) struct Reader<'a, B> {
    /// `None` once they have ended.
    batches: Option<Batches<'a, B>>,
    /// How many batches make one step.
    take: usize,
    ranks: usize,
    drop_last: bool,
    /// What a last step is filled up with.
    first: Option<Parcel>,
    /// Whether the epoch goes on behind its first step.
    resumed: bool,
    ahead: Option<Result<Parcel>>,
    started: bool,
}

impl<'a, B: Tree> Reader<'a, B> {
    pub(super) fn new(
        batches: Batches<'a, B>,
        take: usize,
        ranks: NonZeroUsize,
        drop_last: bool,
        first: Option<Parcel>,
    ) -> Self {
        Self {
            batches: Some(batches),
            take,
            ranks: ranks.get(),
            drop_last,
            resumed: first.is_some(),
            first,
            ahead: None,
            started: false,
        }
    }

    /// The samples of the first step with which a last one is filled up.
    pub(super) fn first_samples(mut self) -> Result<Option<Parcel>> {
        if let Some(first) = self.read().transpose()? {
            self.keep_first(&first)?;
        }
        Ok(self.first)
    }

    /// Reads steps that nobody gets; an error among them comes with the next step.
    pub(super) fn skip(&mut self, steps: u64) {
        for _ in 0..steps {
            match self.advance() {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.ahead = Some(Err(error));
                    return;
                }
                None => return,
            }
        }
    }

    /// The next step; `None` if there is none at all, as samples are left out or skipped.
    pub(super) fn next_step(&mut self) -> Result<Option<Step>> {
        let first = !self.started;
        let Some(samples) = self.advance().transpose()? else {
            return match first && !self.drop_last && !self.resumed {
                true => Err(Error::EmptyDataset),
                false => Ok(None),
            };
        };
        let last = self.ahead.is_none();
        let observed = samples.samples().ok_or_else(|| Error::Argument {
            operation: "DataLoaderDispatcher",
            expected: "batches with at least one tensor, or a list with a value for each sample"
                .to_owned(),
            found: "neither".to_owned(),
        })?;
        let samples = match last && !self.drop_last {
            true => self.fill_up(samples, observed)?,
            false => samples,
        };
        Ok(Some(Step {
            samples,
            last,
            observed,
        }))
    }

    /// The step that was read ahead, once the one after it was read too.
    fn advance(&mut self) -> Option<Result<Parcel>> {
        let current = if self.started {
            self.ahead.take()?
        } else {
            self.started = true;
            let first = self.read()?;
            first.and_then(|samples| {
                self.keep_first(&samples)?;
                Ok(samples)
            })
        };
        if current.is_ok() {
            self.ahead = self.read();
        }
        Some(current)
    }

    /// The samples of one step, of all ranks together.
    fn read(&mut self) -> Option<Result<Parcel>> {
        let mut parcels = Vec::with_capacity(self.take);
        while parcels.len() < self.take {
            match self.batches.as_mut()?.next() {
                Some(batch) => match batch.and_then(|batch| packed(&batch)) {
                    Ok(parcel) => parcels.push(parcel),
                    Err(error) => return self.fail(error),
                },
                None => {
                    self.batches = None;
                    break;
                }
            }
        }
        let incomplete = parcels.len() < self.take && self.drop_last;
        if parcels.is_empty() || incomplete {
            return None;
        }
        match Parcel::join(parcels) {
            Ok(parcel) => Some(Ok(parcel)),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: Error) -> Option<Result<Parcel>> {
        self.batches = None;
        Some(Err(error))
    }

    /// Adds samples of the first step until every rank gets equally many; where those have
    /// another shape, as with texts padded step by step, samples of the step itself.
    fn fill_up(&self, samples: Parcel, observed: usize) -> Result<Parcel> {
        let missing = observed.next_multiple_of(self.ranks) - observed;
        if missing == 0 || observed == 0 {
            return Ok(samples);
        }
        let first = self.first.as_ref().unwrap_or(&samples);
        match repeated(&samples, first, missing) {
            Err(Error::UnevenBatches { .. }) => repeated(&samples, &samples, missing),
            filled => filled,
        }
    }

    fn keep_first(&mut self, samples: &Parcel) -> Result<()> {
        if !self.drop_last && self.first.is_none() {
            let count = samples.samples().unwrap_or(0).min(self.ranks);
            self.first = Some(samples.cut(0..count)?);
        }
        Ok(())
    }
}

/// A step with `missing` samples of `filling` behind it, over and over.
fn repeated(samples: &Parcel, filling: &Parcel, mut missing: usize) -> Result<Parcel> {
    let available = filling.samples().unwrap_or(0).max(1);
    let mut count = missing.min(available);
    let mut filled = samples.extended(&filling.cut(0..count)?)?;
    missing -= count;
    while missing > 0 {
        count = missing.min(available);
        filled = filled.extended(&filling.cut(0..count)?)?;
        missing -= count;
    }
    Ok(filled)
}

fn packed(batch: &dyn Tree) -> Result<Parcel> {
    let mut parcel = Parcel::default();
    batch.pack(&mut parcel)?;
    Ok(parcel)
}
