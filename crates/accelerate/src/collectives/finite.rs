//! Finds numbers that are not finite in any value.

use std::fmt;

use serde::ser::{self, Serialize, Serializer};

/// Why a value cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsent {
    #[error("found the number {0}, which objects cannot carry; send it in a tensor, or as text")]
    NotFinite(f64),
    #[error("{0}")]
    Other(String),
}

impl ser::Error for Unsent {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }
}

/// Walks through a value and stops at the first number that is not finite.
pub(super) fn check<T: Serialize + ?Sized>(value: &T) -> Result<(), Unsent> {
    value.serialize(Check)
}

#[derive(Clone, Copy)]
struct Check;

macro_rules! fine {
    ($($method:ident($($type:ty),*);)*) => {$(
        fn $method(self $(, _: $type)*) -> Result<(), Unsent> {
            Ok(())
        }
    )*};
}

macro_rules! compound {
    ($($method:ident($($type:ty),*) -> $compound:ident;)*) => {$(
        fn $method(self $(, _: $type)*) -> Result<Self::$compound, Unsent> {
            Ok(self)
        }
    )*};
}

impl Serializer for Check {
    type Ok = ();
    type Error = Unsent;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    fine! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    compound! {
        serialize_seq(Option<usize>) -> SerializeSeq;
        serialize_tuple(usize) -> SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant;
        serialize_map(Option<usize>) -> SerializeMap;
        serialize_struct(&'static str, usize) -> SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant;
    }

    fn serialize_f32(self, number: f32) -> Result<(), Unsent> {
        self.serialize_f64(f64::from(number))
    }

    fn serialize_f64(self, number: f64) -> Result<(), Unsent> {
        match number.is_finite() {
            true => Ok(()),
            false => Err(Unsent::NotFinite(number)),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unsent> {
        check(value)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unsent> {
        check(value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unsent> {
        check(value)
    }
}

macro_rules! parts {
    ($($compound:ident: $method:ident($($name:ty)?);)*) => {$(
        impl ser::$compound for Check {
            type Ok = ();
            type Error = Unsent;

            fn $method<T: Serialize + ?Sized>(
                &mut self
                $(, _: $name)?,
                value: &T,
            ) -> Result<(), Unsent> {
                check(value)
            }

            fn end(self) -> Result<(), Unsent> {
                Ok(())
            }
        }
    )*};
}

parts! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeStruct: serialize_field(&'static str);
    SerializeStructVariant: serialize_field(&'static str);
}

/// Keys of JSON are text, so that only values count.
impl ser::SerializeMap for Check {
    type Ok = ();
    type Error = Unsent;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unsent> {
        check(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unsent> {
        check(value)
    }

    fn end(self) -> Result<(), Unsent> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(serde::Serialize)]
    enum Metric {
        Loss { value: f32 },
        Pair(u8, f64),
        One(Option<f64>),
    }

    #[test]
    fn numbers_are_found_at_any_depth() {
        let map = |metric| BTreeMap::from([("a", vec![(1, metric)])]);
        assert!(check(&map(Metric::Loss { value: 1.0 })).is_ok());
        assert!(check(&map(Metric::Loss { value: f32::NAN })).is_err());
        assert!(check(&map(Metric::Pair(1, f64::INFINITY))).is_err());
        assert!(check(&map(Metric::One(Some(f64::NEG_INFINITY)))).is_err());
        assert!(check(&map(Metric::One(None))).is_ok());
    }
}
