//! How tokens are chosen, and when to stop.

mod checks;
mod early_stopping;
mod file;
mod foreign;
mod nulls;

use serde::{Deserialize, Serialize};

pub use self::early_stopping::EarlyStopping;
pub use self::file::GENERATION_CONFIG_FILE;

use self::checks::refused;
use self::foreign::ForeignKeys;
use self::nulls::{or_default, or_fifty, or_one, or_one_beam};
use super::one_or_many;
use crate::Result;

/// How tokens are chosen, and when to stop, under the names of `generation_config.json`.
///
/// Absent keys have the defaults of the original; unknown keys are ignored, keys that would
/// change the tokens in a way that is not built here are refused.
///
/// # Source
/// `GenerationConfig` of `transformers`. Differs: the defaults are in the fields, not filled in
/// later, and `max_length` counts the tokens of the prompt always.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GenerationConfig {
    /// How many tokens at most are added to the prompt; beats `max_length`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_new_tokens: Option<i64>,
    /// The longest sequence with the prompt; 20 more than the prompt where both are absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length: Option<i64>,
    /// No end token before so many new tokens; beats `min_length`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_new_tokens: Option<i64>,
    /// No end token before the sequence has so many tokens with the prompt.
    #[serde(deserialize_with = "or_default")]
    pub min_length: i64,
    /// Stops after so many seconds, at the end of the running step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time: Option<f64>,
    /// Draws tokens; else the likeliest is taken.
    #[serde(deserialize_with = "or_default")]
    pub do_sample: bool,
    /// What logits are divided with before drawing: lower is bolder.
    #[serde(deserialize_with = "or_one")]
    pub temperature: f64,
    /// Draws only from so many likeliest tokens; from all where 0.
    #[serde(deserialize_with = "or_fifty")]
    pub top_k: i64,
    /// Draws only from the likeliest tokens that together have this probability.
    #[serde(deserialize_with = "or_one")]
    pub top_p: f64,
    /// Draws only from tokens at least this fraction as likely as the likeliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f64>,
    /// Draws only from the likeliest tokens whose entropy together is at most this part of that of
    /// the likeliest hundred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_h: Option<f64>,
    /// Draws only from the tokens that surprise as much as is to be expected and together have this
    /// probability; 1 changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub typical_p: Option<f64>,
    /// Draws only from tokens of at least this probability; 0 changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon_cutoff: Option<f64>,
    /// As `epsilon_cutoff`, with a lower limit where the next token is uncertain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta_cutoff: Option<f64>,
    /// How many sequences beam search follows at once; 1 is no beam search.
    #[serde(deserialize_with = "or_one_beam")]
    pub num_beams: i64,
    /// How many sequences are given for each prompt.
    #[serde(deserialize_with = "or_one_beam")]
    pub num_return_sequences: i64,
    /// A beam's score is divided by its length to this power: larger favours longer ones.
    #[serde(deserialize_with = "or_one")]
    pub length_penalty: f64,
    /// When beam search ends.
    #[serde(deserialize_with = "or_default")]
    pub early_stopping: EarlyStopping,
    /// Makes tokens that are there already less likely; 1 changes nothing.
    #[serde(deserialize_with = "or_one")]
    pub repetition_penalty: f64,
    /// No run of so many tokens twice; no limit where 0.
    #[serde(deserialize_with = "or_default")]
    pub no_repeat_ngram_size: i64,
    /// Makes tokens of the prompt likelier; 1 changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_repetition_penalty: Option<f64>,
    /// No run of so many tokens that the prompt has; no limit where 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_no_repeat_ngram_size: Option<i64>,
    /// Runs of tokens that never come.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub bad_words_ids: Vec<Vec<i64>>,
    /// Runs of tokens, each with what is added to the score of its last token where the others
    /// stand before it.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub sequence_bias: Vec<(Vec<i64>, f64)>,
    /// Tokens that never come.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub suppress_tokens: Vec<i64>,
    /// Tokens that do not come first.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub begin_suppress_tokens: Vec<i64>,
    /// The token that has to follow a single one, such as the language of a translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_bos_token_id: Option<i64>,
    /// The tokens one of which has to end the longest sequences.
    #[serde(with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub forced_eos_token_id: Vec<i64>,
    /// After so many new tokens, each further one makes the end tokens likelier by this factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exponential_decay_length_penalty: Option<(i64, f64)>,
    /// Puts numbers in the place of scores that are none.
    #[serde(deserialize_with = "or_default")]
    pub remove_invalid_values: bool,
    /// Makes log probabilities of the scores once all else is done, as beam search assumes.
    #[serde(deserialize_with = "or_default")]
    pub renormalize_logits: bool,
    /// The tokens that end a sequence.
    #[serde(with = "one_or_many")]
    pub eos_token_id: Vec<i64>,
    /// What fills sequences that ended before others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pad_token_id: Option<i64>,
    /// What begins a text without a prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bos_token_id: Option<i64>,
    /// What the decoder of an encoder-decoder model begins with; `bos_token_id` where absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoder_start_token_id: Option<i64>,
    #[serde(flatten, skip_serializing)]
    foreign: ForeignKeys,
}

