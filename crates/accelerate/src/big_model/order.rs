//! Which block is executed after which.

use std::cell::RefCell;

/// For each block, the one that came after it last time.
///
/// Before it was executed once, that is the next one in the order of the tree, and the first one
/// after the last: texts are made by running a model again and again.
#[derive(Debug)]
pub(super) struct Order {
    next: RefCell<Vec<usize>>,
}

impl Order {
    pub(super) fn of_tree(blocks: usize) -> Self {
        let next = (0..blocks).map(|block| (block + 1) % blocks.max(1));
        Self {
            next: RefCell::new(next.collect()),
        }
    }

    /// Notes that one block was executed after another.
    pub(super) fn learn(&self, before: usize, after: usize) {
        if let Some(next) = self.next.borrow_mut().get_mut(before) {
            *next = after;
        }
    }

    /// The blocks that are likely to come after one, the nearest first, each once.
    pub(super) fn after(&self, block: usize, count: usize) -> Vec<usize> {
        let next = self.next.borrow();
        let mut coming = Vec::with_capacity(count);
        let mut at = block;
        while coming.len() < count {
            match next.get(at) {
                Some(&found) if found != block && !coming.contains(&found) => {
                    coming.push(found);
                    at = found;
                }
                _ => break,
            }
        }
        coming
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_executed_last_time_comes_again() {
        let order = Order::of_tree(4);
        assert_eq!(order.after(1, 2), [2, 3]);
        assert_eq!(order.after(3, 2), [0, 1]);
        // Around once and no further.
        assert_eq!(order.after(3, 9), [0, 1, 2]);
        order.learn(1, 3);
        assert_eq!(order.after(0, 3), [1, 3]);
        assert_eq!(Order::of_tree(1).after(0, 2), [0; 0]);
        assert_eq!(Order::of_tree(0).after(0, 2), [0; 0]);
    }
}
