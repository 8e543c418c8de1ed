//! What goes wrong between ranks, and how it is told.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use accelerate_testkit::{Rank, ranks};
use accelerate_torch::{
    Error, ProcessGroup, ReduceOp, Rendezvous, Result, Store, StoreServer, TcpStoreOptions,
};

use crate::support::{Outcome, PATIENCE, float, join, numbers, options, rendezvous};

/// A side door: the job's own store, for ranks that have to wait while their group is stuck.
fn side_door(rank: Rank) -> Result<Store> {
    Store::tcp(&TcpStoreOptions {
        host: "127.0.0.1".to_owned(),
        port: rank.port(),
        server: false,
        workers: None,
        timeout: PATIENCE,
    })
}

fn join_within(rank: Rank, timeout: Duration) -> Result<ProcessGroup> {
    rendezvous(rank).join(&options().with_timeout(timeout), |_| {})
}

fn assert_late(error: &Error, operation: &str, rank: usize) {
    let text = error.to_string();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert!(
        text.contains(&format!("`{operation}` timed out on rank {rank} of ")),
        "{text}"
    );
}

#[test]
fn a_rank_that_never_comes_is_named() {
    ranks(&[3], |rank| -> Outcome {
        let missing = 1;
        if rank.index() == missing {
            return Ok(());
        }
        let start = Instant::now();
        let error = join_within(rank, Duration::from_secs(3)).unwrap_err();
        let text = error.to_string();
        // The server may end before the others have asked it who is missing.
        if rank.index() == 0 {
            assert!(
                matches!(&error, Error::RanksMissing { missing, .. } if *missing == [1]),
                "{error:?}"
            );
            assert!(text.contains("1 of 3 ranks did not join"), "{text}");
            assert!(
                text.contains(&format!("127.0.0.1:{}", rank.port())),
                "{text}"
            );
        }
        assert!(
            start.elapsed() < PATIENCE,
            "waited for {:?}",
            start.elapsed()
        );
        Ok(())
    });
}

#[test]
fn a_server_that_never_comes_is_named() -> Outcome {
    let free = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let alone = Rendezvous {
        host: "127.0.0.1".to_owned(),
        port: free,
        rank: 1,
        world: 2,
        server: StoreServer::Rank0,
    };
    let error = alone
        .join(&options().with_timeout(Duration::from_secs(1)), |_| {})
        .unwrap_err();
    assert!(
        matches!(&error, Error::RanksMissing { missing, .. } if *missing == [0]),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .contains(&format!("1 of 2 ranks did not join at `127.0.0.1:{free}`")),
        "{error}"
    );
    Ok(())
}

#[test]
fn a_port_in_use_is_named() -> Outcome {
    let other = TcpListener::bind(("0.0.0.0", 0))?;
    let port = other.local_addr()?.port();
    let first = Rendezvous {
        host: "127.0.0.1".to_owned(),
        port,
        rank: 0,
        world: 2,
        server: StoreServer::Rank0,
    };
    let error = first.join(&options(), |_| {}).unwrap_err();
    assert!(matches!(&error, Error::AddressInUse { .. }), "{error:?}");
    assert!(
        error.to_string().contains(&format!("`127.0.0.1:{port}`")),
        "{error}"
    );
    Ok(())
}

#[test]
fn the_timeout_of_the_group_holds_in_its_collectives() {
    ranks(&[2, 3], |rank| -> Outcome {
        let group = join_within(rank, Duration::from_secs(2))?;
        let store = side_door(rank)?;
        if rank.index() != 0 {
            store.wait("rank 0 is done", PATIENCE)?;
            return Ok(());
        }
        let start = Instant::now();
        let tensor = float(&[1.0])?;
        let error = group.all_reduce(&tensor, ReduceOp::Sum).unwrap_err();
        assert_late(&error, "all-reduce", 0);
        let waited = start.elapsed();
        store.set("rank 0 is done", b"")?;
        assert!(
            waited >= Duration::from_millis(1900),
            "gave up after {waited:?}"
        );
        assert!(waited < PATIENCE, "gave up after {waited:?}");
        Ok(())
    });
}

