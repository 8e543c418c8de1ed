//! The file that says how a model writes, beside the model.

use std::io::Write as _;
use std::path::Path;

use accelerate::checkpoint::AtomicFile;
use serde_json::{Map, Value};

use super::GenerationConfig;
use crate::pretrained::{CONFIG_FILE, parse_config};
use crate::{Error, Result};

/// The name of the file in a model folder that holds a [`GenerationConfig`].
pub const GENERATION_CONFIG_FILE: &str = "generation_config.json";

impl GenerationConfig {
    /// Reads [`GENERATION_CONFIG_FILE`] of a model folder; where there is none, the token ids of
    /// its `config.json`.
    ///
    /// # Errors
    /// [`Error::Read`] if neither file can be read, [`Error::ConfigFormat`] if it is no such
    /// configuration, [`Error::Config`] as for [`check`](Self::check).
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let own = folder.join(GENERATION_CONFIG_FILE);
        let path = if own.exists() {
            own
        } else {
            folder.join(CONFIG_FILE)
        };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(source) => {
                let needed = "`generation_config.json` or `config.json`";
                return Err(Error::Read {
                    path,
                    needed,
                    source,
                });
            }
        };
        let config: Self = parse_config(&path, &text)?;
        config.check()?;
        Ok(config)
    }

    /// What the `config.json` of a model says about writing: its special tokens, and in old files
    /// more.
    ///
    /// # Errors
    /// [`Error::ConfigFormat`] if a value is of another type, [`Error::Config`] as for
    /// [`check`](Self::check).
    ///
    /// # Source
    /// `GenerationConfig.from_model_config` of `transformers`.
    pub fn from_model_config(config: &Map<String, Value>) -> Result<Self> {
        let text = Value::Object(config.clone()).to_string();
        let config: Self = parse_config(Path::new(CONFIG_FILE), text.as_bytes())?;
        config.check()?;
        Ok(config)
    }

    /// Writes [`GENERATION_CONFIG_FILE`] into a folder, which is made if it is absent, with the
    /// keys that differ from the defaults.
    ///
    /// `transformers` reads the file. It is whole or absent.
    ///
    /// # Errors
    /// [`Error::Config`] as for [`check`](Self::check), before anything is written;
    /// [`Error::SaveFolder`] or [`accelerate::Error::Formats`] if it cannot be written.
    ///
    /// # Source
    /// `GenerationConfig.save_pretrained` of `transformers`. Differs: settings for drawing are
    /// written without `do_sample` too, which it refuses.
    pub fn save_pretrained(&self, folder: impl AsRef<Path>) -> Result<()> {
        self.check()?;
        let (folder, mut keys) = (folder.as_ref(), self.keys()?);
        let usual = Self::default().keys()?;
        keys.retain(|key, value| usual.get(key) != Some(&*value));
        std::fs::create_dir_all(folder).map_err(|source| Error::SaveFolder {
            path: folder.to_owned(),
            source,
        })?;
        let path = folder.join(GENERATION_CONFIG_FILE);
        let failed = |error| Error::Accelerate(accelerate::Error::Formats(error));
        let mut file = AtomicFile::create(&path).map_err(failed)?;
        writeln!(file, "{:#}", Value::Object(keys))
            .map_err(|source| Error::SaveFolder { path, source })?;
        file.commit().map_err(failed)
    }

    fn keys(&self) -> Result<Map<String, Value>> {
        match serde_json::to_value(self) {
            Ok(Value::Object(keys)) => Ok(keys),
            // A configuration is a struct.
            Ok(_) => Ok(Map::new()),
            Err(source) => Err(Error::WriteConfig {
                class: "GenerationConfig".to_owned(),
                source,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gives_back_what_was_written() -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("new");
        let mut config = GenerationConfig {
            eos_token_id: vec![3, 5],
            repetition_penalty: 1.25,
            bad_words_ids: vec![vec![7, 8]],
            ..GenerationConfig::default()
        };
        config.save_pretrained(&place)?;
        assert_eq!(GenerationConfig::from_folder(&place)?, config);
        let text = std::fs::read_to_string(place.join(GENERATION_CONFIG_FILE)).unwrap();
        let written: Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({
            "bad_words_ids": [[7, 8]], "eos_token_id": [3, 5], "repetition_penalty": 1.25,
        });
        assert_eq!(written, expected);
        // What cannot be is not written over what can.
        config.top_p = 2.0;
        assert!(config.save_pretrained(&place).is_err());
        config.top_p = 1.0;
        assert_eq!(GenerationConfig::from_folder(&place)?, config);
        Ok(())
    }

    #[test]
    fn a_model_says_with_which_tokens_it_ends() -> Result<()> {
        let json =
            r#"{"hidden_size": 8, "eos_token_id": 2, "pad_token_id": null, "bos_token_id": 1}"#;
        let keys: Map<String, Value> = serde_json::from_str(json).unwrap();
        let config = GenerationConfig::from_model_config(&keys)?;
        assert_eq!(config.eos_token_id, [2]);
        assert_eq!((config.bos_token_id, config.pad_token_id), (Some(1), None));
        Ok(())
    }
}
