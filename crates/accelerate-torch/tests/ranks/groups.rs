//! Groups over other stores, and groups of some of the ranks.

use std::error::Error as _;
use std::path::PathBuf;

use accelerate_testkit::{Rank, ranks};
use accelerate_torch::{Error, ProcessGroup, ReduceOp, Result, Store};

use crate::support::{Outcome, float, marked, numbers, on_worlds, options, real};

/// The sum of the default group's rank numbers over a group, as its members see it.
fn sum_of_ranks(group: &ProcessGroup, own: usize) -> Result<f64> {
    let tensor = float(&[real(own)])?;
    group.all_reduce(&tensor, ReduceOp::Sum)?;
    tensor.f_double_value(&[0]).map_err(Error::from)
}

#[test]
fn a_group_knows_who_is_in_it() {
    on_worlds(&[2, 3], |group| {
        assert_eq!(group.name(), "0");
        assert_eq!(group.global_ranks(), (0..group.size()).collect::<Vec<_>>());
        assert_eq!(
            group.place().to_string(),
            format!("rank {} of {} (group `0`)", group.rank(), group.size())
        );
        assert_eq!(group.timeout(), options().timeout);
        Ok(())
    });
}

#[test]
fn some_ranks_make_a_group_of_their_own() {
    on_worlds(&[3], |group| {
        let own = group.rank();
        let outer = group.subgroup(&[2, 0])?;
        let inner = group.subgroup(&[1])?;
        assert_eq!((outer.is_some(), inner.is_some()), (own != 1, own == 1));
        if let Some(outer) = outer {
            assert_eq!((outer.name(), outer.global_ranks()), ("1", &[0, 2][..]));
            assert_eq!((outer.rank(), outer.size()), (own / 2, 2));
            assert_eq!(sum_of_ranks(&outer, own)?, 2.0);
            // Roots are ranks of the sub-group.
            let tensor = float(&marked(own, 2))?;
            outer.broadcast(&tensor, 1)?;
            assert_eq!(numbers(&tensor)?, marked(2, 2));
        }
        if let Some(inner) = inner {
            assert_eq!((inner.name(), inner.global_ranks()), ("2", &[1][..]));
            assert_eq!((inner.rank(), inner.size()), (0, 1));
            assert_eq!(sum_of_ranks(&inner, own)?, 1.0);
        }
        assert_eq!(sum_of_ranks(group, own)?, 3.0);
        Ok(())
    });
}

#[test]
fn two_groups_of_the_same_ranks_work_at_once() {
    on_worlds(&[2, 3], |group| {
        let all: Vec<usize> = (0..group.size()).collect();
        let (Some(one), Some(two)) = (group.subgroup(&all)?, group.subgroup(&all)?) else {
            return Err("every rank is a member".into());
        };
        assert_eq!((one.name(), two.name()), ("1", "2"));
        let (a, b, c) = (float(&[1.0])?, float(&[10.0])?, float(&[100.0])?);
        // Every group has its own order: here the ranks even start in different ones.
        let started = if group.rank() == 0 {
            [
                one.all_reduce_async(&a, ReduceOp::Sum)?,
                two.all_reduce_async(&b, ReduceOp::Sum)?,
                group.all_reduce_async(&c, ReduceOp::Sum)?,
            ]
        } else {
            [
                group.all_reduce_async(&c, ReduceOp::Sum)?,
                two.all_reduce_async(&b, ReduceOp::Sum)?,
                one.all_reduce_async(&a, ReduceOp::Sum)?,
            ]
        };
        for work in started {
            work.wait()?;
        }
        let world = real(group.size());
        for (tensor, each) in [(a, 1.0), (b, 10.0), (c, 100.0)] {
            assert_eq!(numbers(&tensor)?, [each * world]);
        }
        Ok(())
    });
}

#[test]
fn a_group_of_one_talks_to_itself() {
    on_worlds(&[2], |group| {
        let own = group.rank();
        let mut mine = None;
        for rank in 0..group.size() {
            mine = group.subgroup(&[rank])?.or(mine);
        }
        let mine = mine.ok_or("every rank has a group of its own")?;
        assert_eq!(mine.name(), (own + 1).to_string());
        let (input, output) = (float(&marked(own, 3))?, float(&[-1.0; 3])?);
        mine.exchange_all_gather_async(&output, &input)?.wait()?;
        assert_eq!(numbers(&output)?, marked(own, 3));
        let (summed, room) = (float(&[-1.0; 3])?, float(&[])?);
        mine.exchange_reduce_scatter_async(&summed, &input, &room, ReduceOp::Avg)?
            .wait()?;
        assert_eq!(numbers(&summed)?, marked(own, 3));
        assert_eq!(mine.all_gather_bytes(b"alone")?, [b"alone"]);
        mine.barrier()?;
        Ok(())
    });
}

#[test]
fn ranks_of_a_sub_group_are_different_and_there() {
    on_worlds(&[2, 3], |group| {
        for wrong in [&[][..], &[0, 0], &[0, group.size()]] {
            let error = group.subgroup(wrong).unwrap_err();
            assert!(matches!(&error, Error::Argument { .. }), "{error}");
            assert!(
                error.to_string().contains(&format!("found {wrong:?}")),
                "{error}"
            );
        }
        // A refused group takes no name.
        let pair = group.subgroup(&[0, 1])?;
        assert!(pair.is_none_or(|pair| pair.name() == "1"));
        Ok(())
    });
}

/// One file for all ranks of a run, which no other run has.
fn store_file(rank: Rank) -> PathBuf {
    let name = format!(
        "accelerate-{}-{}.store",
        std::os::unix::process::parent_id(),
        rank.port()
    );
    std::env::temp_dir().join(name)
}

#[test]
fn ranks_meet_in_a_file() {
    ranks(&[2, 3], |rank| -> Outcome {
        let path = store_file(rank);
        let store = Store::file(&path, rank.world())?;
        let group = ProcessGroup::new(&store, rank.index(), rank.world(), &options())?;
        let own = group.rank();
        assert_eq!(
            sum_of_ranks(&group, own)?,
            real(rank.world() * (rank.world() - 1) / 2)
        );
        let last = rank.world() - 1;
        let outer = group.subgroup(&[0, last])?;
        assert_eq!(outer.is_some(), own == 0 || own == last);
        if let Some(outer) = &outer {
            assert_eq!(outer.name(), "1");
            assert_eq!(sum_of_ranks(outer, own)?, real(last));
        }
        group.barrier()?;
        if own == 0 {
            // libtorch may have taken it away already.
            let _ = std::fs::remove_file(path);
        }
        group.barrier()?;
        Ok(())
    });
}

#[test]
fn a_rank_is_below_the_world_size() -> Outcome {
    let folder = tempfile::tempdir()?;
    let store = Store::file(&folder.path().join("store"), 2)?;
    let error = ProcessGroup::new(&store, 2, 2, &options()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("below the world size 2, found 2"),
        "{error}"
    );
    assert!(error.source().is_none());
    Ok(())
}

#[test]
fn nothing_is_sent_after_an_end() {
    on_worlds(&[2], |group| {
        let Some(pair) = group.subgroup(&[0, 1])? else {
            return Err("both ranks are members".into());
        };
        assert_eq!(sum_of_ranks(&pair, group.rank())?, 1.0);
        pair.shutdown()?;
        drop(pair);
        assert_eq!(sum_of_ranks(group, group.rank())?, 1.0);
        Ok(())
    });
}
