//! The `config.json` of a model: typed reading with the defaults of its family.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::error::{EstimateError, Result};

/// The largest `config.json` that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// The largest length of a dimension, so that a product of two still fits.
const MAX_DIMENSION: u64 = 1 << 31;
/// The most layers of one kind. The largest public models have less than 200.
const MAX_LAYERS: u64 = 4096;
/// The longest list of sizes.
const MAX_LIST: usize = 64;

/// The content of a `config.json` and where it lies.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    path: PathBuf,
    object: Map<String, Value>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`EstimateError::ConfigUnreadable`] and [`EstimateError::ConfigNotJson`].
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let unreadable = |source| EstimateError::ConfigUnreadable {
            path: path.to_owned(),
            source,
        };
        let found = fs::metadata(path).map_err(unreadable)?;
        if !found.is_file() || found.len() > MAX_BYTES {
            return Err(EstimateError::NoConfigFile {
                path: path.to_owned(),
            });
        }
        let text = fs::read(path).map_err(unreadable)?;
        let object = serde_json::from_slice(&text).map_err(|source| {
            let path = path.to_owned();
            EstimateError::ConfigNotJson { path, source }
        })?;
        Ok(Self {
            path: path.to_owned(),
            object,
        })
    }

    /// A configuration that is in no file, named after `path`.
    #[cfg(test)]
    pub(crate) fn from_object(path: impl Into<PathBuf>, object: Map<String, Value>) -> Self {
        let path = path.into();
        Self { path, object }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The value of a key; none if it is absent or null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.object.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn text(&self, key: &'static str) -> Result<Option<&str>> {
        match self.get(key) {
            Some(Value::String(text)) => Ok(Some(text)),
            Some(value) => Err(self.refuse(key, "a text", value)),
            None => Ok(None),
        }
    }

    /// The length of a dimension, at least 1.
    pub(crate) fn size(&self, key: &'static str, default: u64) -> Result<u64> {
        Ok(self.size_if_set(key)?.unwrap_or(default))
    }

    /// As [`size`](Self::size), without a default.
    pub(crate) fn size_if_set(&self, key: &'static str) -> Result<Option<u64>> {
        let read = |value| {
            whole(value, 1..=MAX_DIMENSION)
                .ok_or_else(|| self.refuse(key, "a whole number from 1 to 2147483648", value))
        };
        self.get(key).map(read).transpose()
    }

    /// A number of things of which there may be none.
    pub(crate) fn count(&self, key: &'static str, default: u64) -> Result<u64> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        whole(value, 0..=MAX_DIMENSION)
            .ok_or_else(|| self.refuse(key, "a whole number up to 2147483648", value))
    }

    /// The first of two spellings that is set; the first is the family's own.
    pub(crate) fn size_by(&self, keys: [&'static str; 2], default: u64) -> Result<u64> {
        let [own, general] = keys;
        match self.size_if_set(own)? {
            Some(size) => Ok(size),
            None => self.size(general, default),
        }
    }

    /// How many layers there are of a kind.
    pub(crate) fn layers(&self, key: &'static str, default: u64) -> Result<u64> {
        Ok(self.layers_if_set(key)?.unwrap_or(default))
    }

    /// As [`layers`](Self::layers), without a default.
    pub(crate) fn layers_if_set(&self, key: &'static str) -> Result<Option<u64>> {
        let read = |value| {
            whole(value, 0..=MAX_LAYERS)
                .ok_or_else(|| self.refuse(key, "a whole number up to 4096", value))
        };
        self.get(key).map(read).transpose()
    }

    /// As [`layers`](Self::layers), by the first of two spellings that is set.
    pub(crate) fn layers_by(&self, keys: [&'static str; 2], default: u64) -> Result<u64> {
        let [own, general] = keys;
        match self.layers_if_set(own)? {
            Some(layers) => Ok(layers),
            None => self.layers(general, default),
        }
    }

    pub(crate) fn flag(&self, key: &'static str, default: bool) -> Result<bool> {
        match self.get(key) {
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(self.refuse(key, "`true` or `false`", value)),
            None => Ok(default),
        }
    }

    /// A number between 0 and 1, in the object `inside` of the configuration or in itself.
    pub(crate) fn share(
        &self,
        inside: &str,
        key: &'static str,
        old_key: &'static str,
    ) -> Result<Option<f64>> {
        let nested = self.get(inside).and_then(|object| object.get(key));
        let own = || [key, old_key].into_iter().find_map(|key| self.get(key));
        let Some(value) = nested.filter(|v| !v.is_null()).or_else(own) else {
            return Ok(None);
        };
        let share = value.as_f64().filter(|share| (0.0..=1.0).contains(share));
        let refused = || self.refuse(key, "a number from 0 to 1", value);
        share.map(Some).ok_or_else(refused)
    }

    /// A list of dimensions.
    pub(crate) fn sizes(&self, key: &'static str, default: &[u64], most: u64) -> Result<Vec<u64>> {
        let expected = "a list of one to 64 whole numbers of a sensible size";
        let Some(value) = self.get(key) else {
            return Ok(default.to_vec());
        };
        let items = value.as_array();
        let items = items.filter(|items| (1..=MAX_LIST).contains(&items.len()));
        let numbers = items.and_then(|items| items.iter().map(|i| whole(i, 1..=most)).collect());
        numbers.ok_or_else(|| self.refuse(key, expected, value))
    }

    /// A height and a width, given as one number or as a list of two.
    pub(crate) fn height_and_width(&self, key: &'static str, default: u64) -> Result<[u64; 2]> {
        if !matches!(self.get(key), Some(Value::Array(_))) {
            return self.size(key, default).map(|size| [size, size]);
        }
        match *self.sizes(key, &[], MAX_DIMENSION)?.as_slice() {
            [size] => Ok([size, size]),
            [height, width] => Ok([height, width]),
            _ => {
                let value = self.get(key).cloned().unwrap_or_default();
                Err(self.refuse(key, "one or two numbers", &value))
            }
        }
    }

    /// How many classes a classifier tells apart: the names in `id2label`, or `num_labels`, or 2.
    pub(crate) fn labels(&self) -> Result<u64> {
        match self.get("id2label") {
            Some(Value::Object(names)) => Ok(names.len() as u64),
            Some(value) => Err(self.refuse("id2label", "an object", value)),
            None => self.size("num_labels", 2),
        }
    }

    /// The keys of `auto_map`, which names classes in Python files that lie beside the model.
    pub(crate) fn auto_map(&self) -> Vec<&str> {
        let map = self.get("auto_map").and_then(Value::as_object);
        map.map(|map| map.keys().map(String::as_str).collect())
            .unwrap_or_default()
    }

    /// The first class that `architectures` names.
    pub(crate) fn architecture(&self) -> Option<&str> {
        self.get("architectures")?.as_array()?.first()?.as_str()
    }

    /// The error for a value that is not what it should be.
    pub(crate) fn refuse(
        &self,
        key: &'static str,
        expected: &'static str,
        found: &Value,
    ) -> EstimateError {
        let mut found = found.to_string();
        if let Some((cut, _)) = found.char_indices().nth(60) {
            found.truncate(cut);
            found += "...";
        }
        EstimateError::ConfigValue {
            path: self.path.clone(),
            key,
            expected,
            found,
        }
    }
}

/// A whole number in a range; `768.0` is one too.
fn whole(value: &Value, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    let float = || {
        let float = value.as_f64()?;
        (float.fract() == 0.0 && (0.0..1e15).contains(&float)).then_some(float as u64)
    };
    let number = value.as_u64().or_else(float)?;
    range.contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> Config {
        Config::from_object("config.json", serde_json::from_str(json).unwrap())
    }

    #[test]
    fn null_counts_as_absent() {
        let config = config(r#"{"n_inner": null, "n_embd": 5, "hidden_size": 7}"#);
        assert_eq!(config.size("n_inner", 3).unwrap(), 3);
        assert_eq!(config.size_by(["n_embd", "hidden_size"], 1).unwrap(), 5);
        assert_eq!(config.size_by(["dim", "hidden_size"], 1).unwrap(), 7);
        assert!(!config.has("n_inner"));
    }

    #[test]
    fn a_wrong_value_names_its_key() {
        for (json, expected) in [
            (r#"{"a": "768"}"#, "`\"768\"`"),
            (r#"{"a": 0}"#, "`0`"),
            (r#"{"a": -1}"#, "`-1`"),
            (r#"{"a": 1.5}"#, "`1.5`"),
            (r#"{"a": 99999999999}"#, "`99999999999`"),
        ] {
            let error = config(json).size("a", 1).unwrap_err().to_string();
            assert!(error.contains("`a`") && error.contains(expected), "{error}");
            assert!(error.contains("config.json"), "{error}");
        }
        assert!(config(r#"{"a": 5000}"#).layers("a", 1).is_err());
        assert!(config(r#"{"a": 1}"#).flag("a", false).is_err());
        assert!(config(r#"{"a": []}"#).sizes("a", &[], 9).is_err());
    }

    #[test]
    fn whole_floats_are_numbers() {
        assert_eq!(config(r#"{"a": 768.0}"#).size("a", 1).unwrap(), 768);
    }

    #[test]
    fn labels_are_counted() {
        let labels = |json| config(json).labels().unwrap();
        assert_eq!(labels("{}"), 2);
        assert_eq!(labels(r#"{"num_labels": 5}"#), 5);
        assert_eq!(labels(r#"{"id2label": {"0": "a", "1": "b", "2": "c"}}"#), 3);
    }

    #[test]
    fn shares_are_found_under_new_and_old_names() {
        let share = |json| {
            let config = config(json);
            config.share("rope_parameters", "partial_rotary_factor", "rotary_pct")
        };
        assert_eq!(share(r#"{"rotary_pct": 0.25}"#).unwrap(), Some(0.25));
        let new = r#"{"rope_parameters": {"partial_rotary_factor": 0.5}}"#;
        assert_eq!(share(new).unwrap(), Some(0.5));
        assert_eq!(share("{}").unwrap(), None);
        assert!(share(r#"{"rotary_pct": 2}"#).is_err());
    }
}
