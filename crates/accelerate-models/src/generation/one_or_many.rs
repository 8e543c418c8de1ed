//! Token ids in configurations: one number, a list of them, or `null`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<i64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Ids {
        One(i64),
        Many(Vec<i64>),
    }
    Ok(match Option::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Ids::One(id)) => vec![id],
        Some(Ids::Many(ids)) => ids,
    })
}

pub(crate) fn serialize<S: Serializer>(ids: &[i64], serializer: S) -> Result<S::Ok, S::Error> {
    match ids {
        [] => serializer.serialize_none(),
        [id] => serializer.serialize_i64(*id),
        ids => ids.serialize(serializer),
    }
}
