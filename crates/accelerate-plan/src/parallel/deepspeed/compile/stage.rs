//! What DeepSpeed has in some stages only.

use super::Compiler;
use crate::{
    config::{Value, inline_json},
    parallel::{
        PlanError,
        deepspeed::document::{flag, number},
        error::contradiction,
    },
    settings::Sourced,
};

/// What a key needs of the stage.
struct Needs {
    key: &'static str,
    is_on: fn(&Value) -> bool,
    stage: u64,
    expected: &'static str,
}

static NEEDS: [Needs; 6] = [
    Needs {
        key: "zero_optimization.offload_optimizer.device",
        is_on: is_device,
        stage: 1,
        expected: "`none` without ZeRO",
    },
    Needs {
        key: "zero_optimization.offload_param.device",
        is_on: is_device,
        stage: 3,
        expected: "`none` below stage 3",
    },
    Needs {
        key: "zero_optimization.zero_quantized_weights",
        is_on: is_true,
        stage: 3,
        expected: "`false` below stage 3",
    },
    Needs {
        key: "zero_optimization.zero_quantized_gradients",
        is_on: is_true,
        stage: 3,
        expected: "`false` below stage 3",
    },
    Needs {
        key: "zero_optimization.zero_hpz_partition_size",
        is_on: is_above_one,
        stage: 3,
        expected: "1 below stage 3",
    },
    Needs {
        key: "zero_optimization.mics_shard_size",
        is_on: is_above_one,
        stage: 3,
        expected: "-1 below stage 3",
    },
];

fn is_device(value: &Value) -> bool {
    matches!(value, Value::Text(text) if text != "none")
}

fn is_true(value: &Value) -> bool {
    flag(value) == Some(true)
}

fn is_above_one(value: &Value) -> bool {
    number(value).is_some_and(|number| number > 1.0)
}

impl Compiler<'_> {
    /// Refuses what the stage does not have.
    pub(super) fn check(&self) -> Result<(), PlanError> {
        let stage = Sourced {
            value: self.stage,
            origin: self.document.origin("zero_optimization.stage"),
        };
        for Needs {
            key,
            is_on,
            stage: least,
            expected,
        } in &NEEDS
        {
            let Some(value) = self.document.get(key).filter(|value| is_on(value)) else {
                continue;
            };
            if self.stage < *least {
                let found = Sourced {
                    value: inline_json(value),
                    origin: self.document.origin(key),
                };
                return Err(contradiction(key, &found, expected, &stage));
            }
        }
        let ratio = self.zero("offload_optimizer.ratio");
        match self.document.number(&ratio, 1.0)? {
            part if !(0.0..=1.0).contains(&part) => {
                Err(self.document.refuse(&ratio, "a number from 0 to 1"))
            }
            part if part < 1.0 && self.stage < 3 => {
                Err(self.document.refuse(&ratio, "1 below stage 3"))
            }
            _ => Ok(()),
        }
    }
}
