//! Objects as bytes.
//!
//! The one place that knows the format, which is MessagePack with the names of fields: it
//! describes itself, so that every way to write a type with serde works, and it has a sign
//! for every number.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

pub(super) fn encode<T: Serialize>(operation: &'static str, value: &T) -> Result<Vec<u8>> {
    rmp_serde::to_vec_named(value).map_err(|error| Error::ObjectEncoding {
        operation,
        action: "encode",
        source: Box::new(error),
    })
}

pub(super) fn decode<T: DeserializeOwned>(operation: &'static str, bytes: &[u8]) -> Result<T> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::ObjectEncoding {
        operation,
        action: "decode",
        source,
    };
    let mut rest = bytes;
    let value = rmp_serde::from_read(&mut rest).map_err(|error| failed(Box::new(error)))?;
    match rest.len() {
        0 => Ok(value),
        more => Err(failed(
            format!("{more} bytes follow the object; is it another type on the other rank?").into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use proptest::prelude::*;
    use serde::Deserialize;

    fn there_and_back<T: Serialize + DeserializeOwned>(value: &T) -> Result<T> {
        decode("test", &encode("test", value)?)
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Metric {
        Nothing,
        One(Option<f64>),
        Pair(u8, char),
        Loss { value: f32, tags: Vec<String> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(i64),
        Text(String),
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Settings {
        #[serde(flatten)]
        rest: BTreeMap<String, Either>,
        #[serde(skip_serializing_if = "Option::is_none")]
        host: Option<IpAddr>,
    }

    #[test]
    fn every_number_comes_back() -> Result<()> {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 5e-324] {
            assert_eq!(there_and_back(&number)?.to_bits(), number.to_bits());
            let small = number as f32;
            assert_eq!(there_and_back(&small)?.to_bits(), small.to_bits());
        }
        let wide = (i128::MIN, u128::MAX, i64::MIN, u64::MAX);
        assert_eq!(there_and_back(&wide)?, wide);
        Ok(())
    }

    #[test]
    fn every_shape_of_a_type_comes_back() -> Result<()> {
        let keys = BTreeMap::from([
            ((1, false), Metric::Nothing),
            ((2, true), Metric::One(None)),
        ]);
        assert_eq!(there_and_back(&keys)?, keys);
        let settings = Settings {
            rest: BTreeMap::from([
                ("a".to_owned(), Either::Number(-3)),
                ("b".to_owned(), Either::Text("ü".to_owned())),
            ]),
            host: None,
        };
        assert_eq!(there_and_back(&settings)?, settings);
        let bytes = std::ffi::CString::new("raw").unwrap_or_default();
        assert_eq!(there_and_back(&bytes)?, bytes);
        there_and_back(&())
    }

    #[test]
    fn what_cannot_be_read_is_told() -> Result<()> {
        assert!(decode::<u8>("test", &encode("test", &300)?).is_err());
        assert!(decode::<String>("test", &encode("test", &7)?).is_err());
        let mut longer = encode("test", &7u8)?;
        longer.push(0);
        let error = decode::<u8>("test", &longer).unwrap_err().with_causes();
        assert!(error.contains("1 bytes follow"), "{error}");
        assert!(decode::<Vec<u8>>("test", &[]).is_err());
        Ok(())
    }

    fn metric() -> impl Strategy<Value = Metric> {
        prop_oneof![
            Just(Metric::Nothing),
            any::<Option<f64>>().prop_map(Metric::One),
            any::<(u8, char)>().prop_map(|(a, b)| Metric::Pair(a, b)),
            any::<(f32, Vec<String>)>().prop_map(|(value, tags)| Metric::Loss { value, tags }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn values_come_back_as_they_were(
            value in prop::collection::btree_map(any::<i16>(), (metric(), any::<Vec<u8>>()), 0..8)
        ) {
            prop_assert_eq!(there_and_back(&value)?, value);
        }
    }
}
