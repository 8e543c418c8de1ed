//! What is loaded and trained on: the same numbers as in `tests/parity/bench_training_core.py`.
//!
//! The benches of this crate use it too.

use accelerate::data::{DataLoader, DataLoaderBuilder, Dataset, FnDataset, Stack, TensorDataset};
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::{Device, Kind, Tensor};

/// Samples in a batch.
pub(crate) const BATCH: usize = 32;

/// Different images that are kept; longer epochs go through them again.
const IMAGES_KEPT: usize = 512;

/// A text as token ids, and its label.
pub(crate) type Text = (Vec<i64>, i64);

/// `samples` texts of 32 to 96 tokens, 64 on average.
pub(crate) fn texts(samples: usize) -> Vec<Text> {
    (0..samples)
        .map(|index| {
            let length = 32 + index * 37 % 65;
            let ids = (0..length).map(|place| ((index * 31 + place * 7) % 30_000 + 1) as i64);
            (ids.collect(), (index % 2) as i64)
        })
        .collect()
}

/// Texts padded with zeros to the longest of them.
#[derive(Tree)]
pub(crate) struct TextBatch {
    /// `[batch, longest]`.
    pub(crate) input_ids: Tensor,
    /// `[batch, longest]`: 1 for a token, 0 for padding.
    pub(crate) attention_mask: Tensor,
    /// `[batch]`.
    pub(crate) labels: Tensor,
}

/// Makes one batch of texts.
pub(crate) fn pad(texts: Vec<Text>) -> Result<TextBatch> {
    let longest = texts.iter().map(|(ids, _)| ids.len()).max().unwrap_or(0);
    let shape = [size(texts.len())?, size(longest)?];
    let mut ids = Vec::with_capacity(texts.len() * longest);
    let mut mask = Vec::with_capacity(texts.len() * longest);
    let mut labels = Vec::with_capacity(texts.len());
    for (row, (text, label)) in texts.into_iter().enumerate() {
        mask.resize(row * longest + text.len(), 1i64);
        ids.extend(text);
        ids.resize((row + 1) * longest, 0);
        mask.resize((row + 1) * longest, 0);
        labels.push(label);
    }
    Ok(TextBatch {
        input_ids: Tensor::f_from_slice(&ids)?.f_view(shape)?,
        attention_mask: Tensor::f_from_slice(&mask)?.f_view(shape)?,
        labels: Tensor::f_from_slice(&labels)?,
    })
}

/// `samples` images `[3, 64, 64]`, each with its label `[]`.
pub(crate) fn images(samples: usize) -> Result<impl Dataset<Item = [Tensor; 2]> + 'static> {
    let kept = size(IMAGES_KEPT)?;
    let ramp = Tensor::f_arange(kept * 3 * 64 * 64, (Kind::Float, Device::Cpu))?;
    let pixels = ramp.f_remainder(251.0)?.f_view([kept, 3, 64, 64])?;
    let labels = Tensor::f_arange(kept, (Kind::Int64, Device::Cpu))?.f_remainder(10)?;
    let kept = TensorDataset::new([pixels, labels])?;
    Ok(FnDataset::new(samples, move |index| {
        kept.get(index % IMAGES_KEPT)
    }))
}

/// Settings of a loader in random order.
pub(crate) fn shuffled<D: Dataset>(data: D, workers: usize) -> DataLoaderBuilder<D, Stack> {
    DataLoader::builder(data)
        .batch_size(BATCH)
        .shuffle(true)
        .seed(0)
        .num_workers(workers)
}

/// `count` tensors of 16 elements that are trained, each with a gradient of its shape.
pub(crate) fn small_parameters(count: usize) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let options = (Kind::Float, Device::Cpu);
    let parameters = (0..count).map(|_| Ok(Tensor::f_ones([16], options)?.set_requires_grad(true)));
    let gradients = (0..count).map(|_| Ok(Tensor::f_full([16], 0.5, options)?));
    Ok((
        parameters.collect::<Result<_>>()?,
        gradients.collect::<Result<_>>()?,
    ))
}

fn size(length: usize) -> Result<i64> {
    i64::try_from(length).map_err(Error::data)
}
