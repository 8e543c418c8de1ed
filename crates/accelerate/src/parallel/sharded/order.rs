//! In which order a model uses its units.

/// The order of the last forward pass, by which the next one is foreseen.
#[derive(Debug, Default)]
pub(super) struct Order {
    known: Vec<usize>,
    /// The order of the pass under way.
    current: Vec<usize>,
    /// Whether the pass under way went as the last one until now.
    goes_on: bool,
}

impl Order {
    /// A forward pass begins.
    pub(super) fn begin(&mut self) {
        self.current.clear();
        self.goes_on = true;
    }

    /// Notes that a unit is used; the one that will probably be next.
    pub(super) fn step(&mut self, unit: usize) -> Option<usize> {
        let place = self.current.len();
        self.current.push(unit);
        self.goes_on &= self.known.get(place) == Some(&unit);
        match self.goes_on {
            true => self.known.get(place + 1).copied(),
            false => None,
        }
    }

    /// The unit that the last pass used behind `unit`, if this one goes as that did.
    pub(super) fn behind(&self, unit: usize) -> Option<usize> {
        let place = self.known.iter().position(|&known| known == unit)?;
        let next = self.known.get(place + 1).copied();
        next.filter(|_| self.goes_on)
    }

    /// The unit that the last pass used last, if the pass under way has come to it: the backward pass
    /// will begin with it.
    pub(super) fn last(&self) -> Option<usize> {
        let is_there = self.goes_on && self.current.len() == self.known.len();
        self.known.last().copied().filter(|_| is_there)
    }

    /// The forward pass is over.
    pub(super) fn end(&mut self) {
        std::mem::swap(&mut self.known, &mut self.current);
        self.current.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(order: &mut Order, units: &[usize]) -> Vec<Option<usize>> {
        order.begin();
        let next = units.iter().map(|&unit| order.step(unit)).collect();
        order.end();
        next
    }

    #[test]
    fn the_next_unit_is_foreseen_as_long_as_passes_are_alike() {
        let mut order = Order::default();
        assert_eq!(pass(&mut order, &[0, 2, 1, 2]), [None; 4]);
        let known = [Some(2), Some(1), Some(2), None];
        assert_eq!(pass(&mut order, &[0, 2, 1, 2]), known);
        let other = [Some(2), None, None];
        assert_eq!(pass(&mut order, &[0, 1, 2]), other);
        assert_eq!(pass(&mut order, &[0, 1, 2]), [Some(1), Some(2), None]);
    }

    #[test]
    fn what_comes_behind_a_unit_is_known_before_it_does() {
        let mut order = Order::default();
        pass(&mut order, &[0, 2, 1]);
        order.begin();
        let behind = |order: &Order| [0, 2, 1, 3].map(|unit| order.behind(unit));
        assert_eq!(behind(&order), [Some(2), Some(1), None, None]);
        order.step(1);
        assert_eq!(behind(&order), [None; 4]);
    }

    #[test]
    fn the_last_unit_is_known_when_it_comes() {
        let mut order = Order::default();
        pass(&mut order, &[0, 1]);
        order.begin();
        assert_eq!(order.last(), None);
        order.step(0);
        assert_eq!(order.last(), None);
        order.step(1);
        assert_eq!(order.last(), Some(1));
        order.step(2);
        assert_eq!(order.last(), None);
    }
}
