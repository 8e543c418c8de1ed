//! The shortest program, on one process and on several.

use crate::process::Program;
use crate::workplace::Workplace;

const PROGRAM: &str = env!("CARGO_BIN_EXE_first_all_reduce");

#[test]
fn every_rank_gets_the_sum_over_all_ranks() {
    let place = Workplace::new();
    for (processes, sum) in [(1, 1), (2, 3), (3, 6)] {
        let done = place
            .launch(processes, &["--quiet", "--no_prefix"])
            .args([PROGRAM])
            .run();
        done.assert_code(0);
        let mut lines: Vec<_> = done.stdout.lines().collect();
        lines.sort_unstable();
        let expected: Vec<_> = (0..processes)
            .map(|rank| format!("rank {rank} of {processes}: {sum}"))
            .collect();
        assert_eq!(lines, expected);
    }
}

#[test]
fn without_a_launcher_it_is_one_process() {
    let place = Workplace::new();
    let done = Program::new(PROGRAM, &place.path("logs")).run();
    done.assert_code(0);
    assert_eq!(done.stdout, "rank 0 of 1: 1\n");
}
