//! What a model remembers of each token while it writes: keys and values of every layer.

use serde::Serialize;

use super::{
    config::Config,
    error::{EstimateError, Result},
};

/// What a cache of keys and values consists of.
///
/// Its bytes are 2 x layers x heads x length of a head x tokens x samples x bytes of a number; a
/// decoder with an encoder keeps those of the encoder's tokens as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct KvCache {
    pub(crate) layers: u64,
    /// Heads for keys and values, of which there may be fewer than for queries.
    pub(crate) key_value_heads: u64,
    pub(crate) head_dim: u64,
    /// Whether each layer also looks at the tokens of an encoder.
    pub(crate) cross_attention: bool,
}

/// Types of models that read all tokens at once and so keep nothing.
const ENCODERS: [&str; 7] = [
    "bert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "distilbert",
    "vit",
    "resnet",
];

impl KvCache {
    /// Reads what `config.json` says of the layers and heads of a model.
    ///
    /// # Errors
    /// [`EstimateError::NoCache`] for a model that keeps none,
    /// [`EstimateError::CacheUnknown`] if a key is missing, [`EstimateError::ConfigValue`].
    pub(crate) fn read(config: &Config) -> Result<Self> {
        let model_type = config.text("model_type")?.unwrap_or_default();
        if ENCODERS.contains(&model_type) && !config.flag("is_decoder", false)? {
            return Err(EstimateError::NoCache {
                path: config.path().to_owned(),
                model_type: model_type.to_owned(),
            });
        }
        let layers = [
            "num_decoder_layers",
            "decoder_layers",
            "n_layer",
            "num_hidden_layers",
            "num_layers",
        ];
        let layers = needed(config, &layers)?;
        let heads = [
            "decoder_attention_heads",
            "n_head",
            "num_attention_heads",
            "num_heads",
        ];
        let heads = needed(config, &heads)?;
        let head_dim = match first(config, &["head_dim", "d_kv"])? {
            Some(head_dim) => head_dim,
            None => needed(config, &["n_embd", "hidden_size", "d_model"])? / heads,
        };
        Ok(Self {
            layers,
            key_value_heads: config.size("num_key_value_heads", heads)?,
            head_dim,
            cross_attention: config.flag("is_encoder_decoder", is_encoder_decoder(model_type))?,
        })
    }

    /// The bytes for so many samples of so many tokens, with numbers of so many bytes.
    pub(crate) fn bytes(&self, batch_size: u64, sequence_length: u64, each: u64) -> u64 {
        let sides = if self.cross_attention { 4 } else { 2 };
        let factors = [
            self.layers,
            self.key_value_heads,
            self.head_dim,
            batch_size,
            sequence_length,
            each,
        ];
        factors.into_iter().fold(sides, u64::saturating_mul)
    }
}

fn is_encoder_decoder(model_type: &str) -> bool {
    matches!(model_type, "t5" | "mt5")
}

/// The first of several spellings that is set.
fn first(config: &Config, keys: &[&'static str]) -> Result<Option<u64>> {
    for key in keys {
        if let Some(size) = config.size_if_set(key)? {
            return Ok(Some(size));
        }
    }
    Ok(None)
}

fn needed(config: &Config, keys: &[&'static str]) -> Result<u64> {
    let missing = || EstimateError::CacheUnknown {
        path: config.path().to_owned(),
        keys: keys.to_vec(),
    };
    first(config, keys)?.ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(json: &str) -> Result<KvCache> {
        let object = serde_json::from_str(json).unwrap();
        KvCache::read(&Config::from_object("config.json", object))
    }

    #[test]
    fn fewer_heads_for_keys_and_values_make_it_smaller() {
        let llama = r#"{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8}"#;
        let llama = cache(llama).unwrap();
        // 128 KiB for each token, as is known of this model in 16 bits.
        assert_eq!(llama.bytes(1, 1, 2), 131_072);
        assert_eq!(llama.bytes(4, 8192, 2), 4 * 8192 * 131_072);
        let gpt2 = r#"{"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25}"#;
        assert_eq!(cache(gpt2).unwrap().bytes(1, 1, 4), 2 * 48 * 1600 * 4);
    }

    #[test]
    fn a_decoder_with_an_encoder_keeps_both() {
        let t5 = r#"{"model_type": "t5", "d_model": 512, "d_kv": 64, "num_heads": 8,
            "num_layers": 6, "num_decoder_layers": 4}"#;
        assert_eq!(cache(t5).unwrap().bytes(1, 1, 1), 4 * 4 * 8 * 64);
    }

    #[test]
    fn models_without_a_cache_and_unknown_layers_are_told() {
        let bert = cache(r#"{"model_type": "bert"}"#).unwrap_err();
        assert!(bert.to_string().contains("`bert`"), "{bert}");
        let unknown = cache(r#"{"model_type": "new", "num_hidden_layers": 2}"#).unwrap_err();
        assert!(
            unknown.to_string().contains("`num_attention_heads`"),
            "{unknown}"
        );
        let text = cache(r#"{"num_hidden_layers": "2"}"#).unwrap_err();
        assert!(matches!(text, EstimateError::ConfigValue { .. }));
    }
}
