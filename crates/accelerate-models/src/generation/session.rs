//! One run of a model: its cache, its mask and its positions, step by step.

use accelerate::{Error, Result};
use tch::{Kind, Tensor};

use super::{
    Architecture, DecoderStep, EncoderStates, GenerationConfig, GenerativeModel, KeyValueCache,
};

/// What a model is to continue, or to answer where it has an encoder.
#[derive(Debug)]
pub struct Prompt {
    /// The tokens, `[rows, tokens]` of int64; shorter rows are padded on the left, or for an
    /// encoder on either side.
    pub input_ids: Tensor,
    /// Not 0 where there is a token, 0 where there is padding, `[rows, tokens]`; where absent,
    /// padding tokens are padding unless they also end sequences.
    pub attention_mask: Option<Tensor>,
}

impl Prompt {
    /// Tokens whose padding shows by itself.
    pub fn new(input_ids: &Tensor) -> Self {
        Self {
            input_ids: input_ids.shallow_clone(),
            attention_mask: None,
        }
    }

    /// The mask as bool, or none where nothing is padded.
    fn padding(&self, config: &GenerationConfig) -> Result<Option<Tensor>> {
        let ids = &self.input_ids;
        let mask = match (&self.attention_mask, config.pad_token_id) {
            (Some(mask), _) if mask.size() != ids.size() => {
                return Err(Error::Argument {
                    operation: "generate",
                    expected: format!("an attention mask of the ids' shape {:?}", ids.size()),
                    found: format!("{:?}", mask.size()),
                });
            }
            (Some(mask), _) => mask.f_to_kind(Kind::Bool)?.f_to_device(ids.device())?,
            (None, Some(pad)) if !config.eos_token_id.contains(&pad) => ids.f_ne(pad)?,
            (None, _) => return Ok(None),
        };
        Ok((mask.f_all()?.f_int64_value(&[])? == 0).then_some(mask))
    }
}

/// A model on its way through some sequences.
pub(super) struct Session<'m> {
    model: &'m dyn GenerativeModel,
    cache: KeyValueCache,
    encoder: Option<EncoderStates>,
    /// For all tokens that there will be, `[rows, longest]`; none where nothing is padded.
    mask: Option<Tensor>,
    /// The position of the next token, `[rows, 1]` or `[1, 1]`.
    next: Tensor,
    /// How many tokens of padding each row begins with.
    padding: Option<Tensor>,
}

/// A session that has read its prompt.
pub(super) struct Started<'m> {
    pub(super) session: Session<'m>,
    /// What the decoder has read so far, `[rows, tokens]`.
    pub(super) sequences: Tensor,
    /// The logits of the first new token, `[rows, vocab_size]`.
    pub(super) logits: Tensor,
    /// The longest sequence to make.
    pub(super) longest: i64,
}

