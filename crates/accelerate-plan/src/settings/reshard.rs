//! `fsdp_reshard_after_forward`: a truth value in version 2, a sharding strategy in version 1.

use super::{Scalar, ShardingStrategy};
use crate::{
    config::Value,
    env::{Format, Refused, format::FLAG},
};

/// What happens to the parameters of a unit after its forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReshardAfterForward {
    /// Dropped or kept.
    Whether(bool),
    /// As this strategy says.
    AsStrategy(ShardingStrategy),
}

impl ReshardAfterForward {
    pub(crate) const FORMAT: Format<Self> = Format {
        kind: "flag or strategy",
        expected: "a truth word, or one of `FULL_SHARD`, `SHARD_GRAD_OP`, `NO_SHARD`, \
                   `HYBRID_SHARD`, `HYBRID_SHARD_ZERO2`",
        choices: &[],
        parse: |text| {
            let strategy = || ShardingStrategy::from_name(text).map(Self::AsStrategy);
            let whether = (FLAG.parse)(text).map(Self::Whether).ok();
            whether.or_else(strategy).ok_or(Refused::Invalid)
        },
        // Programs of the original read this variable in lower case.
        render: |value| match value {
            Self::Whether(whether) => whether.to_string(),
            Self::AsStrategy(strategy) => strategy.name().to_ascii_lowercase(),
        },
    };

    /// The strategy, where one is named.
    pub fn strategy(self) -> Option<ShardingStrategy> {
        match self {
            Self::Whether(_) => None,
            Self::AsStrategy(strategy) => Some(strategy),
        }
    }
}

impl Scalar for ReshardAfterForward {
    fn to_value(&self) -> Value {
        match self {
            Self::Whether(whether) => Value::Bool(*whether),
            Self::AsStrategy(strategy) => strategy.name().into(),
        }
    }
}
