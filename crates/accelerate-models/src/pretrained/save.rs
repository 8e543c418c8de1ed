//! From a model into a folder.

use std::io::Write as _;
use std::path::Path;

use accelerate::checkpoint::{AtomicFile, Metadata, dtype_of, save_weights};
use accelerate::nn::Module;
use serde_json::{Map, Value};
use tch::Kind;

use super::CONFIG_FILE;
use crate::generation::{GENERATION_CONFIG_FILE, GenerationConfig};
use crate::{Error, Result};

/// The name of the file of weights that are written.
pub const WEIGHTS_FILE: &str = "model.safetensors";

pub(super) fn folder(model: &dyn Module, config: Map<String, Value>, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|source| Error::SaveFolder {
        path: folder.to_owned(),
        source,
    })?;
    save_weights(model, folder.join(WEIGHTS_FILE), &Metadata::pytorch())?;
    write_config(model, config, &folder.join(CONFIG_FILE))
}

/// Writes what a configuration says about generation, unless the folder says it already.
pub(super) fn generation_settings(config: &Map<String, Value>, folder: &Path) -> Result<()> {
    if folder.join(GENERATION_CONFIG_FILE).exists() {
        return Ok(());
    }
    match GenerationConfig::from_model_config(config) {
        Ok(generation) => generation.save_pretrained(folder),
        // Whoever generates from the folder is told again, as `config.json` holds it too.
        Err(error) => {
            tracing::warn!(
                folder = %folder.display(),
                %error,
                "the configuration's settings for generation are not written to a file of their own"
            );
            Ok(())
        }
    }
}

fn write_config(model: &dyn Module, mut config: Map<String, Value>, path: &Path) -> Result<()> {
    if let Some(dtype) = kind_of(model).and_then(python_name) {
        config.insert("dtype".to_owned(), dtype.into());
        // What older versions of the original call it.
        config.remove("torch_dtype");
    }
    let mut text = format!("{:#}", Value::Object(config));
    text.push('\n');
    let failed = |error| Error::Accelerate(accelerate::Error::Formats(error));
    let mut file = AtomicFile::create(path).map_err(failed)?;
    file.write_all(text.as_bytes())
        .map_err(|source| Error::SaveFolder {
            path: path.to_owned(),
            source,
        })?;
    file.commit().map_err(failed)
}

/// The type of the first floating-point parameter.
fn kind_of(model: &dyn Module) -> Option<Kind> {
    model
        .parameters()
        .into_iter()
        .map(|parameter| parameter.tensor().kind())
        .find(|kind| {
            matches!(
                kind,
                Kind::Float | Kind::Double | Kind::Half | Kind::BFloat16
            )
        })
        .filter(|&kind| dtype_of(kind).is_some())
}

/// What Python calls the type.
fn python_name(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Float => Some("float32"),
        Kind::Double => Some("float64"),
        Kind::Half => Some("float16"),
        Kind::BFloat16 => Some("bfloat16"),
        _ => None,
    }
}
