//! New tokens for a prompt.

use accelerate::{Error, PartialState, Result};
use tch::{Kind, Tensor};

use super::logits::{PromptFacts, processors};
use super::session::{Prompt, Session, Started};
use super::synced::Synced;
use super::{
    GenerationConfig, GenerativeModel, LogitsProcessor, MaxTime, StoppingCriterion, Streamer, beam,
    single,
};

/// What [`generate`] is given beside the configuration.
#[derive(Default)]
pub struct GenerateOptions<'a> {
    /// Further reasons to stop.
    pub stopping: Vec<Box<dyn StoppingCriterion + 'a>>,
    /// Further changes to the scores, after those for repetition and length and before those for
    /// drawing.
    pub processors: Vec<Box<dyn LogitsProcessor + 'a>>,
    /// Gets the new tokens of the only sequence as they come.
    pub streamer: Option<&'a mut dyn Streamer>,
    /// Ranks whose forward passes need each other, as those of a sharded model do: each calls its
    /// model until all have finished, whatever their lengths. Without it a rank stops when it has
    /// finished itself.
    pub synced: Option<&'a PartialState>,
}

impl std::fmt::Debug for GenerateOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GenerateOptions")
            .field("stopping", &self.stopping.len())
            .field("processors", &self.processors.len())
            .field("streamer", &self.streamer.is_some())
            .field("synced", &self.synced.is_some())
            .finish()
    }
}

/// What [`generate`] made.
#[derive(Debug)]
pub struct Generated {
    /// The sequences, `[rows * num_return_sequences, tokens]`, with the prompt, or for an
    /// encoder-decoder model with its start token. Those that ended early are filled up.
    pub sequences: Tensor,
    /// What each sequence scored, `[rows * num_return_sequences]`, from beam search.
    pub scores: Option<Tensor>,
    /// How many tokens of each sequence are not new.
    pub prompt_tokens: i64,
}

impl Generated {
    /// The new tokens, `[rows * num_return_sequences, new]`.
    ///
    /// # Errors
    /// None of its own; slicing a tensor is fallible.
    pub fn new_tokens(&self) -> Result<Tensor> {
        let tokens = self.sequences.size2()?.1;
        let new = tokens - self.prompt_tokens;
        Ok(self.sequences.f_narrow(1, self.prompt_tokens, new)?)
    }
}

/// Lets a model continue a prompt, or answer it where it has an encoder.
///
/// Greedy search, sampling or beam search, as the configuration says. Each step reads one token;
/// what was read before is in a cache of keys and values. Samples are drawn from libtorch's
/// generator: after the same seed they are those of the original on the same device. The model
/// keeps its mode; one that was read from a folder is in evaluation mode.
///
/// ```
/// use accelerate::nn::{Factory, Module};
/// use accelerate_models::PretrainedModel;
/// use accelerate_models::generation::{GenerateOptions, GenerationConfig, Prompt, generate};
/// use accelerate_models::gpt2::{GPT2Config, GPT2LMHeadModel};
/// use tch::Tensor;
///
/// let config: GPT2Config = serde_json::from_str(
///     r#"{"vocab_size": 20, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2}"#,
/// )?;
/// let model = GPT2LMHeadModel::new(&config, &Factory::default())?;
/// model.train(false);
/// let mut greedy = GenerationConfig::default();
/// greedy.max_new_tokens = Some(4);
/// let prompt = Prompt::new(&Tensor::from_slice(&[3i64, 1]).view([1, 2]));
/// let made = generate(&model, &prompt, &greedy, GenerateOptions::default())?;
/// assert_eq!(made.sequences.size(), [1, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Collective
/// With [`GenerateOptions::synced`] every rank of that state calls this, each with prompts of its
/// own; prompts have to be read by all, so no rank may have none. Else no rank needs another.
///
/// # Errors
/// [`Error::Config`](crate::Error::Config) for a configuration that contradicts itself or asks for
/// sequences longer than the model can read; [`Error::Argument`] for a prompt that is empty or
/// padded on the wrong side, and for a streamer of several sequences; else what the model, a
/// processor, a criterion or the streamer reports.
///
/// # Source
/// `GenerationMixin.generate` of `transformers`. Differs: the prompt is read once for all beams or
/// samples, and beam search fills up with the padding token also where that is 0. `synced_gpus` is
/// `synced`, which a rank that has finished spends on its last token, in a cache of the same length.
pub fn generate(
    model: &dyn GenerativeModel,
    prompt: &Prompt,
    config: &GenerationConfig,
    options: GenerateOptions<'_>,
) -> crate::Result<Generated> {
    config.check()?;
    tch::no_grad(|| {
        let mut started = Session::start(model, prompt, config)?;
        started.repeat_rows(config.num_beams.max(config.num_return_sequences))?;
        let mut run = Run::new(&started, prompt, config, options)?;
        if config.num_beams > 1 {
            return Ok(beam::search(started, config, &run)?);
        }
        Ok(single::search(started, config, &mut run)?)
    })
}

