//! What a launch plan tells each process.
#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};

use accelerate_plan::{
    Error, MixedPrecision,
    env::Environment,
    launch::{LaunchPlan, Program, Threads},
    topology::{Rendezvous, Topology},
};

fn size(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

fn plan(processes: usize) -> LaunchPlan {
    LaunchPlan {
        program: Program {
            name: "train".to_owned(),
            executable: "train".into(),
            arguments: vec!["--epochs".into()],
        },
        num_processes: size(processes),
        num_nodes: NonZeroUsize::MIN,
        node_rank: 0,
        rendezvous: Rendezvous::local(NonZeroU16::new(4000).unwrap()),
        cpu: true,
        mixed_precision: MixedPrecision::Bf16,
        gradient_accumulation_steps: NonZeroU32::new(4),
        debug: true,
        threads: Threads::share(size(8), size(processes)),
    }
}

#[test]
fn every_rank_gets_the_whole_protocol() {
    let ranks = plan(2).ranks().unwrap();
    let pairs: Vec<_> = ranks[1].overlay.iter().collect();
    let expected = [
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "4000"),
        ("GROUP_RANK", "0"),
        ("GROUP_WORLD_SIZE", "1"),
        ("ROLE_NAME", "default"),
        ("ROLE_RANK", "1"),
        ("ROLE_WORLD_SIZE", "2"),
        ("TORCHELASTIC_USE_AGENT_STORE", "False"),
        ("TORCHELASTIC_RESTART_COUNT", "0"),
        ("TORCHELASTIC_MAX_RESTARTS", "0"),
        ("TORCHELASTIC_RUN_ID", "none"),
        ("ACCELERATE_MIXED_PRECISION", "bf16"),
        ("ACCELERATE_USE_CPU", "True"),
        ("ACCELERATE_DEBUG_MODE", "true"),
        ("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"),
        ("OMP_NUM_THREADS", "4"),
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn a_child_reads_the_topology_that_was_planned() {
    for rank in plan(3).ranks().unwrap() {
        let child = Environment::default().with(&rank.overlay);
        assert_eq!(Topology::read(&child), Ok(Some(rank.topology)));
    }
}

#[test]
fn a_single_process_is_told_nothing_about_ranks() {
    let ranks = plan(1).ranks().unwrap();
    assert_eq!(
        Topology::read(&Environment::default().with(&ranks[0].overlay)),
        Ok(None)
    );
    assert_eq!(ranks[0].overlay.get("OMP_NUM_THREADS"), Some("8"));
}

#[test]
fn cores_are_shared_out_with_at_least_one_each() {
    let share = |cores, processes| match Threads::share(size(cores), size(processes)) {
        Threads::Shared { per_process, .. } => per_process.get(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        [share(2, 1), share(2, 2), share(2, 4), share(7, 2)],
        [2, 1, 1, 3]
    );
}

#[test]
fn what_is_not_said_is_left_to_the_process() {
    let quiet = LaunchPlan {
        cpu: false,
        debug: false,
        gradient_accumulation_steps: None,
        threads: Threads::Inherited,
        ..plan(1)
    };
    let ranks = quiet.ranks().unwrap();
    let pairs: Vec<_> = ranks[0].overlay.iter().collect();
    assert_eq!(pairs, [("ACCELERATE_MIXED_PRECISION", "bf16")]);
}

#[test]
fn nodes_count_ranks_on() {
    let second = LaunchPlan {
        num_nodes: size(2),
        node_rank: 1,
        ..plan(2)
    };
    let ranks: Vec<_> = second
        .ranks()
        .unwrap()
        .iter()
        .map(|rank| rank.topology.rank())
        .collect();
    assert_eq!(ranks, [2, 3]);
    let beyond = LaunchPlan {
        num_nodes: size(2),
        node_rank: 2,
        ..plan(2)
    };
    assert!(matches!(beyond.ranks(), Err(Error::IndexOutOfRange { .. })));
}

#[test]
fn a_plan_prints_itself() {
    let expected = "program: train --epochs\nprocesses: 2\nrendezvous: 127.0.0.1:4000\n\
                    device: cpu\nmixed precision: bf16\nthreads per process: 4 (8 usable cores)";
    assert_eq!(plan(2).to_string(), expected);
}
