//! Public checkpoints of BERT: which names mean which parameters.

use std::path::Path;

use accelerate::checkpoint::{LoadOptions, LoadReport, Weights, load_weights};
use accelerate::nn::{Factory, Init, Module};

use super::BertConfig;

/// Heads that a checkpoint from pre-training has and the models here have not.
const PRE_TRAINING_HEADS: &str = "cls.";
/// A table of numbers 0, 1, 2, .. that older checkpoints carry.
const POSITION_IDS: &str = "embeddings.position_ids";

/// Where in a model the bare BERT is, and what a checkpoint may lack.
pub(super) struct Names {
    prefix: String,
    optional: Option<&'static str>,
}

impl Names {
    /// The model is the bare BERT.
    pub(super) fn bare() -> Self {
        Self {
            prefix: String::new(),
            optional: None,
        }
    }

    /// The bare BERT is the member `name` of the model.
    pub(super) fn inside(name: &str) -> Self {
        Self {
            prefix: format!("{name}."),
            optional: None,
        }
    }

    /// A checkpoint may lack everything below `member`.
    pub(super) fn with_optional(self, member: &'static str) -> Self {
        Self {
            optional: Some(member),
            ..self
        }
    }

    /// The model's name for a name in a checkpoint; none for what the model does not need.
    fn rename(&self, name: &str, has_prefix: bool) -> Option<String> {
        if name.ends_with(POSITION_IDS) || name.starts_with(PRE_TRAINING_HEADS) {
            return None;
        }
        let name = current_name(name);
        if !has_prefix {
            // A bare checkpoint.
            return Some(format!("{}{name}", self.prefix));
        }
        match name.strip_prefix("bert.") {
            Some(bare) => Some(format!("{}{bare}", self.prefix)),
            None => Some(name),
        }
    }
}

/// The first checkpoints call the two parameters of a layer norm `gamma` and `beta`.
fn current_name(name: &str) -> String {
    let renamed =
        |old: &str, new: &str| name.strip_suffix(old).map(|start| format!("{start}{new}"));
    renamed("LayerNorm.gamma", "LayerNorm.weight")
        .or_else(|| renamed("LayerNorm.beta", "LayerNorm.bias"))
        .unwrap_or_else(|| name.to_owned())
}

/// Copies the weights of a folder into a model, and warns of parameters that are new.
pub(super) fn load(
    model: &dyn Module,
    folder: &Path,
    names: &Names,
) -> accelerate::Result<LoadReport> {
    let weights = Weights::open(folder)?;
    let has_prefix = weights.names().any(|name| name.starts_with("bert."));
    let rename = |name: &str| names.rename(name, has_prefix);
    let mut options = LoadOptions::strict().with_rename(&rename);
    if let Some(member) = names.optional {
        options = options.with_optional(member);
    }
    let report = load_weights(model, &weights, &options)?;
    if !report.newly_initialized.is_empty() {
        tracing::warn!(
            path = %folder.display(),
            parameters = ?report.newly_initialized,
            "the checkpoint has no weights for the head: these parameters are new and need training"
        );
    }
    if !report.ignored.is_empty() {
        tracing::debug!(path = %folder.display(), tensors = ?report.ignored, "tensors this model does not have");
    }
    Ok(report)
}

/// Builds with the configuration's own first values, drawing random numbers as the original does:
/// every layer first draws its default values, then the model draws again.
pub(super) fn fresh<M>(
    config: &BertConfig,
    factory: &Factory,
    build: impl Fn(&Factory) -> accelerate::Result<M>,
) -> accelerate::Result<M> {
    if factory.init() != Init::Layer {
        return build(factory);
    }
    drop(build(factory)?);
    build(&factory.with_init(Init::Normal {
        std: config.initializer_range,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_kind_of_checkpoint_are_found() {
        let names = Names::inside("bert");
        let renamed = |name: &str, has_prefix| names.rename(name, has_prefix).unwrap_or_default();
        assert_eq!(
            renamed("pooler.dense.bias", false),
            "bert.pooler.dense.bias"
        );
        assert_eq!(
            renamed("bert.pooler.dense.bias", true),
            "bert.pooler.dense.bias"
        );
        assert_eq!(renamed("classifier.bias", true), "classifier.bias");
        assert_eq!(
            renamed("embeddings.LayerNorm.gamma", false),
            "bert.embeddings.LayerNorm.weight"
        );
        assert_eq!(
            renamed("bert.embeddings.LayerNorm.beta", true),
            "bert.embeddings.LayerNorm.bias"
        );
        assert_eq!(names.rename("embeddings.position_ids", false), None);
        assert_eq!(names.rename("cls.predictions.bias", true), None);
        assert_eq!(
            Names::bare()
                .rename("bert.pooler.dense.bias", true)
                .unwrap(),
            "pooler.dense.bias"
        );
    }
}
