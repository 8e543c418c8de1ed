//! What goes through the model.

use std::fs;
use std::path::Path;

use accelerate_models::TextTokenizer;
use accelerate_models::decoder::CausalLmInput;
use accelerate_models::generation::GenerationProfile;
use accelerate_models::tokenizer::Encoding;
use tch::{Device, Kind, Tensor};

use crate::arguments::Arguments;

type BoxError = Box<dyn std::error::Error>;

/// What is continued where nobody gives a prompt.
const PROMPTS: [&str; 5] = [
    "Alice was",
    "The Queen of Hearts",
    "In the beginning",
    "\"What is the use of a book,\"",
    "Down, down, down.",
];

/// No prompt is longer, and none than the model sees.
const MAX_TOKENS: i64 = 256;

/// Rows of token ids, with what they say where somebody wrote it.
pub(crate) struct Batch {
    ids: Tensor,
    mask: Option<Tensor>,
    text: Option<(TextTokenizer, Vec<String>)>,
}

impl Batch {
    /// The rows that the arguments ask for, for a model of this profile.
    pub(crate) fn new(
        arguments: &Arguments,
        folder: &Path,
        profile: &GenerationProfile,
    ) -> Result<Self, BoxError> {
        if let Some(rows) = arguments.made_up_rows {
            let (rows, tokens) = (rows.get() as i64, arguments.made_up_tokens.get() as i64);
            let ids = Tensor::f_arange(rows * tokens, (Kind::Int64, Device::Cpu))?;
            let ids = ids.f_mul_scalar(7919)?.f_remainder(profile.vocab_size)?;
            return Ok(Self {
                ids: ids.f_view([rows, tokens])?,
                mask: None,
                text: None,
            });
        }
        let prompts = prompts(arguments.prompts.as_deref())?;
        let tokenizer = TextTokenizer::from_folder(folder)?;
        let texts: Vec<&str> = prompts.iter().map(String::as_str).collect();
        let limit = profile.max_positions.unwrap_or(MAX_TOKENS).min(MAX_TOKENS);
        let encodings = tokenizer.encode_each(&texts, usize::try_from(limit)?)?;
        let encodings: Vec<&Encoding> = encodings.iter().collect();
        let batch = tokenizer.batch_to_continue(&encodings)?;
        Ok(Self {
            ids: batch.input_ids,
            mask: Some(batch.attention_mask),
            text: Some((tokenizer, prompts)),
        })
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> i64 {
        self.ids.size().first().copied().unwrap_or(0)
    }

    /// What the model takes: a score is wanted for the token behind each row only.
    pub(crate) fn input(&self) -> Result<CausalLmInput, BoxError> {
        let mut input = CausalLmInput::new(&self.ids);
        input.last_only = true;
        let Some(mask) = &self.mask else {
            return Ok(input);
        };
        // Padding is before the text, so positions count real tokens only.
        let positions = mask.f_to_kind(Kind::Int64)?.f_cumsum(1, Kind::Int64)?;
        input.position_ids = Some(positions.f_sub_scalar(1)?.f_clamp_min(0)?);
        Ok(input.with_attention_mask(mask))
    }

    /// A line for each row: the prompt, and the token behind it.
    pub(crate) fn lines(&self, next: &[i64]) -> Result<Vec<String>, BoxError> {
        let Some((tokenizer, prompts)) = &self.text else {
            return Ok(next
                .iter()
                .map(|token| format!("next token: {token}"))
                .collect());
        };
        let rows = prompts.iter().zip(next);
        rows.map(|(prompt, &token)| {
            let word = tokenizer.decode(&[token], false)?;
            Ok(format!(
                "{prompt} ->{}{word}",
                if word.starts_with(' ') { "" } else { " " }
            ))
        })
        .collect()
    }
}

fn prompts(path: Option<&Path>) -> Result<Vec<String>, BoxError> {
    let Some(path) = path else {
        return Ok(PROMPTS.map(str::to_owned).to_vec());
    };
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read the prompts in `{}`: {error}", path.display()))?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let prompts: Vec<String> = lines.map(str::to_owned).collect();
    match prompts.is_empty() {
        true => Err(format!(
            "`{}` holds no prompt; write one on each line",
            path.display()
        )
        .into()),
        false => Ok(prompts),
    }
}
