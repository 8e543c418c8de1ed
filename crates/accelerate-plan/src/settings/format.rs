//! How the values of settings are written as text, where no variable has said so already.

use crate::{
    config::Value,
    env::{Format, Refused},
};

/// Which of forward, gradients and weights FP8 leaves in higher precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OverrideLinearPrecision {
    /// The forward product.
    pub fprop: bool,
    /// The gradient of the input.
    pub dgrad: bool,
    /// The gradient of the weight.
    pub wgrad: bool,
}

impl super::Scalar for OverrideLinearPrecision {
    fn to_value(&self) -> Value {
        [self.fprop, self.dgrad, self.wgrad]
            .map(Value::Bool)
            .to_vec()
            .into()
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::List(items)
    }
}

/// Texts, one per line.
pub(crate) static LINES: Format<Vec<String>> = Format {
    kind: "list",
    expected: "a list of texts",
    choices: &[],
    // A questionnaire left blank used to write one empty item.
    parse: |text| {
        let lines = text.lines().filter(|line| !line.is_empty());
        Ok(lines.map(str::to_owned).collect())
    },
    render: |items| items.join("\n"),
};

/// A map of anything, as JSON.
pub(crate) static MAP: Format<Value> = Format {
    kind: "map",
    expected: "a map",
    choices: &[],
    parse: |text| match crate::config::from_inline_json(text) {
        Some(value @ Value::Map(_)) => Ok(value),
        _ => Err(Refused::Invalid),
    },
    render: crate::config::inline_json,
};

/// Three truth words, or one for all three.
pub(crate) static LINEAR_PRECISION: Format<OverrideLinearPrecision> = Format {
    kind: "three flags",
    expected: "three truth words for fprop, dgrad and wgrad, such as `false,false,true`",
    choices: &[],
    parse: linear_precision,
    render: |value| {
        let words = [value.fprop, value.dgrad, value.wgrad].map(|word| word.to_string());
        words.join(",")
    },
};

fn linear_precision(text: &str) -> Result<OverrideLinearPrecision, Refused> {
    let bare = text
        .trim()
        .trim_start_matches(['(', '['])
        .trim_end_matches([')', ']']);
    let words = bare
        .split([',', '\n'])
        .map(|word| (crate::env::format::FLAG.parse)(word.trim()));
    match words.collect::<Result<Vec<bool>, _>>()?.as_slice() {
        [all] => Ok(OverrideLinearPrecision {
            fprop: *all,
            dgrad: *all,
            wgrad: *all,
        }),
        [fprop, dgrad, wgrad] => Ok(OverrideLinearPrecision {
            fprop: *fprop,
            dgrad: *dgrad,
            wgrad: *wgrad,
        }),
        _ => Err(Refused::Invalid),
    }
}
/// `all`, or numbers of devices with commas between.
pub(crate) static DEVICES: Format<String> = Format {
    kind: "devices",
    expected: "`all`, or numbers of devices with commas between, such as `0,1`",
    choices: &[],
    parse: |text| {
        let is_id = |id: &str| {
            let id = id.trim();
            !id.is_empty()
                && id
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.:/".contains(c))
        };
        match text.split(',').all(is_id) {
            true => Ok(text.replace(' ', "")),
            false => Err(Refused::Invalid),
        }
    },
    render: String::clone,
};
