use accelerate_plan::config::{Value, inline_json, nearest};
use accelerate_plan::parallel::PlanError;
use accelerate_plan::settings::Origin;
use indexmap::IndexMap;

use crate::Result;

/// Parameters of an optimizer or a schedule that stand in the config by PyTorch's names.
pub(super) struct Params<'a> {
    pub(super) values: &'a IndexMap<String, Value>,
    /// The map that they stand in.
    pub(super) map: &'static str,
    /// Where the name of the optimizer or schedule stands.
    pub(super) origin: &'a Origin,
}

impl Params<'_> {
    /// Refuses parameters with other names than these.
    pub(super) fn only(&self, known: &[&str]) -> Result<()> {
        let mut names = self.values.keys();
        let Some(unknown) = names.find(|name| !known.contains(&name.as_str())) else {
            return Ok(());
        };
        let all = known.join("`, `");
        let expected = match nearest(unknown, known.iter().copied()) {
            Some(alike) => format!("`{alike}`, or another parameter of it: `{all}`"),
            None => format!("a parameter of it: `{all}`"),
        };
        Err(self.refuse(unknown, &expected))
    }

    pub(super) fn number(&self, name: &str, otherwise: f64) -> Result<f64> {
        match self.values.get(name) {
            None | Some(Value::Null) => Ok(otherwise),
            Some(Value::Float(number)) => Ok(*number),
            Some(Value::Int(number)) => Ok(*number as f64),
            Some(Value::Text(text)) => match text.trim().parse() {
                Ok(number) => Ok(number),
                Err(_) => Err(self.refuse(name, "a number")),
            },
            Some(_) => Err(self.refuse(name, "a number")),
        }
    }

    pub(super) fn flag(&self, name: &str, otherwise: bool) -> Result<bool> {
        match self.values.get(name) {
            None | Some(Value::Null) => Ok(otherwise),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.refuse(name, "`true` or `false`")),
        }
    }

    fn refuse(&self, name: &str, expected: &str) -> crate::Error {
        let found = self.values.get(name).map(inline_json);
        refused(
            format!("{}.{name}", self.map),
            found.unwrap_or_default(),
            expected,
            self.origin,
        )
    }
}

/// The error for a value of the config.
pub(super) fn refused(
    key: impl Into<String>,
    found: impl Into<String>,
    expected: impl Into<String>,
    origin: &Origin,
) -> crate::Error {
    let error = PlanError::Value {
        key: key.into(),
        found: found.into(),
        expected: expected.into(),
        origin: origin.clone(),
    };
    error.into()
}
