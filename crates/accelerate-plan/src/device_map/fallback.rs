//! A smaller part for a place that the next part does not fit.

use std::collections::VecDeque;

use super::{MemorySize, ModuleSizes, queue::Item, shape::is_within, tied::tied_items};

/// A search for a part that fits an empty place.
pub(super) struct Search<'s, 'a> {
    pub(super) sizes: &'s ModuleSizes,
    pub(super) tied: &'s [Vec<String>],
    pub(super) no_split: &'s [String],
    /// What the part may take, with those that come along.
    pub(super) limit: MemorySize,
    /// The part that does not fit, which is not in the queue.
    pub(super) blocked: &'s Item<'a>,
}

impl<'a> Search<'_, 'a> {
    /// The first part that fits, parents before what is below them, and the queue without it: every
    /// module above it is taken apart.
    ///
    /// # Source
    /// `fallback_allocate`. Differs: a part that shares a tensor with the one that does not fit is
    /// none.
    pub(super) fn run(&self, queue: &VecDeque<Item<'a>>) -> Option<(Item<'a>, VecDeque<Item<'a>>)> {
        let found = self.first_fitting(queue)?;
        let mut rest = VecDeque::new();
        let mut waiting = queue.clone();
        while let Some(item) = waiting.pop_front() {
            if item.name == found.name {
                continue;
            }
            let is_above = is_within(&found.name, &item.name);
            match is_above.then(|| item.split(self.no_split)).flatten() {
                Some(parts) => parts
                    .into_iter()
                    .rev()
                    .for_each(|part| waiting.push_front(part)),
                None => rest.push_back(item),
            }
        }
        Some((found, rest))
    }

    fn first_fitting(&self, queue: &VecDeque<Item<'a>>) -> Option<Item<'a>> {
        let mut waiting = queue.clone();
        // Parts that do not fit and cannot be taken apart, which others may have to go with.
        let mut passed = vec![self.blocked.clone()];
        while let Some(item) = waiting.pop_front() {
            if self.fits(&item, passed.iter().chain(&waiting)) {
                return Some(item);
            }
            match item.split(self.no_split) {
                Some(parts) => parts
                    .into_iter()
                    .rev()
                    .for_each(|part| waiting.push_front(part)),
                None => passed.push(item),
            }
        }
        None
    }

    fn fits<'i>(
        &self,
        item: &Item<'a>,
        others: impl IntoIterator<Item = &'i Item<'a>> + Clone,
    ) -> bool
    where
        'a: 'i,
    {
        let along = tied_items(&item.name, others, self.tied);
        let sizes = along.iter().map(|name| self.sizes.get(name));
        let size: MemorySize = sizes.sum();
        self.sizes.get(&item.name) + size <= self.limit && !along.contains(&self.blocked.name)
    }
}
