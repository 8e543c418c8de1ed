//! From tokens to vectors.

use accelerate::nn::{
    Buffer, Dropout, Embedding, Factory, Forward, LayerNorm, Module, ModuleState,
};
use accelerate::{Error, Result};
use tch::{Kind, Tensor};

use super::BertConfig;
use crate::token_ids::check_token_ids;

/// The sum of the embeddings of token, segment and position, normalised.
///
/// # Shapes
/// - input: token ids and, where there are several segments, segment ids, both `[batch, tokens]`
/// - output: `[batch, tokens, hidden_size]`
#[derive(Debug, Clone, Module)]
#[expect(
    non_snake_case,
    reason = "fields have the names of the public checkpoint"
)]
pub struct BertEmbeddings {
    pub(super) word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    LayerNorm: LayerNorm,
    dropout: Dropout,
    position_ids: Buffer,
    token_type_ids: Buffer,
    #[module(skip)]
    vocab_size: i64,
    state: ModuleState,
}

impl BertEmbeddings {
    pub(super) fn new(config: &BertConfig, factory: &Factory) -> Result<Self> {
        let (tokens, width) = (config.vocab_size, config.hidden_size);
        let positions = config.max_position_embeddings;
        let options = (Kind::Int64, factory.device());
        Ok(Self {
            word_embeddings: match config.pad_token_id {
                Some(pad) => Embedding::with_padding(tokens, width, pad, factory)?,
                None => Embedding::new(tokens, width, factory)?,
            },
            position_embeddings: Embedding::new(positions, width, factory)?,
            token_type_embeddings: Embedding::new(config.type_vocab_size, width, factory)?,
            LayerNorm: LayerNorm::new(width, config.layer_norm_eps, factory)?,
            dropout: Dropout::new(config.hidden_dropout_prob)?,
            position_ids: Buffer::non_persistent(
                Tensor::f_arange(positions, options)?.f_unsqueeze(0)?,
            ),
            token_type_ids: Buffer::non_persistent(Tensor::f_zeros([1, positions], options)?),
            vocab_size: tokens,
            state: ModuleState::default(),
        })
    }

    /// The first `tokens` entries of a buffer of all positions.
    fn first(buffer: &Buffer, tokens: i64) -> Result<Tensor> {
        Ok(buffer.tensor().f_slice(1, 0, tokens, 1)?)
    }
}

impl Forward for BertEmbeddings {
    type Input = (Tensor, Option<Tensor>);
    type Output = Tensor;

    fn forward(&self, (input_ids, token_type_ids): Self::Input) -> Result<Tensor> {
        let (batch, tokens) = check_token_ids("BertEmbeddings", &input_ids, self.vocab_size)?;
        let longest = self.position_ids.tensor().size2()?.1;
        if tokens > longest {
            return Err(Error::Argument {
                operation: "BertEmbeddings",
                expected: format!(
                    "sequences of at most {longest} tokens (`max_position_embeddings`)"
                ),
                found: format!("the shape {:?}", input_ids.size()),
            });
        }
        let token_type_ids = match token_type_ids {
            Some(ids) => ids,
            None => Self::first(&self.token_type_ids, tokens)?.f_expand([batch, tokens], false)?,
        };
        let words = self.word_embeddings.call(input_ids)?;
        let segments = self.token_type_embeddings.call(token_type_ids)?;
        let positions = self
            .position_embeddings
            .call(Self::first(&self.position_ids, tokens)?)?;
        let sum = words.f_add(&segments)?.f_add(&positions)?;
        self.dropout.call(self.LayerNorm.call(sum)?)
    }
}
