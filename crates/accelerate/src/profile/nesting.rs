//! Which event lies in which.

use std::collections::BTreeMap;
use std::time::Duration;

use super::events::FunctionEvent;

/// Finds the event that each one lies in, and joins events with an only one of the same name inside.
///
/// `events` are in the order of time, the longer first.
pub(super) fn nest(mut events: Vec<FunctionEvent>) -> Vec<FunctionEvent> {
    let mut threads: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (place, event) in events.iter().enumerate() {
        if event.nests() {
            threads.entry(event.thread).or_default().push(place);
        }
    }
    for places in threads.values() {
        nest_thread(&mut events, places);
    }
    join_only_children(events)
}

fn nest_thread(events: &mut [FunctionEvent], places: &[usize]) {
    let mut open: Vec<usize> = Vec::new();
    for &place in places {
        let Some((start, end)) = span(events, place) else {
            continue;
        };
        while let Some(&parent) = open.last() {
            let holds = span(events, parent)
                .is_some_and(|(_, parent_end)| start < parent_end && end <= parent_end);
            if holds {
                adopt(events, parent, place);
                break;
            }
            open.pop();
        }
        open.push(place);
    }
}

fn span(events: &[FunctionEvent], place: usize) -> Option<(Duration, Duration)> {
    events.get(place).map(|event| (event.start, event.end()))
}

fn adopt(events: &mut [FunctionEvent], parent: usize, child: usize) {
    if let Some(event) = events.get_mut(parent) {
        event.cpu_children.push(child);
    }
    if let Some(event) = events.get_mut(child) {
        event.cpu_parent = Some(parent);
    }
}

/// An operation that only calls itself in another form is one event, with the inner one's kernels.
fn join_only_children(mut events: Vec<FunctionEvent>) -> Vec<FunctionEvent> {
    let mut joined = vec![false; events.len()];
    loop {
        let mut changed = false;
        for place in 0..events.len() {
            if joined.get(place).copied().unwrap_or(true) || !join(&mut events, place) {
                continue;
            }
            if let Some(gone) = joined.get_mut(place) {
                *gone = true;
            }
            changed = true;
        }
        if !changed {
            return without(events, &joined);
        }
    }
}

/// Joins an event with the one it lies in, if it is the only one there and has the same name.
fn join(events: &mut [FunctionEvent], place: usize) -> bool {
    let Some(event) = events.get(place) else {
        return false;
    };
    let Some(parent) = event.cpu_parent else {
        return false;
    };
    let same = events
        .get(parent)
        .is_some_and(|outer| outer.name == event.name && outer.cpu_children.len() == 1);
    if !same {
        return false;
    }
    let (children, kernels) = (event.cpu_children.clone(), event.kernels.clone());
    for child in &children {
        if let Some(child) = events.get_mut(*child) {
            child.cpu_parent = Some(parent);
        }
    }
    if let Some(outer) = events.get_mut(parent) {
        outer.cpu_children = children;
        outer.kernels = kernels;
    }
    true
}

/// The events that are not `gone`, with places in the new list.
fn without(events: Vec<FunctionEvent>, gone: &[bool]) -> Vec<FunctionEvent> {
    let mut places = Vec::with_capacity(events.len());
    let mut next = 0;
    for gone in gone {
        places.push((!gone).then_some(next));
        next += usize::from(!gone);
    }
    let moved = |place: &usize| places.get(*place).copied().flatten();
    events
        .into_iter()
        .zip(gone)
        .filter(|(_, gone)| !**gone)
        .map(|(mut event, _)| {
            event.cpu_parent = event.cpu_parent.as_ref().and_then(moved);
            event.cpu_children = event.cpu_children.iter().filter_map(moved).collect();
            event
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::EventPlace;

    fn event(name: &str, thread: u64, start: u64, end: u64) -> FunctionEvent {
        FunctionEvent {
            name: name.to_owned(),
            thread,
            start: Duration::from_nanos(start),
            duration: Duration::from_nanos(end - start),
            place: EventPlace::Cpu,
            is_async: false,
            is_user_annotation: false,
            input_shapes: "[]".to_owned(),
            flops: 0,
            cpu_memory_usage: 0,
            device_memory_usage: 0,
            kernels: Vec::new(),
            cpu_parent: None,
            cpu_children: Vec::new(),
        }
    }

    #[test]
    fn an_event_lies_in_the_nearest_that_holds_it_whole() {
        let events = nest(vec![
            event("a", 1, 0, 10),
            event("elsewhere", 2, 0, 10),
            event("b", 1, 1, 3),
            event("c", 1, 2, 3),
            event("d", 1, 3, 4),
            event("across", 1, 9, 12),
        ]);
        let parents: Vec<_> = events.iter().map(|event| event.cpu_parent).collect();
        assert_eq!(parents, [None, None, Some(0), Some(2), Some(0), None]);
        assert_eq!(events[0].cpu_children, [2, 4]);
    }

    #[test]
    fn an_only_child_of_the_same_name_is_its_parent() {
        let events = nest(vec![
            event("a", 1, 0, 10),
            event("a", 1, 1, 9),
            event("a", 1, 2, 8),
            event("b", 1, 3, 4),
            event("a", 1, 20, 30),
            event("a", 1, 21, 22),
            event("a", 1, 23, 24),
        ]);
        let shown: Vec<_> = events
            .iter()
            .map(|event| (event.name.as_str(), event.cpu_parent))
            .collect();
        assert_eq!(
            shown,
            [
                ("a", None),
                ("b", Some(0)),
                ("a", None),
                ("a", Some(2)),
                ("a", Some(2))
            ]
        );
        assert_eq!(events[0].cpu_children, [1]);
        assert_eq!(events[2].cpu_children, [3, 4]);
    }
}
