//! What a configuration is.

use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{ConfigFile, ModelType};
use crate::{Error, Result};

/// The sizes and settings of a model, as its `config.json` says.
///
/// With `serde`'s `default` on the type, absent keys have the original's values. Keys without a
/// field are to be kept in [`OtherKeys`](super::OtherKeys), so that a configuration that is read
/// and written says what it said before.
///
/// # Source
/// `PreTrainedConfig` of `transformers`.
pub trait PretrainedConfig: Clone + fmt::Debug + Serialize + DeserializeOwned {
    /// The kind of model that this configures.
    const MODEL_TYPE: ModelType;

    /// Whether a model can be built.
    ///
    /// # Errors
    /// [`Error::Config`] for the first key that contradicts another or asks for what the model
    /// does not have; [`ConfigChecks`](super::ConfigChecks) makes it.
    fn check(&self) -> Result<()>;

    /// The standard deviation of new weights, where one value says it.
    fn initializer_range(&self) -> f64;

    /// How wide the hidden states are: one width, or that of each stage. A DeepSpeed config whose
    /// bucket sizes are `auto` takes them from the largest.
    fn hidden_sizes(&self) -> Vec<i64>;

    /// What is to be settled after reading, such as keys that imply others.
    fn settle(&mut self) {}

    /// Adds keys that follow from others and that the original writes, such as `label2id`.
    fn write_derived(&self, _config: &mut Map<String, Value>) {}

    /// Reads `config.json` in a model folder and checks it.
    ///
    /// # Errors
    /// [`Error::Read`] if the file is absent, [`Error::ConfigFormat`] if it is no such
    /// configuration, [`Error::OtherModelType`] or [`Error::UnknownModelType`] if it describes
    /// another kind of model, [`Error::Config`] as for [`check`](Self::check).
    fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        Self::from_file(&ConfigFile::read(folder)?)
    }

    /// As [`from_folder`](Self::from_folder), from a file that was read already.
    ///
    /// # Errors
    /// As for [`from_folder`](Self::from_folder).
    fn from_file(file: &ConfigFile) -> Result<Self> {
        // A file that says nothing is taken at its word: the oldest ones have no `model_type`.
        if file.model_type().is_some() || !file.architectures().is_empty() {
            let found = file.kind()?;
            if found != Self::MODEL_TYPE {
                return Err(Error::OtherModelType {
                    path: file.path().to_owned(),
                    expected: Self::MODEL_TYPE,
                    found,
                });
            }
        }
        let mut config: Self = file.typed()?;
        config.settle();
        config.check()?;
        Ok(config)
    }

    /// The content of `config.json` for a model of the class `architecture`.
    ///
    /// # Errors
    /// [`Error::WriteConfig`] if a value cannot be written as JSON.
    fn to_json(&self, architecture: &str) -> Result<Map<String, Value>> {
        let written = serde_json::to_value(self).map_err(|source| Error::WriteConfig {
            class: architecture.to_owned(),
            source,
        })?;
        let mut config = match written {
            Value::Object(config) => config,
            // A configuration is a struct.
            _ => Map::new(),
        };
        self.write_derived(&mut config);
        config.insert("architectures".to_owned(), vec![architecture].into());
        config.insert("model_type".to_owned(), Self::MODEL_TYPE.as_str().into());
        Ok(config)
    }
}
