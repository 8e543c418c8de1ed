//! The file that says what a model is.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ModelType;
use crate::{Error, Result};

/// The name of the configuration's file in a model folder.
pub const CONFIG_FILE: &str = "config.json";

/// `config.json` as it lies in a folder, before anyone knows which model it describes.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    path: PathBuf,
    text: Vec<u8>,
    kind: Kind,
}

/// The keys that say which model it is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Kind {
    model_type: Option<String>,
    architectures: Option<Vec<String>>,
}

impl ConfigFile {
    /// Reads [`CONFIG_FILE`] in a model folder.
    ///
    /// # Errors
    /// [`Error::Read`] if the file is absent, [`Error::ConfigFormat`] if it is no JSON object.
    pub fn read(folder: impl AsRef<Path>) -> Result<Self> {
        let path = folder.as_ref().join(CONFIG_FILE);
        match std::fs::read(&path) {
            Ok(text) => Self::parse(path, text),
            Err(source) => Err(Error::Read {
                path,
                needed: "`config.json`, weights such as `model.safetensors`, and `tokenizer.json` \
                         where it reads text",
                source,
            }),
        }
    }

    fn parse(path: PathBuf, text: Vec<u8>) -> Result<Self> {
        let kind = parse_config(&path, &text)?;
        Ok(Self { path, text, kind })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file calls its kind of model, such as `bert`.
    pub fn model_type(&self) -> Option<&str> {
        self.kind.model_type.as_deref()
    }

    /// The class names of the models that were saved with this file, most often one.
    pub fn architectures(&self) -> &[String] {
        self.kind.architectures.as_deref().unwrap_or_default()
    }

    /// The kind of model: what `model_type` says, else what the architectures belong to.
    ///
    /// # Errors
    /// [`Error::UnknownModelType`] if it is none of the known ones or the file does not say.
    pub fn kind(&self) -> Result<ModelType> {
        match self.model_type() {
            Some(name) => ModelType::from_name(name),
            None => self
                .architectures()
                .iter()
                .find_map(|class| ModelType::of_architecture(class)),
        }
        .ok_or_else(|| self.unknown())
    }

    /// The file as a configuration of one kind.
    ///
    /// # Errors
    /// [`Error::ConfigFormat`] naming the key whose value is of another type.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T> {
        parse_config(&self.path, &self.text)
    }

    fn unknown(&self) -> Error {
        let found = match (self.model_type(), self.architectures()) {
            (Some(name), _) => format!("`model_type` `{name}`"),
            (None, []) => "neither `model_type` nor `architectures`".to_owned(),
            (None, classes) => format!("`architectures` `{}`", classes.join("`, `")),
        };
        let name = self
            .model_type()
            .or(self.architectures().first().map(String::as_str));
        Error::UnknownModelType {
            path: self.path.clone(),
            found,
            known: ModelType::nearest_first(name.unwrap_or_default()),
        }
    }
}

/// The JSON of a configuration file.
///
/// # Errors
/// [`Error::ConfigFormat`] naming the key whose value is not as expected.
pub(crate) fn parse_config<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let parsed = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let key = error.path().to_string();
        Error::ConfigFormat {
            path: path.to_owned(),
            key,
            source: error.into_inner(),
        }
    })?;
    json.end().map_err(|source| Error::ConfigFormat {
        path: path.to_owned(),
        key: ".".to_owned(),
        source,
    })?;
    Ok(parsed)
}
