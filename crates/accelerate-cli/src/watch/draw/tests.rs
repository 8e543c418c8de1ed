use std::time::Duration;

use accelerate_tracking::run::TimeSplit;
use ratatui::{Terminal, backend::TestBackend};

use super::{
    super::snapshot::{CurveView, RankView, Split},
    *,
};

fn snapshot() -> Snapshot {
    let rank = |rank: usize, compute: f64, is_straggler: bool| RankView {
        rank,
        step: 120,
        split: Split(TimeSplit {
            data_wait: 0.05,
            compute,
            communication: 0.35 - compute,
            other: 0.0,
        }),
        samples_per_second: Some(40.0),
        memory: Some(3 << 29),
        is_straggler,
        ..RankView::default()
    };
    Snapshot {
        name: "demo / first".to_owned(),
        state: State::Running,
        elapsed: Some(Duration::from_secs(60)),
        step: Some(120),
        total_steps: Some(480),
        curves: vec![CurveView {
            name: "loss".to_owned(),
            points: (0..100)
                .map(|x| (f64::from(x), 1.0 / f64::from(x + 1)))
                .collect(),
            last: Some(0.01),
        }],
        latest: vec![("loss".to_owned(), 0.01)],
        ranks: vec![rank(0, 0.1, false), rank(1, 0.35, true)],
        notices: vec!["rank 1: gradients\x1b[2J are large".to_owned()],
        problem: None,
    }
}

/// What stands on a screen of this size, and how many curves it has room for.
fn drawn(
    snapshot: &Snapshot,
    width: u16,
    height: u16,
    output: Option<Vec<String>>,
) -> (String, usize) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut room = 0;
    let shown = Shown {
        snapshot,
        abilities: Abilities {
            colour: false,
            braille: true,
        },
        first_rank: 0,
        first_curve: 0,
        keys: "q leave",
        output,
    };
    terminal.draw(|frame| room = draw(frame, &shown)).unwrap();
    let buffer = terminal.backend().buffer();
    assert!(
        buffer
            .content()
            .iter()
            .all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset)
    );
    (terminal.backend().to_string(), room)
}

#[test]
fn everything_is_told_without_colours() {
    let (screen, room) = drawn(&snapshot(), 120, 36, Some(vec!["0:0 epoch 1".to_owned()]));
    for text in [
        "demo / first  running  1 min 00 s",
        "step 120 of 480   25%  about 3 min 00 s left ██████████░░░░",
        " loss 0.0100 ",
        "2 ranks, stragglers: 1",
        "░ data wait   █ compute   ▒ communication   · other",
        "STRAGGLER",
        "40.00",
        "1.5 GiB",
        "rank 1: gradients are large",
        "0:0 epoch 1",
        "q leave",
    ] {
        assert!(screen.contains(text), "no `{text}` in\n{screen}");
    }
    assert!(room >= 3, "{room}");
}

#[test]
fn small_screens_show_what_fits() {
    for (width, height) in [(80, 24), (40, 12), (20, 6), (5, 2), (1, 1)] {
        let (screen, room) = drawn(&snapshot(), width, height, None);
        assert!(room >= 1);
        if width >= 40 {
            assert!(screen.contains("step 120 of 480"), "{screen}");
        }
    }
}

#[test]
fn a_run_that_is_not_there_is_awaited() {
    let (screen, _) = drawn(&Snapshot::default(), 100, 30, None);
    assert!(screen.contains("waiting for a run"), "{screen}");
    assert!(screen.contains("tracker `local`"), "{screen}");
}
