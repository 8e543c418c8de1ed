//! How tokens are chosen, and when to stop.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::one_or_many;

use crate::pretrained::parse_config;
use crate::{Error, Result};

/// The name of the file in a model folder that holds a [`GenerationConfig`].
pub const GENERATION_CONFIG_FILE: &str = "generation_config.json";

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

/// Keys that change which tokens come out and are not built here.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct ForeignKeys {
    num_beam_groups: Option<serde_json::Value>,
    penalty_alpha: Option<serde_json::Value>,
    typical_p: Option<f64>,
    epsilon_cutoff: Option<f64>,
    eta_cutoff: Option<f64>,
    bad_words_ids: Option<serde_json::Value>,
    forced_bos_token_id: Option<serde_json::Value>,
    forced_eos_token_id: Option<serde_json::Value>,
    suppress_tokens: Option<serde_json::Value>,
    begin_suppress_tokens: Option<serde_json::Value>,
    encoder_repetition_penalty: Option<f64>,
    encoder_no_repeat_ngram_size: Option<i64>,
    exponential_decay_length_penalty: Option<serde_json::Value>,
}

/// When beam search ends, for each prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EarlyStopping {
    /// When no better sequence is likely, judged from the length so far: `false`.
    #[default]
    Heuristic,
    /// When there are as many complete sequences as beams: `true`.
    Complete,
    /// When no better sequence is possible: `"never"`.
    Never,
}

impl Serialize for EarlyStopping {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Heuristic => serializer.serialize_bool(false),
            Self::Complete => serializer.serialize_bool(true),
            Self::Never => serializer.serialize_str("never"),
        }
    }
}

impl<'de> Deserialize<'de> for EarlyStopping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Bool(false) => Ok(Self::Heuristic),
            serde_json::Value::Bool(true) => Ok(Self::Complete),
            serde_json::Value::String(text) if text == "never" => Ok(Self::Never),
            other => Err(serde::de::Error::custom(format!(
                "`early_stopping`: expected `true`, `false` or `\"never\"`, found `{other}`"
            ))),
        }
    }
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
            num_beams: 1,
            num_return_sequences: 1,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::default(),
            repetition_penalty: 1.0,
            no_repeat_ngram_size: 0,
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
            folder.join("config.json")
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

    /// Whether sequences can be made with it.
    ///
    /// # Errors
    /// [`Error::Config`] for the first key that is out of range, contradicts another, or asks for
    /// what is not built here.
    pub fn check(&self) -> Result<()> {
        self.foreign.check()?;
        for (key, value) in [
            ("max_new_tokens", self.max_new_tokens),
            ("max_length", self.max_length),
            ("num_beams", Some(self.num_beams)),
            ("num_return_sequences", Some(self.num_return_sequences)),
        ] {
            if let Some(value) = value.filter(|&value| value < 1) {
                return Err(refused(key, "at least 1", &value));
            }
        }
        for (key, value) in [
            ("min_new_tokens", self.min_new_tokens.unwrap_or(0)),
            ("min_length", self.min_length),
            ("top_k", self.top_k),
            ("no_repeat_ngram_size", self.no_repeat_ngram_size),
        ] {
            if value < 0 {
                return Err(refused(key, "0 or more", &value));
            }
        }
        self.check_numbers()?;
        self.check_sequences()
    }

    fn check_numbers(&self) -> Result<()> {
        for (key, value) in [
            ("temperature", self.temperature),
            ("repetition_penalty", self.repetition_penalty),
        ] {
            if !is_positive(value) {
                let expected = "above 0; for the likeliest token set `do_sample` to `false`";
                return Err(refused(key, expected, &value));
            }
        }
        for (key, value) in [
            ("top_p", self.top_p),
            ("min_p", self.min_p.unwrap_or_default()),
        ] {
            if !(0.0..=1.0).contains(&value) {
                return Err(refused(key, "a probability within 0..=1", &value));
            }
        }
        if !self.length_penalty.is_finite() {
            return Err(refused("length_penalty", "a number", &self.length_penalty));
        }
        match self.max_time {
            Some(seconds) if !is_positive(seconds) => {
                Err(refused("max_time", "seconds above 0", &seconds))
            }
            _ => Ok(()),
        }
    }

    fn check_sequences(&self) -> Result<()> {
        let (given, beams) = (self.num_return_sequences, self.num_beams);
        if beams > 1 && given > beams {
            let expected = format!("at most `num_beams` {beams}");
            return Err(refused("num_return_sequences", expected, &given));
        }
        if beams == 1 && given > 1 && !self.do_sample {
            let expected = "1 where the likeliest token is taken; set `do_sample` or `num_beams`";
            return Err(refused("num_return_sequences", expected, &given));
        }
        Ok(())
    }

    /// The token that fills finished sequences: the padding token, else the first end token.
    pub fn filler(&self) -> Option<i64> {
        self.pad_token_id
            .or_else(|| self.eos_token_id.first().copied())
    }

    /// The longest sequence for a prompt of `prompt` tokens, in a model of at most `limit`.
    ///
    /// # Errors
    /// [`Error::Config`] if that leaves no room for a new token, or is longer than the model can
    /// read.
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
    /// [`Error::Config`] if the configuration does not say.
    pub(super) fn decoder_begin(&self) -> Result<i64> {
        self.decoder_start_token_id
            .or(self.bos_token_id)
            .ok_or_else(|| refused("decoder_start_token_id", "a token", &"nothing"))
    }

    /// How many tokens a sequence has at least before it may end, with a prompt of `prompt`.
    pub(super) fn shortest(&self, prompt: i64) -> i64 {
        match self.min_new_tokens {
            Some(new) => prompt.saturating_add(new),
            None => self.min_length,
        }
    }
}

