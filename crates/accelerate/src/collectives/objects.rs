use serde::Serialize;
use serde::de::DeserializeOwned;

use super::watch::{Operation, Watch};
use super::{codec, wire};
use crate::state::PartialState;
use crate::{Error, Result};

/// The largest message of one rank: every rank holds those of all at once.
pub const MAX_OBJECT_BYTES: usize = 1 << 30;

/// Joins the lists of all ranks, in the order of ranks; lengths may differ.
///
/// For what is no tensor: text, counts, structs of results. Everything that serde knows
/// comes back as it was, except that an option of something empty, `Some(None)` or
/// `Some(())`, comes back as `None`. Tensors go faster with [`gather`](super::gather).
///
/// # Collective
/// Every rank calls this. An error of one rank's own is an error on all.
///
/// # Errors
/// [`Error::ObjectEncoding`] where a value cannot be sent, and [`Error::ObjectOfOtherRank`]
/// on the others; [`Error::ObjectTooLarge`] above [`MAX_OBJECT_BYTES`].
///
/// # Source
/// `accelerate.utils.gather_object`. Differs: each rank gives a list by its type, which
/// the original expects and does not check.
#[track_caller]
pub fn gather_object<T>(state: &PartialState, own: Vec<T>) -> Result<Vec<T>>
where
    T: Serialize + DeserializeOwned,
{
    const OPERATION: &str = "gather_object";
    let Some(watch) = Watch::begin(state, &Operation::new(OPERATION))? else {
        return Ok(own);
    };
    let encoded = codec::encode(OPERATION, &own);
    let messages = watch.run(|group| {
        let own = encoded.as_deref().map_err(|_| ());
        wire::gather_results(group, watch.device(), own)
    });
    let messages = or_own_failure(messages, encoded)?;
    let mut all = Vec::new();
    for message in messages {
        all.append(&mut codec::decode::<Vec<T>>(OPERATION, &message)?);
    }
    Ok(all)
}

/// Puts the list of one rank in place of that of every other.
///
/// # Collective
/// Every rank calls this with the same `from_process`; what the others hold is replaced,
/// whatever its length.
///
/// # Errors
/// As [`gather_object`]; [`Error::Argument`] for a rank that is not there.
///
/// # Source
/// `accelerate.utils.broadcast_object_list`. Differs: lists need not be as long before.
#[track_caller]
pub fn broadcast_object_list<T>(
    state: &PartialState,
    list: &mut Vec<T>,
    from_process: usize,
) -> Result<()>
where
    T: Serialize + DeserializeOwned,
{
    const OPERATION: &str = "broadcast_object_list";
    super::broadcast::check_rank(state, OPERATION, from_process)?;
    let operation =
        Operation::new(OPERATION).with_arguments(format!("from_process {from_process}"));
    let Some(watch) = Watch::begin(state, &operation)? else {
        return Ok(());
    };
    let is_source = state.process_index() == from_process;
    let encoded = match is_source {
        true => codec::encode(OPERATION, list),
        false => Ok(Vec::new()),
    };
    let message = watch.run(|group| {
        let own = encoded.as_deref().map_err(|_| ());
        wire::broadcast_result(group, watch.device(), own, from_process)
    });
    let message = or_own_failure(message, encoded)?;
    if !is_source {
        *list = codec::decode(OPERATION, &message)?;
    }
    Ok(())
}

/// The rank that could not make its message reports why, not that it could not.
fn or_own_failure<R>(sent: Result<R>, own: Result<Vec<u8>>) -> Result<R> {
    match sent {
        Err(Error::ObjectOfOtherRank { .. }) => own.and(sent),
        sent => sent,
    }
}
