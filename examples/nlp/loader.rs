//! The order and the batches in which snippets are read.

use accelerate::data::{DataLoader, LengthGroupedSampler};

use crate::arguments::Arguments;
use crate::batches::Batches;
use crate::snippets::Snippet;

/// Batches of snippets, made one step ahead by a thread.
pub(crate) type Loader = DataLoader<Vec<Snippet>, Batches>;

/// The part to train on, in an order that is new in every epoch.
pub(crate) fn shuffled(
    snippets: Vec<Snippet>,
    arguments: &Arguments,
    collate: Batches,
) -> accelerate::Result<Loader> {
    let by_length = arguments
        .group_by_length
        .then(|| grouped_by_length(&snippets, arguments, &collate))
        .transpose()?;
    let builder = DataLoader::builder(snippets).batch_size(arguments.batch_size.get());
    let builder = match by_length {
        Some(sampler) => builder.sampler(sampler),
        None => builder.shuffle(true),
    };
    builder.collate(collate).num_workers(1).build()
}

/// The held-out part, in its own order.
pub(crate) fn in_order(
    snippets: Vec<Snippet>,
    arguments: &Arguments,
    collate: Batches,
) -> accelerate::Result<Loader> {
    DataLoader::builder(snippets)
        .batch_size(arguments.batch_size.get())
        .collate(collate)
        .num_workers(1)
        .build()
}

fn grouped_by_length(
    snippets: &[Snippet],
    arguments: &Arguments,
    collate: &Batches,
) -> accelerate::Result<LengthGroupedSampler> {
    let encodings = collate.encode(snippets)?;
    let lengths = encodings.iter().map(|encoding| encoding.ids.len());
    LengthGroupedSampler::new(lengths.collect(), arguments.batch_size)
}