impl<'m> Session<'m> {
    /// Reads the prompt.
    pub(super) fn start(
        model: &'m dyn GenerativeModel,
        prompt: &Prompt,
        config: &GenerationConfig,
    ) -> crate::Result<Started<'m>> {
        let profile = model.generation_profile();
        let (rows, tokens) = prompt_size(&prompt.input_ids)?;
        let padding = prompt.padding(config)?;
        let (sequences, mask, encoder) = match profile.architecture {
            Architecture::Decoder => {
                let ids = prompt.input_ids.f_to_kind(Kind::Int64).map_err(tensor)?;
                if let Some(mask) = &padding {
                    check_left_padding(mask)?;
                }
                (ids, padding, None)
            }
            Architecture::EncoderDecoder => {
                let states = model.encode(&prompt.input_ids, padding.as_ref())?;
                let begin = config.decoder_begin()?;
                let options = (Kind::Int64, prompt.input_ids.device());
                let begin = Tensor::f_full([rows, 1], begin, options).map_err(tensor)?;
                (begin, None, Some(states))
            }
        };
        let tokens = match encoder {
            Some(_) => 1,
            None => tokens,
        };
        let longest = config.longest(tokens, profile.max_positions)?;
        let session = Self {
            model,
            cache: KeyValueCache::new(profile.num_layers, longest),
            encoder,
            next: Tensor::f_full([1, 1], tokens, (Kind::Int64, sequences.device()))
                .map_err(tensor)?,
            mask: None,
            padding: None,
        };
        Ok(session.read(sequences, mask.as_ref(), longest)?)
    }

    fn read(
        mut self,
        sequences: Tensor,
        mask: Option<&Tensor>,
        longest: i64,
    ) -> Result<Started<'m>> {
        let (rows, tokens) = sequences.size2()?;
        let device = sequences.device();
        let positions = match mask {
            None => Tensor::f_arange(tokens, (Kind::Int64, device))?.f_unsqueeze(0)?,
            Some(mask) => {
                let counted = mask.f_cumsum(-1, Kind::Int64)?;
                self.next = counted.f_narrow(1, tokens - 1, 1)?;
                self.padding = Some(mask.f_to_kind(Kind::Int64)?.f_argmax(1, false)?);
                let whole = Tensor::f_ones([rows, longest], (Kind::Bool, device))?;
                whole.f_narrow(1, 0, tokens)?.f_copy_(mask)?;
                self.mask = Some(whole);
                counted
                    .f_sub_scalar(1)?
                    .f_masked_fill(&mask.f_logical_not()?, 0)?
            }
        };
        let logits = self.forward(&sequences, &positions)?;
        Ok(Started {
            session: self,
            sequences,
            logits,
            longest,
        })
    }

    /// Reads one more token of each row, `[rows, 1]`, and gives the logits of the next.
    pub(super) fn step(&mut self, ids: &Tensor) -> Result<Tensor> {
        let positions = self.next.shallow_clone();
        self.next = self.next.f_add_scalar(1)?;
        self.forward(ids, &positions)
    }

    /// Runs the model once and forgets what it read and said, for ranks that need the call.
    pub(super) fn idle(&self, ids: &Tensor) -> Result<()> {
        let known = self.cache.tokens();
        let _unread = self.forward(ids, &self.next)?;
        self.cache.keep_first(known);
        Ok(())
    }

    fn forward(&self, ids: &Tensor, positions: &Tensor) -> Result<Tensor> {
        let known = self.cache.tokens() + ids.size2()?.1;
        let mask = self
            .mask
            .as_ref()
            .map(|mask| mask.f_narrow(1, 0, known))
            .transpose()?;
        let logits = self.model.next_token_logits(&DecoderStep {
            input_ids: ids,
            position_ids: positions,
            attention_mask: mask.as_ref(),
            cache: &self.cache,
            encoder: self.encoder.as_ref(),
        })?;
        Ok(logits.f_to_kind(Kind::Float)?.f_to_device(ids.device())?)
    }

    /// How many tokens of padding each row begins with, `[rows]`.
    pub(super) fn padding(&self) -> Option<&Tensor> {
        self.padding.as_ref()
    }

    /// The rows of the cache change places.
    pub(super) fn reorder(&self, rows: &Tensor) -> Result<()> {
        self.cache.reorder(rows)
    }
}

impl Started<'_> {
    /// Each row `times` times, one after another: the prompt was read once for all of them.
    pub(super) fn repeat_rows(&mut self, times: i64) -> Result<()> {
        if times == 1 {
            return Ok(());
        }
        let repeat =
            |tensor: &Tensor| tensor.f_repeat_interleave_self_int(times, Some(0), None::<i64>);
        let session = &mut self.session;
        session.cache.repeat_rows(times)?;
        if let Some(encoder) = &session.encoder {
            session.encoder = Some(encoder.repeat_rows(times)?);
        }
        if let Some(mask) = &session.mask {
            // One row for all stays one row.
            session.next = repeat(&session.next)?;
            session.mask = Some(repeat(mask)?);
        }
        session.padding = session.padding.as_ref().map(repeat).transpose()?;
        self.sequences = repeat(&self.sequences)?;
        self.logits = repeat(&self.logits)?;
        Ok(())
    }
}

fn prompt_size(ids: &Tensor) -> Result<(i64, i64)> {
    match ids.size().as_slice() {
        &[rows, tokens] if rows > 0 && tokens > 0 => Ok((rows, tokens)),
        shape => Err(Error::Argument {
            operation: "generate",
            expected: "a prompt of shape [rows, tokens] with at least one token in each row, such \
                       as `bos_token_id`"
                .to_owned(),
            found: format!("the shape {shape:?}"),
        }),
    }
}

/// A decoder continues the last token of each row, so that must be one.
fn check_left_padding(mask: &Tensor) -> Result<()> {
    let tokens = mask.size2()?.1;
    let last = mask.f_select(1, tokens - 1)?;
    if last.f_all()?.f_int64_value(&[])? != 0 {
        return Ok(());
    }
    let row = last.f_to_kind(Kind::Int64)?.f_argmin(None::<i64>, false)?;
    Err(Error::Argument {
        operation: "generate",
        expected: "shorter rows to be padded on the left, as the last token is continued"
            .to_owned(),
        found: format!("padding at the end of row {}", row.f_int64_value(&[])?),
    })
}

fn tensor(error: tch::TchError) -> accelerate::Error {
    error.into()
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("model", &self.model.class_name())
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}