impl Default for GenerationConfig {
    fn default() -> Self {
        Self {
            max_new_tokens: None,
            max_length: None,
            min_new_tokens: None,
            min_length: 0,
            max_time: None,
            do_sample: false,
            temperature: 1.0,
            top_k: 50,
            top_p: 1.0,
            min_p: None,
            top_h: None,
            typical_p: None,
            epsilon_cutoff: None,
            eta_cutoff: None,
            num_beams: 1,
            num_return_sequences: 1,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::default(),
            repetition_penalty: 1.0,
            no_repeat_ngram_size: 0,
            encoder_repetition_penalty: None,
            encoder_no_repeat_ngram_size: None,
            bad_words_ids: Vec::new(),
            sequence_bias: Vec::new(),
            suppress_tokens: Vec::new(),
            begin_suppress_tokens: Vec::new(),
            forced_bos_token_id: None,
            forced_eos_token_id: Vec::new(),
            exponential_decay_length_penalty: None,
            remove_invalid_values: false,
            renormalize_logits: false,
            eos_token_id: Vec::new(),
            pad_token_id: None,
            bos_token_id: None,
            decoder_start_token_id: None,
            foreign: ForeignKeys::default(),
        }
    }
}

/// How many tokens are added to a prompt where nobody says.
const DEFAULT_NEW_TOKENS: i64 = 20;

impl GenerationConfig {
    /// The token that fills finished sequences: the padding token, else the first end token.
    pub fn filler(&self) -> Option<i64> {
        self.pad_token_id
            .or_else(|| self.eos_token_id.first().copied())
    }

    /// The longest sequence for a prompt of `prompt` tokens, in a model of at most `limit`.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if that leaves no room for a new token, or is longer
    /// than the model can read.
    pub fn longest(&self, prompt: i64, limit: Option<i64>) -> Result<i64> {
        let (key, longest) = match (self.max_new_tokens, self.max_length) {
            (Some(new), _) => ("max_new_tokens", prompt.saturating_add(new)),
            (None, Some(length)) => ("max_length", length),
            (None, None) => {
                let longest = prompt + DEFAULT_NEW_TOKENS;
                let longest = limit.map_or(longest, |limit| longest.min(limit));
                ("max_length", longest)
            }
        };
        if longest <= prompt {
            let expected = format!("more tokens than the {prompt} of the prompt");
            return Err(refused(key, expected, &longest));
        }
        match limit {
            Some(limit) if longest > limit => Err(refused(
                key,
                format!(
                    "at most {limit} tokens with the {prompt} of the prompt, the longest sequence of the model"
                ),
                &longest,
            )),
            _ => Ok(longest),
        }
    }

    /// What the decoder of an encoder-decoder model begins with.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) if the configuration does not say.
    pub(in crate::generation) fn decoder_begin(&self) -> Result<i64> {
        self.decoder_start_token_id
            .or(self.bos_token_id)
            .ok_or_else(|| refused("decoder_start_token_id", "a token", &"nothing"))
    }

    /// How many tokens a sequence has at least before it may end, with a prompt of `prompt`.
    pub(in crate::generation) fn shortest(&self, prompt: i64) -> i64 {
        match self.min_new_tokens {
            Some(new) => prompt.saturating_add(new),
            None => self.min_length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Result<GenerationConfig, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn files_of_the_hub_are_read() {
        let config = parsed(
            r#"{"_from_model_config": true, "bos_token_id": 128000, "do_sample": true,
                "eos_token_id": [128001, 128009], "temperature": 0.6, "top_p": 0.9, "top_k": null,
                "early_stopping": "never", "transformers_version": "4.42.3"}"#,
        )
        .unwrap();
        assert_eq!(config.eos_token_id, [128001, 128009]);
        assert_eq!(config.filler(), Some(128001));
        assert_eq!((config.temperature, config.top_k), (0.6, 50));
        assert_eq!(config.early_stopping, EarlyStopping::Never);
        assert!(config.check().is_ok());
        let single = parsed(r#"{"eos_token_id": 50256, "pad_token_id": 0}"#).unwrap();
        assert_eq!(
            (single.eos_token_id.as_slice(), single.pad_token_id),
            ([50256].as_slice(), Some(0))
        );
    }

    #[test]
    fn what_is_written_is_read() {
        for json in [
            r#"{"eos_token_id": [1, 2], "early_stopping": "never", "top_k": 0, "max_length": 9}"#,
            r#"{"eos_token_id": 1, "do_sample": true, "temperature": 0.5}"#,
            r#"{"forced_eos_token_id": [1, 2], "forced_bos_token_id": 3, "bad_words_ids": [[4], [5, 6]],
                "sequence_bias": [[[7, 8], -1.5]], "exponential_decay_length_penalty": [5, 1.25],
                "suppress_tokens": [9], "typical_p": 0.5, "renormalize_logits": true}"#,
            "{}",
        ] {
            let config = parsed(json).unwrap();
            let written = serde_json::to_string(&config).unwrap();
            assert_eq!(parsed(&written).unwrap(), config, "{written}");
        }
    }

    #[test]
    fn null_is_what_nobody_set() {
        let json = r#"{"bad_words_ids": null, "suppress_tokens": null, "forced_eos_token_id": null,
            "forced_bos_token_id": null, "exponential_decay_length_penalty": null, "top_h": null,
            "remove_invalid_values": null, "sequence_bias": null, "stop_strings": null}"#;
        let config = parsed(json).unwrap();
        assert_eq!(config, GenerationConfig::default());
        assert!(config.check().is_ok());
    }

    #[test]
    fn lengths_follow_the_prompt_and_the_model() {
        let mut config = GenerationConfig::default();
        assert_eq!(config.longest(5, None).unwrap(), 25);
        assert_eq!(config.longest(5, Some(12)).unwrap(), 12);
        config.max_length = Some(9);
        assert_eq!(config.longest(5, Some(12)).unwrap(), 9);
        assert!(config.longest(9, None).is_err());
        config.max_new_tokens = Some(8);
        let message = config.longest(5, Some(12)).unwrap_err().to_string();
        assert!(
            message.contains("`max_new_tokens`") && message.contains("found 13"),
            "{message}"
        );
    }
}
