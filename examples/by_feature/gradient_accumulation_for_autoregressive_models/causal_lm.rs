//! A small transformer that predicts the next token from those before it.

use accelerate::Result;
use accelerate::nn::{
    Attention, Embedding, Factory, Forward, LayerNorm, Linear, Module, ModuleState,
    scaled_dot_product_attention,
};
use accelerate::tch::{Kind, Reduction, Tensor};

/// The label of what is no token.
pub(super) const PADDING: i64 = -100;

const HEADS: i64 = 4;
const BLOCKS: usize = 2;

/// Embeddings, a few blocks, and a score for each token of the vocabulary.
///
/// # Shapes
/// Token ids `[batch, tokens]` to logits `[batch, tokens, vocabulary]`.
#[derive(Debug, Module)]
pub(super) struct CausalLm {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
    state: ModuleState,
}

impl CausalLm {
    pub(super) fn new(
        vocabulary: usize,
        length: usize,
        width: usize,
        factory: &Factory,
    ) -> Result<Self> {
        let width = width as i64 / HEADS * HEADS;
        let blocks = (0..BLOCKS).map(|_| Block::new(width, factory));
        Ok(Self {
            tokens: Embedding::new(vocabulary as i64, width, factory)?,
            positions: Embedding::new(length as i64, width, factory)?,
            blocks: blocks.collect::<Result<_>>()?,
            norm: LayerNorm::new(width, 1e-5, factory)?,
            head: Linear::without_bias(width, vocabulary as i64, factory)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for CausalLm {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, ids: Tensor) -> Result<Tensor> {
        let (_, length) = ids.size2()?;
        let places = Tensor::f_arange(length, (Kind::Int64, ids.device()))?;
        let mut hidden = self
            .tokens
            .call(ids)?
            .f_add(&self.positions.call(places)?)?;
        for block in &self.blocks {
            hidden = block.call(hidden)?;
        }
        self.head.call(self.norm.call(hidden)?)
    }
}

/// Attention to what came before, then two layers for each token by itself.
#[derive(Debug, Module)]
struct Block {
    attention_norm: LayerNorm,
    attention_in: Linear,
    attention_out: Linear,
    mlp_norm: LayerNorm,
    mlp_in: Linear,
    mlp_out: Linear,
    state: ModuleState,
}

impl Block {
    fn new(width: i64, factory: &Factory) -> Result<Self> {
        Ok(Self {
            attention_norm: LayerNorm::new(width, 1e-5, factory)?,
            attention_in: Linear::new(width, 3 * width, factory)?,
            attention_out: Linear::new(width, width, factory)?,
            mlp_norm: LayerNorm::new(width, 1e-5, factory)?,
            mlp_in: Linear::new(width, 4 * width, factory)?,
            mlp_out: Linear::new(4 * width, width, factory)?,
            state: ModuleState::default(),
        })
    }

    fn attention(&self, hidden: Tensor) -> Result<Tensor> {
        let (batch, length, width) = hidden.size3()?;
        let all = self.attention_in.call(hidden)?;
        let heads = all.f_view([batch, length, 3, HEADS, width / HEADS])?;
        let parts = heads.f_permute([2, 0, 3, 1, 4])?.f_unbind(0)?;
        let causal = Attention {
            causal: true,
            ..Default::default()
        };
        let mixed = scaled_dot_product_attention(&parts[0], &parts[1], &parts[2], None, &causal)?;
        let mixed = mixed.f_transpose(1, 2)?.f_reshape([batch, length, width])?;
        self.attention_out.call(mixed)
    }
}

impl Forward for Block {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, hidden: Tensor) -> Result<Tensor> {
        let mixed = self.attention(self.attention_norm.call(&hidden)?)?;
        let hidden = hidden.f_add(&mixed)?;
        let wide = self.mlp_in.call(self.mlp_norm.call(&hidden)?)?;
        Ok(hidden.f_add(&self.mlp_out.call(wide.f_gelu("none")?)?)?)
    }
}

/// The sum of the losses of all tokens that are predicted: `[]`.
pub(super) fn loss_sum(model: &CausalLm, ids: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let (_, length) = ids.size2()?;
    let logits = model.call(ids.f_narrow(1, 0, length - 1)?)?;
    let logits = logits.f_flatten(0, 1)?;
    let next = labels.f_narrow(1, 1, length - 1)?.f_flatten(0, 1)?;
    let no_weights: Option<Tensor> = None;
    Ok(logits.f_cross_entropy_loss(&next, no_weights, Reduction::Sum, PADDING, 0.0)?)
}

/// How many tokens are predicted: the first one of each text is given.
pub(super) fn count(labels: &Tensor) -> Result<i64> {
    let (_, length) = labels.size2()?;
    let next = labels.f_narrow(1, 1, length - 1)?;
    Ok(next.f_ne(PADDING)?.f_sum(Kind::Int64)?.f_int64_value(&[])?)
}