/// What both kinds of search need.
pub(super) struct Run<'a> {
    processors: Vec<Box<dyn LogitsProcessor + 'a>>,
    stopping: Vec<Box<dyn StoppingCriterion + 'a>>,
    pub(super) streamer: Option<&'a mut dyn Streamer>,
    pub(super) synced: Synced<'a>,
    /// The end tokens, none where there are none.
    ends: Option<Tensor>,
}

impl<'a> Run<'a> {
    fn new(
        started: &Started<'_>,
        given: &Prompt,
        config: &GenerationConfig,
        options: GenerateOptions<'a>,
    ) -> Result<Self> {
        let (rows, prompt) = started.sequences.size2()?;
        if options.streamer.is_some() && (rows != 1 || config.num_beams > 1) {
            return Err(Error::Argument {
                operation: "generate",
                expected: "a single sequence without beam search for a streamer".to_owned(),
                found: format!("{rows} sequences"),
            });
        }
        let ends = match config.eos_token_id.as_slice() {
            [] => None,
            ends => Some(Tensor::f_from_slice(ends)?.f_to_device(started.sequences.device())?),
        };
        let mut stopping = options.stopping;
        if let Some(seconds) = config.max_time {
            let limit = std::time::Duration::try_from_secs_f64(seconds);
            stopping.push(Box::new(MaxTime::new(
                limit.unwrap_or(std::time::Duration::MAX),
            )));
        }
        let ids = given
            .input_ids
            .f_to_kind(Kind::Int64)?
            .f_to_device(started.sequences.device())?;
        let facts = PromptFacts {
            tokens: prompt,
            longest: started.longest,
            padding: started.session.padding(),
            prompt_ids: Some(&ids),
        };
        let (own, warpers) = processors(config, &facts)?;
        Ok(Self {
            processors: own
                .into_iter()
                .chain(options.processors)
                .chain(warpers)
                .collect(),
            stopping,
            streamer: options.streamer,
            synced: Synced::new(options.synced),
            ends,
        })
    }

    /// The scores that a token is chosen by.
    pub(super) fn processed(&self, sequences: &Tensor, scores: Tensor) -> Result<Tensor> {
        self.processors
            .iter()
            .try_fold(scores, |scores, processor| {
                processor.process(sequences, scores)
            })
    }

    /// Whether a sequence can end before it is as long as can be.
    pub(super) fn may_end_early(&self) -> bool {
        self.ends.is_some() || !self.stopping.is_empty()
    }

    /// Whether a sequence can end with a token.
    pub(super) fn has_ends(&self) -> bool {
        self.ends.is_some()
    }

    /// Which sequences end with their last token, `[rows]` of bool; not because of their length.
    pub(super) fn ended(&self, sequences: &Tensor) -> Result<Tensor> {
        let (rows, tokens) = sequences.size2()?;
        let last = sequences.f_select(1, tokens - 1)?;
        let mut ended = match &self.ends {
            Some(ends) => Tensor::f_isin(&last, ends, false, false)?,
            None => Tensor::f_zeros([rows], (Kind::Bool, sequences.device()))?,
        };
        for criterion in &self.stopping {
            let also = criterion.ends(sequences)?.f_to_device(ended.device())?;
            ended = ended.f_logical_or(&also)?;
        }
        Ok(ended)
    }
}