#[test]
fn one_call_may_have_a_shorter_timeout() {
    ranks(&[2], |rank| -> Outcome {
        let group = join(rank)?;
        let store = side_door(rank)?;
        if rank.index() != 0 {
            store.wait("rank 0 is done", PATIENCE)?;
            return Ok(());
        }
        let start = Instant::now();
        let short = Duration::from_millis(500);
        let tensor = float(&[1.0])?;
        let error = group
            .all_reduce_timeout(&tensor, ReduceOp::Sum, short)
            .unwrap_err();
        assert_late(&error, "all-reduce", 0);
        let waited = start.elapsed();
        store.set("rank 0 is done", b"")?;
        assert!(
            waited >= short - Duration::from_millis(50),
            "gave up after {waited:?}"
        );
        assert!(waited < PATIENCE / 2, "gave up after {waited:?}");
        Ok(())
    });
}

#[test]
fn work_is_waited_for_no_longer_than_wanted() {
    ranks(&[2], |rank| -> Outcome {
        let group = join(rank)?;
        let store = side_door(rank)?;
        if rank.index() != 0 {
            store.wait("rank 0 is done", PATIENCE)?;
            return Ok(());
        }
        let start = Instant::now();
        let tensor = float(&[1.0])?;
        let work = group.receive_async(&tensor, 1, 0)?;
        let error = work.wait_timeout(Duration::from_millis(300)).unwrap_err();
        let waited = start.elapsed();
        store.set("rank 0 is done", b"")?;
        assert_late(&error, "receive", 0);
        assert!(waited < PATIENCE / 2, "gave up after {waited:?}");
        Ok(())
    });
}

#[test]
fn a_peer_that_ends_is_noticed() {
    ranks(&[2, 3], |rank| -> Outcome {
        let group = join(rank)?;
        let last = rank.world() - 1;
        let tensor = float(&[1.0])?;
        group.all_reduce(&tensor, ReduceOp::Sum)?;
        if rank.index() == last {
            // Ends without a word: nothing of the group is taken down in order.
            std::mem::forget(group);
            return Ok(());
        }
        let start = Instant::now();
        let error = group.all_reduce(&tensor, ReduceOp::Sum).unwrap_err();
        let waited = start.elapsed();
        let text = error.to_string();
        assert!(matches!(&error, Error::ConnectionLost { .. }), "{error:?}");
        assert!(text.contains(&format!(
            "`all-reduce` lost its connection on rank {}",
            rank.index()
        )));
        assert!(waited < PATIENCE / 2, "noticed after {waited:?}");
        // Dropping the broken group does not hang: the process ends now.
        Ok(())
    });
}

#[test]
fn a_monitored_barrier_names_who_is_missing() {
    ranks(&[3], |rank| -> Outcome {
        let group = join(rank)?;
        let store = side_door(rank)?;
        group.monitored_barrier(PATIENCE)?;
        if rank.index() == 2 {
            store.wait("rank 0 is done", PATIENCE)?;
            return Ok(());
        }
        let error = group.monitored_barrier(Duration::from_secs(1)).unwrap_err();
        if rank.index() == 0 {
            store.set("rank 0 is done", b"")?;
            assert_late(&error, "monitored barrier", 0);
            let text = error.to_string();
            assert!(text.contains("Ranks 2 failed to pass"), "{text}");
        } else {
            store.wait("rank 0 is done", PATIENCE)?;
        }
        Ok(())
    });
}

#[test]
fn what_was_right_before_an_error_stays_right() {
    ranks(&[2], |rank| -> Outcome {
        let group = join(rank)?;
        let tensor = float(&[1.0, 2.0])?;
        // A refused call starts nothing, so the next one fits together.
        assert!(group.broadcast(&tensor, 9).is_err());
        group.all_reduce(&tensor, ReduceOp::Sum)?;
        assert_eq!(numbers(&tensor)?, [2.0, 4.0]);
        group.barrier()?;
        Ok(())
    });
}
