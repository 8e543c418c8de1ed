//! Objects as bytes.
//!
//! The one place that knows the format, which is JSON. It has no sign for numbers that
//! are not finite and would send nothing in their place, so they are refused.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::finite;
use crate::{Error, Result};

pub(super) fn encode<T: Serialize>(operation: &'static str, value: &T) -> Result<Vec<u8>> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::ObjectEncoding {
        operation,
        action: "encode",
        source,
    };
    finite::check(value).map_err(|error| failed(Box::new(error)))?;
    serde_json::to_vec(value).map_err(|error| failed(Box::new(error)))
}

pub(super) fn decode<T: DeserializeOwned>(operation: &'static str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| Error::ObjectEncoding {
        operation,
        action: "decode",
        source: Box::new(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn values_come_back_as_they_were() -> Result<()> {
        type Value = BTreeMap<String, (Option<f64>, Vec<i64>, char)>;
        let value: Value = BTreeMap::from([
            ("a".to_owned(), (Some(0.1 + 0.2), vec![i64::MIN], 'ü')),
            ("b".to_owned(), (None, vec![], '"')),
        ]);
        let bytes = encode("test", &value)?;
        assert_eq!(decode::<Value>("test", &bytes)?, value);
        Ok(())
    }

    #[test]
    fn what_cannot_be_sent_is_told() {
        let nan = encode("test", &vec![Some(f32::NAN)]).unwrap_err();
        let cause = std::error::Error::source(&nan).map(ToString::to_string);
        assert!(
            cause.as_deref().is_some_and(|text| text.contains("NaN")),
            "{cause:?}"
        );
        assert!(encode("test", &BTreeMap::from([((1, 2), 3)])).is_err());
        assert!(decode::<u8>("test", b"300").is_err());
    }
}
