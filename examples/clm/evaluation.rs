//! How well the model predicts what it has not seen.

use accelerate::data::{Collate, Dataset, PreparedDataLoader};
use accelerate::nn::{Forward, Module};
use accelerate::{Accelerator, Result};
use accelerate_models::decoder::CausalLmInput;
use accelerate_models::gpt2::GPT2LMHeadModel;
use tch::{Kind, Reduction, Tensor};

/// The mean loss of each next token over all held-out blocks, on all ranks.
pub(crate) fn loss<D, C>(
    accelerator: &Accelerator,
    model: &GPT2LMHeadModel,
    batches: &PreparedDataLoader<D, C>,
) -> Result<f64>
where
    D: Dataset + 'static,
    C: Collate<D::Item, Batch = Tensor> + 'static,
{
    model.train(false);
    let (mut sum, mut blocks) = (0.0, 0);
    for batch in batches {
        let losses = tch::no_grad(|| of_blocks(model, &batch?))?;
        // Every block once, however the last batch was filled up.
        let losses = accelerator.gather_for_metrics(losses)?;
        sum += losses.f_sum(Kind::Double)?.f_double_value(&[])?;
        blocks += losses.size1()?;
    }
    model.train(true);
    Ok(sum / blocks.max(1) as f64)
}

/// The mean loss of each block, `[blocks]`.
fn of_blocks(model: &GPT2LMHeadModel, ids: &Tensor) -> Result<Tensor> {
    let logits = model.call(CausalLmInput::new(ids))?.logits;
    let (blocks, tokens, vocab_size) = logits.size3()?;
    let logits = logits
        .f_narrow(1, 0, tokens - 1)?
        .f_reshape([-1, vocab_size])?
        .f_to_kind(Kind::Float)?;
    let next = ids.f_narrow(1, 1, tokens - 1)?.f_reshape([-1])?;
    let losses = logits.f_cross_entropy_loss(&next, None::<Tensor>, Reduction::None, -100, 0.0)?;
    Ok(losses
        .f_view([blocks, tokens - 1])?
        .f_mean_dim(Some([1i64].as_slice()), false, None)?)
}