impl ForeignKeys {
    fn check(&self) -> Result<()> {
        let given = |value: &Option<serde_json::Value>| value.is_some();
        let groups = self.num_beam_groups.as_ref();
        let groups = groups.is_some_and(|groups| groups.as_i64() != Some(1));
        let keys = [
            ("num_beam_groups", groups),
            ("penalty_alpha", given(&self.penalty_alpha)),
            ("typical_p", self.typical_p.is_some_and(|mass| mass < 1.0)),
            (
                "epsilon_cutoff",
                self.epsilon_cutoff.is_some_and(|cut| cut > 0.0),
            ),
            ("eta_cutoff", self.eta_cutoff.is_some_and(|cut| cut > 0.0)),
            ("bad_words_ids", given(&self.bad_words_ids)),
            ("forced_bos_token_id", given(&self.forced_bos_token_id)),
            ("forced_eos_token_id", given(&self.forced_eos_token_id)),
            ("suppress_tokens", given(&self.suppress_tokens)),
            ("begin_suppress_tokens", given(&self.begin_suppress_tokens)),
            (
                "encoder_repetition_penalty",
                self.encoder_repetition_penalty.is_some_and(|by| by != 1.0),
            ),
            (
                "encoder_no_repeat_ngram_size",
                self.encoder_no_repeat_ngram_size
                    .is_some_and(|size| size > 0),
            ),
            (
                "exponential_decay_length_penalty",
                given(&self.exponential_decay_length_penalty),
            ),
        ];
        match keys.into_iter().find(|(_, asked)| *asked) {
            Some((key, _)) => Err(refused(
                key,
                "to be absent: it is not built here",
                &"a value",
            )),
            None => Ok(()),
        }
    }
}

/// Above 0, and a number at all.
fn is_positive(value: f64) -> bool {
    value > 0.0
}

fn refused(key: &'static str, expected: impl Into<String>, found: &dyn fmt::Display) -> Error {
    Error::Config {
        model: "a generation",
        key,
        expected: expected.into(),
        found: found.to_string(),
    }
}

/// A key that is `null` has its default: the original writes what nobody set so.
fn or<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
    default: T,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(default))
}

fn or_default<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    or(deserializer, T::default())
}

fn or_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    or(deserializer, 1.0)
}

fn or_fifty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    or(deserializer, 50)
}

fn or_one_beam<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    or(deserializer, 1)
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
            "{}",
        ] {
            let config = parsed(json).unwrap();
            let written = serde_json::to_string(&config).unwrap();
            assert_eq!(parsed(&written).unwrap(), config, "{written}");
        }
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

    #[test]
    fn what_cannot_be_is_told() {
        for (json, key) in [
            (r#"{"temperature": 0.0}"#, "temperature"),
            (r#"{"top_p": 1.5}"#, "top_p"),
            (r#"{"num_beams": 0}"#, "num_beams"),
            (
                r#"{"num_beams": 2, "num_return_sequences": 3}"#,
                "num_return_sequences",
            ),
            (r#"{"num_return_sequences": 2}"#, "num_return_sequences"),
            (r#"{"forced_eos_token_id": 2}"#, "forced_eos_token_id"),
            (r#"{"num_beam_groups": 2}"#, "num_beam_groups"),
        ] {
            let message = parsed(json).unwrap().check().unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")), "{json}: {message}");
        }
        let message = parsed(r#"{"early_stopping": 1}"#).unwrap_err().to_string();
        assert!(message.contains("`early_stopping`"), "{message}");
    }
}
