//! Types of settings as plain data.

use std::num::{NonZeroU32, NonZeroUsize};

use crate::{MixedPrecision, config::Value};

/// The type of a setting.
pub trait Scalar {
    /// The value as a file holds it.
    fn to_value(&self) -> Value;
}

impl Scalar for bool {
    fn to_value(&self) -> Value {
        Value::Bool(*self)
    }
}

impl Scalar for f64 {
    fn to_value(&self) -> Value {
        Value::Float(*self)
    }
}

impl Scalar for String {
    fn to_value(&self) -> Value {
        Value::Text(self.clone())
    }
}

impl Scalar for Vec<String> {
    fn to_value(&self) -> Value {
        Value::List(self.iter().map(String::as_str).map(Value::from).collect())
    }
}

impl Scalar for MixedPrecision {
    fn to_value(&self) -> Value {
        self.name().into()
    }
}

impl Scalar for Value {
    fn to_value(&self) -> Value {
        self.clone()
    }
}

macro_rules! whole_numbers {
    ($($type:ty: $get:expr;)+) => {$(
        impl Scalar for $type {
            fn to_value(&self) -> Value {
                let number = ($get)(*self);
                i64::try_from(number).map_or_else(|_| Value::Text(number.to_string()), Value::Int)
            }
        }
    )+};
}

whole_numbers! {
    u16: u64::from;
    u64: u64::from;
    usize: |number| number as u64;
    NonZeroU32: |number: NonZeroU32| u64::from(number.get());
    NonZeroUsize: |number: NonZeroUsize| number.get() as u64;
}
