//! Whether sequences can be made with a configuration.

use std::fmt;

use super::GenerationConfig;
use crate::{Error, Result};

impl GenerationConfig {
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
            ("min_new_tokens", self.min_new_tokens),
            ("min_length", Some(self.min_length)),
            ("top_k", Some(self.top_k)),
            ("no_repeat_ngram_size", Some(self.no_repeat_ngram_size)),
            (
                "encoder_no_repeat_ngram_size",
                self.encoder_no_repeat_ngram_size,
            ),
        ] {
            if let Some(value) = value.filter(|&value| value < 0) {
                return Err(refused(key, "0 or more", &value));
            }
        }
        self.check_numbers()?;
        self.check_probabilities()?;
        self.check_runs()?;
        self.check_forced()?;
        self.check_sequences()
    }

    fn check_numbers(&self) -> Result<()> {
        for (key, value) in [
            ("temperature", Some(self.temperature)),
            ("repetition_penalty", Some(self.repetition_penalty)),
            (
                "encoder_repetition_penalty",
                self.encoder_repetition_penalty,
            ),
        ] {
            if let Some(value) = value.filter(|&value| !is_positive(value)) {
                let expected = "above 0; for the likeliest token set `do_sample` to `false`";
                return Err(refused(key, expected, &value));
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

    fn check_probabilities(&self) -> Result<()> {
        for (key, value) in [
            ("top_p", self.top_p),
            ("min_p", self.min_p.unwrap_or_default()),
            ("epsilon_cutoff", self.epsilon_cutoff.unwrap_or_default()),
            ("eta_cutoff", self.eta_cutoff.unwrap_or_default()),
        ] {
            if !(0.0..=1.0).contains(&value) {
                return Err(refused(key, "a probability within 0..=1", &value));
            }
        }
        for (key, value) in [("top_h", self.top_h), ("typical_p", self.typical_p)] {
            if let Some(value) = value.filter(|&value| !is_positive(value) || value > 1.0) {
                return Err(refused(key, "above 0 and at most 1", &value));
            }
        }
        Ok(())
    }

    fn check_runs(&self) -> Result<()> {
        let is_run = |run: &[i64]| !run.is_empty() && run.iter().all(|&token| token >= 0);
        let expected = "runs of at least one token, each token 0 or more";
        if let Some(run) = self.bad_words_ids.iter().find(|run| !is_run(run)) {
            return Err(refused("bad_words_ids", expected, &format!("{run:?}")));
        }
        let biases = &self.sequence_bias;
        if let Some((run, _)) = biases.iter().find(|(run, _)| !is_run(run)) {
            return Err(refused("sequence_bias", expected, &format!("{run:?}")));
        }
        if let Some((_, bias)) = biases.iter().find(|(_, bias)| !bias.is_finite()) {
            let expected = "numbers; runs that never come belong into `bad_words_ids`";
            return Err(refused("sequence_bias", expected, bias));
        }
        Ok(())
    }

    fn check_forced(&self) -> Result<()> {
        if let Some((_, factor)) = self.exponential_decay_length_penalty {
            if !is_positive(factor) {
                let expected = "a factor above 0";
                return Err(refused(
                    "exponential_decay_length_penalty",
                    expected,
                    &factor,
                ));
            }
            if self.eos_token_id.is_empty() {
                let expected = "an `eos_token_id` that can become likelier";
                return Err(refused(
                    "exponential_decay_length_penalty",
                    expected,
                    &"none",
                ));
            }
        }
        let bos = self.forced_bos_token_id;
        for (key, forced) in [
            ("forced_bos_token_id", bos.as_slice()),
            ("forced_eos_token_id", self.forced_eos_token_id.as_slice()),
        ] {
            let is_suppressed = |token: &i64| self.suppress_tokens.contains(token);
            if !forced.is_empty() && forced.iter().all(is_suppressed) {
                let expected = "a token that is not in `suppress_tokens`";
                return Err(refused(key, expected, &format!("{forced:?}")));
            }
        }
        Ok(())
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
}

/// Above 0, and a number at all.
fn is_positive(value: f64) -> bool {
    value > 0.0
}

pub(super) fn refused(
    key: &'static str,
    expected: impl Into<String>,
    found: &dyn fmt::Display,
) -> Error {
    Error::Config {
        model: "a generation",
        key,
        expected: expected.into(),
        found: found.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Result<GenerationConfig, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (json, key) in [
            (r#"{"temperature": 0.0}"#, "temperature"),
            (r#"{"top_p": 1.5}"#, "top_p"),
            (r#"{"top_h": 0}"#, "top_h"),
            (r#"{"typical_p": 1.5}"#, "typical_p"),
            (r#"{"eta_cutoff": -0.5}"#, "eta_cutoff"),
            (r#"{"num_beams": 0}"#, "num_beams"),
            (
                r#"{"num_beams": 2, "num_return_sequences": 3}"#,
                "num_return_sequences",
            ),
            (r#"{"num_return_sequences": 2}"#, "num_return_sequences"),
            (r#"{"bad_words_ids": [[]]}"#, "bad_words_ids"),
            (r#"{"sequence_bias": [[[1, -1], 2.0]]}"#, "sequence_bias"),
            (
                r#"{"encoder_repetition_penalty": 0}"#,
                "encoder_repetition_penalty",
            ),
            (
                r#"{"exponential_decay_length_penalty": [2, 1.5]}"#,
                "exponential_decay_length_penalty",
            ),
            (
                r#"{"forced_eos_token_id": 2, "suppress_tokens": [1, 2]}"#,
                "forced_eos_token_id",
            ),
            (r#"{"num_beam_groups": 2}"#, "num_beam_groups"),
            (r#"{"guidance_scale": 1.5}"#, "guidance_scale"),
            (r#"{"stop_strings": ["."]}"#, "stop_strings"),
        ] {
            let message = parsed(json).unwrap().check().unwrap_err().to_string();
            assert!(message.contains(&format!("`{key}`")), "{json}: {message}");
        }
        let message = parsed(r#"{"early_stopping": 1}"#).unwrap_err().to_string();
        assert!(message.contains("`early_stopping`"), "{message}");
    }
}
