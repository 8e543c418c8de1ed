use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The learning rate of each parameter group: a handle that an optimizer shares
/// with its schedules.
///
/// It also tells what the last step did, because a schedule has to stand still
/// when the optimizer did.
#[derive(Debug, Clone)]
pub struct LearningRates {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    groups: RefCell<Vec<Rate>>,
    step_count: Cell<u64>,
    was_skipped: Cell<bool>,
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    lr: f64,
    initial: Option<f64>,
    momentum: Option<f64>,
}

impl LearningRates {
    pub(super) fn new(rates: impl IntoIterator<Item = f64>) -> Self {
        let groups = rates
            .into_iter()
            .map(|lr| Rate {
                lr,
                initial: None,
                momentum: None,
            })
            .collect();
        Self {
            shared: Rc::new(Shared {
                groups: RefCell::new(groups),
                step_count: Cell::new(0),
                was_skipped: Cell::new(false),
            }),
        }
    }

    /// The number of groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.groups.borrow().len()
    }

    /// Whether there is no group, which no optimizer allows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The learning rates in the order of the groups.
    #[must_use]
    pub fn all(&self) -> Vec<f64> {
        self.shared
            .groups
            .borrow()
            .iter()
            .map(|rate| rate.lr)
            .collect()
    }

    /// The learning rate of one group, `None` if there is no such group.
    #[must_use]
    pub fn get(&self, group: usize) -> Option<f64> {
        self.shared.groups.borrow().get(group).map(|rate| rate.lr)
    }

    /// Sets the learning rate of one group; nothing happens if there is no such group.
    pub fn set(&self, group: usize, lr: f64) {
        if let Some(rate) = self.shared.groups.borrow_mut().get_mut(group) {
            rate.lr = lr;
        }
    }

    /// The learning rates that schedules scale: those at the time when the first
    /// schedule was made.
    #[must_use]
    pub fn initial(&self) -> Vec<f64> {
        let mut groups = self.shared.groups.borrow_mut();
        groups
            .iter_mut()
            .map(|rate| *rate.initial.get_or_insert(rate.lr))
            .collect()
    }

    /// The momentum of one group, or the first of an optimizer's two betas; `None` if the
    /// optimizer has neither, or there is no such group.
    #[must_use]
    pub fn momentum(&self, group: usize) -> Option<f64> {
        self.shared
            .groups
            .borrow()
            .get(group)
            .and_then(|rate| rate.momentum)
    }

    /// Sets the [`momentum`](Self::momentum) of one group; nothing happens if it has none.
    pub fn set_momentum(&self, group: usize, momentum: f64) {
        if let Some(rate) = self.shared.groups.borrow_mut().get_mut(group) {
            rate.momentum = rate.momentum.map(|_| momentum);
        }
    }

    /// Gives every group a momentum that schedules can change.
    pub(super) fn declare_momentum(&self, momentum: f64) {
        for rate in self.shared.groups.borrow_mut().iter_mut() {
            rate.momentum = Some(momentum);
        }
    }

    /// Whether both are handles on the rates of one optimizer.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.shared, &other.shared)
    }

    /// How many steps the optimizer made.
    #[must_use]
    pub fn step_count(&self) -> u64 {
        self.shared.step_count.get()
    }

    /// Whether the last step was skipped because gradients were not finite.
    #[must_use]
    pub fn was_skipped(&self) -> bool {
        self.shared.was_skipped.get()
    }

    /// Says whether the last step was skipped.
    pub fn set_skipped(&self, skipped: bool) {
        self.shared.was_skipped.set(skipped);
    }

    pub(super) fn set_step_count(&self, count: u64) {
        self.shared.step_count.set(count);
    }

    pub(super) fn recorded_initial(&self, group: usize) -> Option<f64> {
        self.shared
            .groups
            .borrow()
            .get(group)
            .and_then(|rate| rate.initial)
    }

    pub(super) fn set_initial(&self, group: usize, initial: Option<f64>) {
        if let Some(rate) = self.shared.groups.borrow_mut().get_mut(group) {
            rate.initial = initial;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_see_each_other() {
        let rates = LearningRates::new([0.1, 0.2]);
        let handle = rates.clone();
        handle.set(1, 0.5);
        handle.set(7, 0.5);
        assert_eq!(rates.all(), [0.1, 0.5]);
        assert!(rates.is_same(&handle));
        assert!(!rates.is_same(&LearningRates::new([0.1, 0.5])));
    }

    #[test]
    fn only_a_momentum_that_exists_can_be_set() {
        let rates = LearningRates::new([0.1]);
        rates.set_momentum(0, 0.5);
        assert_eq!(rates.momentum(0), None);
        rates.declare_momentum(0.9);
        rates.set_momentum(0, 0.5);
        assert_eq!((rates.momentum(0), rates.momentum(1)), (Some(0.5), None));
    }

    #[test]
    fn the_first_schedule_fixes_the_initial_rate() {
        let rates = LearningRates::new([0.1]);
        rates.set(0, 0.2);
        assert_eq!(rates.initial(), [0.2]);
        rates.set(0, 0.3);
        assert_eq!(rates.initial(), [0.2]);
    }
}
