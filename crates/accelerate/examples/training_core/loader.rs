//! How fast batches come out of a prepared loader.

use std::cell::RefCell;
use std::time::Instant;

use accelerate::data::Dataset;
use accelerate::{Accelerator, Result};
use tch::{Kind, Tensor};

use super::measures::{Measures, median_of};
use super::workload::{BATCH, TextBatch, images, pad, shuffled, texts};

const TEXTS: usize = 20_480;
const IMAGES: usize = 10_240;
const EPOCHS: usize = 3;

/// Tokenised texts and images, read by the loop itself and by two workers.
pub(crate) fn run(accelerator: &Accelerator, measures: &mut Measures) -> Result<()> {
    for workers in [0, 2] {
        let loader = shuffled(texts(TEXTS), workers).collate(pad).build()?;
        let loader = accelerator.prepare(loader)?;
        let measured = epochs(
            || loader.iter(),
            |batch: &TextBatch| &batch.input_ids,
            |batch| &batch.labels,
        )?;
        measured.note("text", workers, measures);

        let loader = accelerator.prepare(shuffled(images(IMAGES)?, workers).build()?)?;
        let measured = epochs(|| loader.iter(), |[pixels, _]| pixels, |[_, labels]| labels)?;
        measured.note("image", workers, measures);
    }
    measures.time("image_copy_s", copy()?);
    Ok(())
}

/// What is left of loading an image where there is nothing but its copy into a batch that exists.
fn copy() -> Result<f64> {
    const ROUNDS: usize = 200;
    let data = images(IMAGES)?;
    let pixels = |index| data.get(index).map(|[pixels, _]| pixels);
    let ready = (0..BATCH).map(pixels).collect::<Result<Vec<_>>>()?;
    let batch = Tensor::f_stack(&ready, 0)?;
    // Both closures look at it, one after the other.
    let ready = RefCell::new(ready);
    let mut next = 0;
    let time = median_of(
        ROUNDS,
        || {
            for place in ready.borrow_mut().iter_mut() {
                next = (next + 37) % IMAGES;
                *place = pixels(next)?;
            }
            Ok(())
        },
        || Ok(Tensor::f_stack_out(&batch, &ready.borrow(), 0).map(drop)?),
    )?;
    Ok(time / BATCH as f64)
}

/// What the epochs over one loader took, in seconds; the median of them.
struct Epochs {
    first_batch: f64,
    sample: f64,
    sum: f64,
}

impl Epochs {
    fn note(&self, data: &str, workers: usize, measures: &mut Measures) {
        measures.time(format!("{data}_{workers}_sample_s"), self.sample);
        measures.time(format!("{data}_{workers}_first_batch_s"), self.first_batch);
        measures.check(format!("{data}_{workers}_sum"), self.sum);
    }
}

/// The first epoch warms up and adds up what it was handed.
fn epochs<B, I: Iterator<Item = Result<B>>>(
    epoch: impl Fn() -> I,
    values: impl Fn(&B) -> &Tensor,
    labels: impl Fn(&B) -> &Tensor,
) -> Result<Epochs> {
    let mut sum = 0.0;
    for batch in epoch() {
        let batch = batch?;
        sum += values(&batch).f_sum(Kind::Double)?.f_double_value(&[])?;
        sum += labels(&batch).f_sum(Kind::Double)?.f_double_value(&[])?;
    }
    let (mut firsts, mut rests) = (Vec::new(), Vec::new());
    for _ in 0..EPOCHS {
        let start = Instant::now();
        let mut batches = epoch();
        let first = batches.next().transpose()?;
        let begun = Instant::now();
        drop(first);
        let (mut samples, mut last) = (0, begun);
        for batch in batches {
            samples += labels(&batch?).size().first().copied().unwrap_or(0);
            last = Instant::now();
        }
        firsts.push((begun - start).as_secs_f64());
        rests.push((last - begun).as_secs_f64() / samples as f64);
    }
    Ok(Epochs {
        first_batch: middle(firsts),
        sample: middle(rests),
        sum,
    })
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    values.into_iter().nth(middle).unwrap_or(f64::NAN)
}
