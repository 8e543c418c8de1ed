//! The encoder, and the decoder.

use accelerate::nn::{Dropout, Embedding, Factory, Forward, Module, ModuleState};
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::Tensor;

use super::attention::Side;
use super::{T5Block, T5BlockInput, T5Config, T5LayerNorm, mask};
use crate::generation::KeyValueCache;
use crate::pretrained::{InitNode, draw_first_values, usual_first_values};
use crate::token_ids::check_token_ids;

/// What [`T5Stack`] takes.
#[derive(Debug, Tree)]
pub struct T5StackInput {
    /// The token ids, `[batch, tokens]` of int64 or int32.
    pub input_ids: Tensor,
    /// Not zero where there is a token, `[batch, tokens]`; for a decoder with a cache
    /// `[batch, cached + tokens]`. Absent where nothing is padded.
    pub attention_mask: Option<Tensor>,
    /// The encoder's states, for a decoder: `[batch, encoder tokens, d_model]`.
    pub encoder_states: Option<Tensor>,
    /// Not zero where the encoder has a token, `[batch, encoder tokens]`.
    pub encoder_attention_mask: Option<Tensor>,
    /// Keys and values of the tokens before, for a decoder.
    pub cache: Option<KeyValueCache>,
}

/// All blocks of one side, with its embeddings and a last normalisation.
///
/// # Shapes
/// - output: `[batch, tokens, d_model]`
#[derive(Debug, Clone, Module)]
pub struct T5Stack {
    pub(super) embed_tokens: Embedding,
    pub(super) block: Vec<T5Block>,
    pub(super) final_layer_norm: T5LayerNorm,
    pub(super) dropout: Dropout,
    #[module(skip)]
    side: Side,
    #[module(skip)]
    pub(super) vocab_size: i64,
    state: ModuleState,
}

impl T5Stack {
    /// The encoder with its first values.
    pub(super) fn encoder(config: &T5Config, factory: &Factory) -> Result<Self> {
        Self::new(config, Side::Encoder, config.num_layers, factory)
    }

    /// The decoder with its first values.
    pub(super) fn decoder(config: &T5Config, factory: &Factory) -> Result<Self> {
        Self::new(config, Side::Decoder, config.num_decoder_layers(), factory)
    }

    fn new(config: &T5Config, side: Side, layers: usize, factory: &Factory) -> Result<Self> {
        let stack = Self {
            embed_tokens: Embedding::new(config.vocab_size, config.d_model, factory)?,
            block: (0..layers)
                .map(|index| T5Block::new(config, side, index == 0, factory))
                .collect::<Result<_>>()?,
            final_layer_norm: T5LayerNorm::new(config.d_model, config.layer_norm_epsilon, factory)?,
            dropout: Dropout::new(config.dropout_rate)?,
            side,
            vocab_size: config.vocab_size,
            state: ModuleState::default(),
        };
        draw_first_values(&stack, factory, &[], |node| init_module(config, node))?;
        Ok(stack)
    }

    /// Which tokens of its own text each token may look at.
    fn own_mask(&self, input: &T5StackInput, batch: i64, tokens: i64) -> Result<Option<Tensor>> {
        let past = input.cache.as_ref().map_or(0, KeyValueCache::tokens);
        let given = input.attention_mask.as_ref().map(Tensor::shallow_clone);
        let padding = mask::padding(given, batch, past + tokens)?;
        match self.side {
            Side::Encoder => Ok(padding),
            Side::Decoder => {
                let device = input.input_ids.device();
                mask::both(mask::causal(tokens, past + tokens, device)?, padding)
            }
        }
    }

    fn check_sides(&self, input: &T5StackInput) -> Result<()> {
        let expected = match (self.side, &input.encoder_states, &input.cache) {
            (Side::Encoder, None, None) | (Side::Decoder, Some(_), _) => return Ok(()),
            (Side::Encoder, ..) => "an encoder's input, without encoder states and cache",
            (Side::Decoder, ..) => "a decoder's input, with the encoder's states",
        };
        Err(Error::Argument {
            operation: "T5Stack",
            expected: expected.to_owned(),
            found: format!(
                "encoder states: {}, cache: {}",
                input.encoder_states.is_some(),
                input.cache.is_some()
            ),
        })
    }
}

impl Forward for T5Stack {
    type Input = T5StackInput;
    type Output = Tensor;

    fn forward(&self, input: T5StackInput) -> Result<Tensor> {
        self.check_sides(&input)?;
        let (batch, tokens) = check_token_ids("T5Stack", &input.input_ids, self.vocab_size)?;
        let own_mask = self.own_mask(&input, batch, tokens)?;
        let encoder_mask = match &input.encoder_states {
            Some(states) => {
                let (batch, tokens, _) = states.size3()?;
                mask::padding(input.encoder_attention_mask, batch, tokens)?
            }
            None => None,
        };
        let mut hidden = self
            .dropout
            .call(self.embed_tokens.call(input.input_ids)?)?;
        let (mut bias, mut encoder_bias) = (None, None);
        for (index, block) in self.block.iter().enumerate() {
            let cache = input
                .cache
                .as_ref()
                .map(|cache| cache.layer(index).cloned());
            let handle = |tensor: &Option<Tensor>| tensor.as_ref().map(Tensor::shallow_clone);
            (hidden, bias, encoder_bias) = block.call(T5BlockInput {
                hidden,
                mask: handle(&own_mask),
                bias,
                encoder_states: handle(&input.encoder_states),
                encoder_mask: handle(&encoder_mask),
                encoder_bias,
                cache: cache.transpose()?,
            })?;
        }
        self.dropout.call(self.final_layer_norm.call(hidden)?)
    }
}

/// First values of the modules of every T5.
pub(super) fn init_module(config: &T5Config, node: &InitNode<'_>) -> Result<()> {
    let factor = config.initializer_factor;
    let per_root = |width: i64| factor * (width as f64).powf(-0.5);
    let d_model = per_root(config.d_model);
    usual_first_values(node, factor)?;
    match node.class() {
        "T5LayerNorm" => node.constant("weight", factor),
        "T5ForConditionalGeneration" | "T5EncoderModel" => node.normal("shared.weight", factor),
        "T5DenseActDense" => {
            node.normal("wi.weight", d_model)?;
            node.normal("wo.weight", per_root(config.d_ff))
        }
        "T5DenseGatedActDense" => {
            node.normal("wi_0.weight", d_model)?;
            node.normal("wi_1.weight", d_model)?;
            node.normal("wo.weight", per_root(config.d_ff))
        }
        "T5Attention" => {
            node.normal("q.weight", per_root(config.d_model * config.d_kv))?;
            node.normal("k.weight", d_model)?;
            node.normal("v.weight", d_model)?;
            node.normal("o.weight", per_root(config.inner_dim()))?;
            node.normal("relative_attention_bias.weight", d_model)
        }
        _ => Ok(()),
    }
}
