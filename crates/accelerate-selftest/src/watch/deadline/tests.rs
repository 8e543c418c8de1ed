use super::super::signs::Peer;
use super::*;

fn place(stage: usize, step: usize, step_name: &str) -> Place {
    Place {
        stage,
        stage_name: format!("stage {stage}"),
        step,
        steps: 12,
        step_name: step_name.to_owned(),
        error: None,
    }
}

fn seen(place: Place, quiet: Duration, now: Instant) -> Option<Peer> {
    Some(Peer::seen(place, now - quiet))
}

#[test]
fn a_rank_that_is_behind_is_told_with_its_place() {
    let now = Instant::now();
    let mut view = View::new(3);
    view.peers[1] = seen(place(2, 0, "sum"), Duration::ZERO, now);
    view.peers[2] = seen(place(2, 11, "barrier"), Duration::ZERO, now);
    let told = waited_for(&view, &place(2, 11, "barrier"), 0, now);
    assert!(
        told.contains("waiting for rank 1, which is still in `sum`, 1 of 12"),
        "{told}"
    );
    assert!(!told.contains("rank 2"), "{told}");
}

#[test]
fn a_rank_that_stands_still_is_told_though_it_is_not_behind() {
    let now = Instant::now();
    let mut view = View::new(2);
    view.peers[1] = seen(place(2, 11, "barrier"), 2 * SILENCE, now);
    let told = waited_for(&view, &place(2, 11, "barrier"), 0, now);
    assert!(told.contains("waiting for rank 1"), "{told}");
    assert!(told.contains("no sign of life for 2.40 s"), "{told}");
}

#[test]
fn a_rank_in_an_earlier_stage_is_told_with_its_stage() {
    let now = Instant::now();
    let mut view = View::new(2);
    view.peers[1] = seen(place(1, 3, "mean"), Duration::ZERO, now);
    let told = waited_for(&view, &place(2, 0, "sum"), 0, now);
    assert!(
        told.contains("still in stage `stage 1` at `mean`, 4 of 12"),
        "{told}"
    );
}

#[test]
fn ranks_in_one_place_are_not_accused() {
    let now = Instant::now();
    let mut view = View::new(2);
    view.peers[1] = seen(place(2, 0, "sum"), Duration::ZERO, now);
    let told = waited_for(&view, &place(2, 0, "sum"), 0, now);
    assert!(told.contains("no rank is behind"), "{told}");
}

#[test]
fn a_rank_that_left_with_an_error_is_waited_for_in_vain_after_a_while() {
    let now = Instant::now();
    let mut view = View::new(2);
    let mut left = place(2, 12, "sum");
    left.error = Some("no memory".to_owned());
    view.peers[1] = seen(left.clone(), Duration::ZERO, now);
    assert_eq!(
        gone(&view, &place(2, 3, "mean")),
        None,
        "it has only just left"
    );
    view.peers[1] = seen(left, 2 * IN_VAIN, now);
    let found = gone(&view, &place(2, 3, "mean"));
    assert_eq!(found, Some((1, "no memory".to_owned())));
    assert_eq!(
        gone(&view, &place(2, 12, "mean")),
        None,
        "this rank has left too"
    );
    assert_eq!(
        gone(&view, &place(3, 3, "mean")),
        None,
        "that was another stage"
    );
}
