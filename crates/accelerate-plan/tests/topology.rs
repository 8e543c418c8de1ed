//! Reading a topology, writing it back, and refusing what cannot be.
#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

use std::num::{NonZeroU16, NonZeroUsize};

use accelerate_plan::{
    Error, Hint, Result, Setting,
    env::Environment,
    topology::{Rendezvous, Topology},
};
use proptest::prelude::*;

fn read(pairs: &[(&str, &str)]) -> Result<Option<Topology>> {
    Topology::read(&Environment::from_pairs(pairs.iter().copied()))
}

fn read_some(pairs: &[(&str, &str)]) -> Topology {
    read(pairs).unwrap().unwrap()
}

fn counts(topology: &Topology) -> [usize; 4] {
    let t = topology;
    [
        t.rank(),
        t.world_size(),
        t.local_rank(),
        t.local_world_size(),
    ]
}

#[test]
fn nothing_set_means_not_distributed() {
    assert_eq!(read(&[]), Ok(None));
    assert_eq!(
        read(&[("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "1234")]),
        Ok(None)
    );
    assert_eq!(read(&[("LOCAL_RANK", "-1"), ("RANK", "")]), Ok(None));
}

#[test]
fn a_local_job_is_read_with_its_defaults() {
    let topology = read_some(&[
        ("RANK", "1"),
        ("WORLD_SIZE", "2"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
    ]);
    assert_eq!(counts(&topology), [1, 2, 1, 2]);
    assert_eq!(topology.master(), &Rendezvous::default());
    assert_eq!(topology.master().to_string(), "127.0.0.1:29500");
}

#[test]
fn variables_of_mpi_launchers_are_understood() {
    let open_mpi = [
        ("OMPI_COMM_WORLD_RANK", "3"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("MASTER_ADDR", "node0"),
    ];
    assert_eq!(counts(&read_some(&open_mpi)), [3, 4, 1, 2]);
    let intel = [
        ("PMI_RANK", "1"),
        ("PMI_SIZE", "2"),
        ("MPI_LOCALRANKID", "1"),
        ("MPI_LOCALNRANKS", "2"),
        ("OMPI_COMM_WORLD_RANK", "0"),
    ];
    assert_eq!(counts(&read_some(&intel)), [1, 2, 1, 2]);
    let mvapich = [
        ("MV2_COMM_WORLD_RANK", "0"),
        ("MV2_COMM_WORLD_SIZE", "2"),
        ("MV2_COMM_WORLD_LOCAL_RANK", "0"),
        ("MV2_COMM_WORLD_LOCAL_SIZE", "2"),
    ];
    assert_eq!(counts(&read_some(&mvapich)), [0, 2, 0, 2]);
}

#[test]
fn a_missing_local_world_size_follows_the_meeting_point() {
    let base = [("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")];
    let at = |host| read_some(&[base.as_slice(), &[("MASTER_ADDR", host)]].concat());
    assert_eq!(at("localhost").local_world_size(), 4);
    assert_eq!(at("node7").local_world_size(), 2);
}

#[test]
fn contradictions_name_both_variables() {
    let error = read(&[("PMI_RANK", "5"), ("WORLD_SIZE", "2")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected `PMI_RANK` (5) to be below `WORLD_SIZE` (2)"
    );
    assert!(
        error
            .hint()
            .unwrap()
            .contains("`PMI_RANK` and `WORLD_SIZE`")
    );

    let error = read(&[("RANK", "1")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "expected `RANK` (1) to be below `WORLD_SIZE` (not set, so 1)"
    );

    let whole = Setting {
        variable: "WORLD_SIZE",
        value: 2,
        given: true,
    };
    let part = Setting {
        variable: "LOCAL_WORLD_SIZE",
        value: 3,
        given: true,
    };
    assert_eq!(
        read(&[("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "3")]),
        Err(Error::PartAboveWhole { part, whole })
    );
    let local = [
        ("WORLD_SIZE", "4"),
        ("LOCAL_RANK", "2"),
        ("LOCAL_WORLD_SIZE", "2"),
    ];
    let error = read(&local).unwrap_err();
    assert!(error.to_string().contains("`LOCAL_RANK` (2)"), "{error}");
}

#[test]
fn several_machines_need_an_address() {
    let error = read(&[
        ("RANK", "0"),
        ("WORLD_SIZE", "4"),
        ("LOCAL_WORLD_SIZE", "2"),
    ])
    .unwrap_err();
    assert_eq!(
        error,
        Error::MissingMasterAddress {
            world_size: 4,
            local_world_size: 2
        }
    );
    assert!(error.hint().unwrap().contains("rank 0"));
}

#[test]
fn a_bad_port_is_not_replaced_by_the_default() {
    let error = read(&[("RANK", "0"), ("MASTER_PORT", "none")]).unwrap_err();
    assert!(
        error.to_string().contains("`MASTER_PORT` holds `none`"),
        "{error}"
    );
}

prop_compose! {
    fn topologies()(
        world in 1_usize..2000,
        port in 1_u16..,
        host in "[a-z0-9:.-]{1,20}",
    )(
        world in Just(world),
        local_world in 1..=world,
        port in Just(port),
        host in Just(host),
        rank in 0..world,
        seed in any::<prop::sample::Index>(),
    ) -> Topology {
        let size = |count| NonZeroUsize::new(count).unwrap();
        let master = Rendezvous { addr: host, port: NonZeroU16::new(port).unwrap() };
        Topology::new(rank, size(world), seed.index(local_world), size(local_world), master)
            .unwrap()
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(topology in topologies()) {
        let inherited = Environment::from_pairs([("RANK", "77"), ("PMI_SIZE", "3")]);
        let child = inherited.with(&topology.overlay());
        prop_assert_eq!(Topology::read(&child).unwrap(), Some(topology));
    }

    #[test]
    fn any_text_gives_an_error_or_a_consistent_topology(
        rank in "-?[0-9a-z]{0,3}",
        world in "-?[0-9]{0,2}",
        local in "-?[0-9]{0,2}",
        host in prop::option::of("[a-z]{1,3}"),
    ) {
        let mut pairs = vec![("RANK", rank), ("WORLD_SIZE", world), ("LOCAL_RANK", local)];
        pairs.extend(host.map(|host| ("MASTER_ADDR", host)));
        if let Ok(Some(topology)) = Topology::read(&Environment::from_pairs(pairs)) {
            prop_assert!(topology.rank() < topology.world_size());
            prop_assert!(topology.local_rank() < topology.local_world_size());
            prop_assert!(topology.local_world_size() <= topology.world_size());
        }
    }
}
