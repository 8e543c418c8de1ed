//! What gathering metrics costs: labels and scores of a batch, in a loop whose last batch is filled up.

use std::time::Instant;

use accelerate::data::DataLoader;
use accelerate::{Accelerator, Result};
use tch::{Kind, Tensor};

use super::measures::{Measures, median};

const BATCH: usize = 64;
const STEPS: usize = 400;
/// Of the last step of both ranks so many samples are no repetition.
const LEFT: usize = 7;

/// Times each call on each step.
pub(crate) fn run(accelerator: &Accelerator, measures: &mut Measures) -> Result<()> {
    let ranks = accelerator.num_processes();
    let samples = (STEPS * ranks * BATCH + LEFT) as i64;
    let loader = DataLoader::builder((0..samples).collect::<Vec<i64>>())
        .batch_size(BATCH)
        .build()?;
    let loader = accelerator.prepare(loader)?;
    let (mut label_times, mut score_times) = (Vec::new(), Vec::new());
    let (mut sum, mut rows) = (0, 0);
    for batch in &loader {
        let labels = batch?;
        let scores = labels.f_unsqueeze(1)?.f_to_kind(Kind::Float)?;
        let scores: Tensor = scores.f_repeat([1, 128])?;

        let start = Instant::now();
        let labels = accelerator.gather_for_metrics(&labels)?;
        label_times.push(start.elapsed());

        let start = Instant::now();
        let scores = accelerator.gather_for_metrics(&scores)?;
        score_times.push(start.elapsed());

        sum += labels.f_sum(Kind::Int64)?.f_int64_value(&[])?;
        rows += scores.size()[0];
    }
    measures.time("gather_labels_s", median(label_times));
    measures.time("gather_scores_s", median(score_times));
    measures.check("gathered_sum", sum as f64);
    measures.check("gathered_rows", rows as f64);
    Ok(())
}
