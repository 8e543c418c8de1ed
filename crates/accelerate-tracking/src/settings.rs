//! Settings as trackers take them: flat, and without secrets.

use crate::value::{Value, Values};

/// Values without nesting.
#[derive(Debug, Clone, PartialEq)]
pub struct Flat {
    /// The values, by names that hold the way to each.
    pub values: Values,
    /// Whether anything was nested.
    pub nested: bool,
}

/// Replaces maps by their values, named by the way to them; lists become text.
///
/// ```
/// use accelerate_tracking::settings::flatten;
/// use accelerate_tracking::{Value, Values};
///
/// let nested = Values::new().with("optimizer", Values::from([("lr", 0.1)]));
/// let flat = flatten(&nested, ".");
/// assert!(flat.nested);
/// assert_eq!(flat.values, Values::from([("optimizer.lr", 0.1)]));
/// ```
#[must_use]
pub fn flatten(values: &Values, separator: &str) -> Flat {
    let mut flat = Flat {
        values: Values::new(),
        nested: false,
    };
    add("", values, separator, &mut flat);
    flat
}

fn add(way: &str, values: &Values, separator: &str, flat: &mut Flat) {
    for (name, value) in values.iter() {
        let name = if way.is_empty() {
            name.to_owned()
        } else {
            format!("{way}{separator}{name}")
        };
        match value {
            Value::Map(inner) => {
                flat.nested = true;
                add(&name, inner, separator, flat);
            }
            Value::List(_) => {
                flat.nested = true;
                flat.values.insert(name, value.to_string());
            }
            plain => {
                flat.values.insert(name, plain.clone());
            }
        }
    }
}

/// Names whose values are nobody's business, without regard to case, `-` and `_`.
const SECRET_NAMES: [&str; 16] = [
    "accesskey",
    "accesstoken",
    "apikey",
    "apitoken",
    "authorization",
    "authtoken",
    "credentials",
    "hftoken",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "secret",
    "secretaccesskey",
    "secretkey",
    "token",
];

/// What stands in place of a secret.
const REDACTED: &str = "[redacted]";

/// Replaces texts whose names say that they are secrets; gives the names of those.
pub fn redact(values: &mut Values) -> Vec<String> {
    let mut redacted = Vec::new();
    *values = std::mem::take(values)
        .into_iter()
        .map(|(name, value)| {
            let value = without_secrets(&name, value, &mut redacted);
            (name, value)
        })
        .collect();
    redacted
}

fn without_secrets(name: &str, value: Value, redacted: &mut Vec<String>) -> Value {
    match value {
        Value::Map(mut inner) => {
            redacted.extend(redact(&mut inner));
            Value::Map(inner)
        }
        Value::List(items) => Value::List(
            items
                .into_iter()
                .map(|item| without_secrets(name, item, redacted))
                .collect(),
        ),
        Value::Text(text) if !text.is_empty() && is_secret(name) => {
            redacted.push(name.to_owned());
            Value::Text(REDACTED.to_owned())
        }
        other => other,
    }
}

fn is_secret(name: &str) -> bool {
    let last = name.rsplit(['.', '/']).next().unwrap_or(name);
    let plain: String = last
        .chars()
        .filter(|c| !matches!(c, '-' | '_' | ' '))
        .flat_map(char::to_lowercase)
        .collect();
    let known = SECRET_NAMES.binary_search(&plain.as_str()).is_ok();
    // `WANDB_API_KEY`, `comet_api_key`, `mlflow_tracking_password`, `hub_token`. By whole endings: `pad_token` and its like are words of a tokenizer.
    known
        || [
            "accesskey",
            "accesstoken",
            "apikey",
            "apitoken",
            "authtoken",
            "hftoken",
            "hubtoken",
            "passphrase",
            "passwd",
            "password",
            "privatekey",
            "secret",
            "secretkey",
            "trackingtoken",
        ]
        .iter()
        .any(|ending| plain.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_lists_become_flat() {
        let nested = Values::new()
            .with("lr", 0.1)
            .with("betas", vec![Value::from(0.9), Value::from(0.999)])
            .with(
                "model",
                Values::new()
                    .with("layers", 2)
                    .with("norm", Values::from([("eps", 1e-5)])),
            );
        let flat = flatten(&nested, ".");
        assert!(flat.nested);
        let expected = Values::new()
            .with("lr", 0.1)
            .with("betas", "[0.9,0.999]")
            .with("model.layers", 2)
            .with("model.norm.eps", 1e-5);
        assert_eq!(flat.values, expected);
        assert!(!flatten(&expected, ".").nested);
    }

    #[test]
    fn secrets_go_and_what_only_sounds_like_one_stays() {
        let mut values = Values::new()
            .with("WANDB_API_KEY", "abc")
            .with("password", "abc")
            .with("hub_token", "abc")
            .with(
                "servers",
                vec![Value::Map(Values::from([("client_secret", "abc")]))],
            )
            .with("pad_token", "[PAD]")
            .with("tokenizer", "bert")
            .with("max_tokens", 5)
            .with("token", 7)
            .with("hub", Values::from([("token", "abc")]));
        let names = redact(&mut values);
        let hidden = [
            "WANDB_API_KEY",
            "password",
            "hub_token",
            "client_secret",
            "token",
        ];
        assert_eq!(names, hidden);
        assert_eq!(values.get("pad_token"), Some(&Value::from("[PAD]")));
        assert!(!format!("{values:?}").contains("abc"));
        assert_eq!(values.get("tokenizer"), Some(&Value::from("bert")));
        assert_eq!(values.get("token"), Some(&Value::Int(7)));
    }

    #[test]
    fn the_names_are_in_order() {
        assert!(SECRET_NAMES.is_sorted());
    }
}
