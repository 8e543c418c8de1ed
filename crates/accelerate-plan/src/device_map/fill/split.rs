//! What is done with a part that does not fit in one piece.

use std::collections::VecDeque;

use super::{
    super::{MemorySize, Placement, Step, fallback, queue::Item},
    Candidate, Fill,
};

impl<'a> Fill<'a> {
    /// Takes apart the first item that would come along and can be taken apart.
    pub(super) fn split_along(
        &mut self,
        candidate: &Candidate<'a>,
        place: Placement,
        left: MemorySize,
    ) -> bool {
        let no_split = &self.options.no_split_module_classes;
        let mut items = self.queue.iter().enumerate();
        let found = items.find_map(|(index, item)| {
            let comes_along = candidate.along.contains(&item.name);
            let parts = comes_along.then(|| item.split(no_split)).flatten()?;
            Some((index, parts))
        });
        let Some((index, parts)) = found else {
            return false;
        };
        let mut rest = self.queue.split_off(index);
        if let Some(item) = rest.pop_front() {
            self.steps.push(Step::Split {
                size: self.sizes.get(&item.name),
                name: item.name,
                place,
                left,
                tied_to: Some(candidate.item.name.clone()),
            });
        }
        self.queue.extend(parts);
        self.queue.append(&mut rest);
        self.find_largest();
        true
    }

    /// Looks at the parts of an item one by one.
    pub(super) fn split(
        &mut self,
        candidate: Candidate<'a>,
        parts: Vec<Item<'a>>,
        place: Placement,
        left: MemorySize,
    ) {
        self.steps.push(Step::Split {
            name: candidate.item.name,
            size: candidate.size,
            place,
            left,
            tied_to: None,
        });
        let mut queue = VecDeque::from(parts);
        queue.append(&mut self.queue);
        self.queue = queue;
        self.find_largest();
    }

    /// Puts a smaller item first, if there is one that fits an empty place.
    pub(super) fn advance_smaller(
        &mut self,
        candidate: &Candidate<'a>,
        place: Placement,
        limit: MemorySize,
    ) -> bool {
        let kept = self.largest.size.max(candidate.size_along);
        if kept > limit {
            return false;
        }
        let search = fallback::Search {
            sizes: &self.sizes,
            tied: &self.tied,
            no_split: &self.options.no_split_module_classes,
            limit: limit.saturating_sub(kept),
            blocked: &candidate.item,
        };
        let Some((found, rest)) = search.run(&self.queue) else {
            return false;
        };
        self.steps.push(Step::Advanced {
            name: found.name.clone(),
            size: self.sizes.get(&found.name),
            before: candidate.item.name.clone(),
            place,
        });
        self.queue = [found, candidate.item.clone()]
            .into_iter()
            .chain(rest)
            .collect();
        true
    }
}
