//! What is said while machines are missing.

use crate::job::{Job, together};

/// The first words come after ten seconds, so that this is one test.
#[test]
fn who_is_missing_is_said_and_the_wait_has_an_end() {
    let (alone, lost, more) = (Job::new(2), Job::new(2), Job::new(3));
    let flags = ["--num_processes", "6", "--rdzv_conf"];
    let body = ["sh", "-c", "touch started"];
    let limit = |limit: &'static str| [&flags[..], &[limit]].concat();
    let c10d = [&limit("join_timeout=12")[..], &["--rdzv_backend", "c10d"]].concat();
    let [first, second, third, fourth] = together([
        alone.machine(0, &limit("timeout=12")).args(body),
        lost.machine(1, &limit("timeout=12")).args(body),
        more.launcher(&c10d).args(body),
        more.launcher(&c10d).args(body),
    ]);
    let at = alone.endpoint();
    first.assert_code(1);
    first.assert_says(&format!(
        "note: 1 of 2 nodes have joined at {at} after 10 s; joined: node 0 ("
    ));
    first.assert_says("missing: node 1; giving up after 12 s");
    first.assert_says(&format!("after 12 s at {at} there are 1 of 2 nodes"));
    first.assert_says("hint: start the launcher on the missing nodes");

    let at = lost.endpoint();
    second.assert_code(1);
    second.assert_says(&format!("note: no launcher answers at {at} after 10 s"));
    second.assert_says(&format!("no launcher answers at {at} after 12 s"));
    second.assert_says("hint: start the launcher of `machine_rank` 0");

    for done in [third, fourth] {
        done.assert_code(1).assert_says("2 of 3 nodes have joined");
        done.assert_says("missing: 1 more node");
    }
    for job in [alone, lost, more] {
        assert!(!job.folder().path("started").exists());
    }
}
