//! Messages between two ranks.

use accelerate_torch::{Error, ProcessGroup};

use crate::support::{Outcome, empty_places, float, marked, numbers, on_ranks};

#[test]
fn two_ranks_write_to_each_other() {
    on_ranks!(
        messages_go_round_the_ring,
        tags_keep_messages_apart,
        work_is_not_completed_before_its_message_comes,
        nobody_writes_to_itself,
    );
}

fn messages_go_round_the_ring(group: &ProcessGroup) -> Outcome {
    let (rank, world) = (group.rank(), group.size());
    let (next, before) = ((rank + 1) % world, (rank + world - 1) % world);
    let mine = float(&marked(rank, 3))?;
    let got = float(&[-1.0; 3])?;
    let sent = group.send_async(&mine, next, 0)?;
    group.receive(&got, before, 0)?;
    sent.wait()?;
    assert_eq!(numbers(&got)?, marked(before, 3));
    Ok(())
}

fn tags_keep_messages_apart(group: &ProcessGroup) -> Outcome {
    let last = group.size() - 1;
    if group.rank() == 0 {
        let first = group.send_async(&float(&marked(1, 4))?, last, 7)?;
        let second = group.send_async(&float(&marked(2, 4))?, last, u16::MAX)?;
        second.wait()?;
        first.wait()?;
    } else if group.rank() == last {
        // In another order than they are sent in.
        let places = empty_places(2, 4)?;
        group.receive(&places[1], 0, u16::MAX)?;
        group.receive(&places[0], 0, 7)?;
        assert_eq!(numbers(&places[0])?, marked(1, 4));
        assert_eq!(numbers(&places[1])?, marked(2, 4));
    }
    Ok(())
}

fn work_is_not_completed_before_its_message_comes(group: &ProcessGroup) -> Outcome {
    match group.rank() {
        0 => {
            let place = float(&[-1.0])?;
            let work = group.receive_async(&place, 1, 3)?;
            assert!(!work.is_completed()?);
            group.barrier()?;
            work.wait()?;
            assert_eq!(numbers(&place)?, [5.0]);
        }
        1 => {
            group.barrier()?;
            group.send(&float(&[5.0])?, 0, 3)?;
        }
        _ => group.barrier()?,
    }
    Ok(())
}

fn nobody_writes_to_itself(group: &ProcessGroup) -> Outcome {
    let own = group.rank();
    let tensor = float(&[1.0])?;
    for error in [
        group.send(&tensor, own, 0).unwrap_err(),
        group.receive(&tensor, own, 0).unwrap_err(),
    ] {
        assert!(matches!(&error, Error::Argument { .. }), "{error}");
        assert!(
            error.to_string().contains(&format!("this rank, {own}")),
            "{error}"
        );
    }
    Ok(())
}
