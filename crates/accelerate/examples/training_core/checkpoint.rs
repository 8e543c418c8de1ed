//! Saving and loading the state of a training, beside plain writes of as many bytes.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use accelerate::checkpoint::{ProjectConfiguration, SaveStateOptions, Verify};
use accelerate::nn::{Factory, Init, Linear, Module as _, SequentialOf};
use accelerate::optim::{AcceleratedOptimizer, AdamW, AdamWConfig, Optimizer as _};
use accelerate::{Accelerator, Error, PreparedModel, Result};
use tch::{Kind, Tensor};

use crate::measures::{Measures, median};

/// The width of a layer, which has no bias.
const WIDTH: i64 = 1024;
/// The weights of a layer in float32, and two moments of each.
const LAYER_BYTES: usize = 3 * 4 * 1024 * 1024;
/// How often everything is done.
const TIMES: usize = 3;
/// What plain writes hand to the system at a time.
const PIECE: usize = 8 << 20;

/// Measures with so many megabytes of weights and moments, in a folder that is made for it.
pub(crate) fn run(folder: &Path, megabytes: usize, measures: &mut Measures) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::data)?;
    let layers = (megabytes * 1_000_000).div_ceil(LAYER_BYTES);
    measures.check("layers", layers as f64);
    let target = folder.join("saved");
    measures.time(
        "plain_write_s",
        plain_writes(&target, layers * LAYER_BYTES)?,
    );
    let job = Job::new(layers, Verify::Hashes)?;
    measures.time("save_s", job.saves(&target)?);
    let (first, later) = job.stalls(&target)?;
    measures.time("first_stall_s", first);
    measures.time("stall_s", later);
    job.accelerator.save_state(Some(&target))?;
    let saved = job.mean()?;
    measures.time("load_s", job.loads(&target)?);
    measures.check("restored", f64::from(job.mean()? == saved));
    drop(job);
    let job = Job::new(layers, Verify::Sizes)?;
    measures.time("load_unverified_s", job.loads(&target)?);
    fs::remove_dir_all(folder).map_err(Error::data)
}

struct Job {
    accelerator: Accelerator,
    model: PreparedModel<SequentialOf<Linear>>,
    _optimizer: AcceleratedOptimizer<AdamW>,
}

impl Job {
    /// A model and an optimizer that has stepped once.
    fn new(layers: usize, verify: Verify) -> Result<Self> {
        let project = ProjectConfiguration {
            verify,
            ..ProjectConfiguration::default()
        };
        let accelerator = Accelerator::builder()
            .cpu(true)
            .project_config(project)
            .build()?;
        let factory = Factory::default().with_init(Init::Skip);
        let mut made = Vec::with_capacity(layers);
        for number in 1..=layers {
            let layer = Linear::without_bias(WIDTH, WIDTH, &factory)?;
            let mut weight = layer.weight.tensor().shallow_clone();
            let _filled = tch::no_grad(|| weight.f_fill_(number as f64 * 1e-3))?;
            made.push(layer);
        }
        let model = SequentialOf::new(made);
        let weights = model.parameters().into_iter();
        let weights: Vec<Tensor> = weights.map(|one| one.tensor().shallow_clone()).collect();
        let optimizer = AdamW::new(weights, AdamWConfig::default())?;
        let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
        for parameter in model.parameters() {
            let loss = parameter.tensor().f_mean(Kind::Float)?;
            accelerator.backward(&loss)?;
        }
        optimizer.step()?;
        optimizer.zero_grad()?;
        Ok(Self {
            accelerator,
            model,
            _optimizer: optimizer,
        })
    }

    fn saves(&self, target: &Path) -> Result<f64> {
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            clear(target)?;
            let start = Instant::now();
            self.accelerator.save_state(Some(target))?;
            times.push(start.elapsed());
        }
        Ok(median(times))
    }

    /// How long training stands still for a save in the background: for the first, and later.
    fn stalls(&self, target: &Path) -> Result<(f64, f64)> {
        let mut times = Vec::with_capacity(TIMES + 1);
        for _ in 0..=TIMES {
            clear(target)?;
            let start = Instant::now();
            let save = self
                .accelerator
                .save_state_in_background(Some(target), SaveStateOptions::default())?;
            times.push(start.elapsed());
            save.wait()?;
        }
        let first = times.remove(0);
        Ok((first.as_secs_f64(), median(times)))
    }

    fn loads(&self, target: &Path) -> Result<f64> {
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let start = Instant::now();
            self.accelerator.load_state(Some(target))?;
            times.push(start.elapsed());
        }
        Ok(median(times))
    }

    fn mean(&self) -> Result<f64> {
        let parameters = self.model.parameters().into_iter();
        let means = parameters
            .map(|one| -> Result<Tensor> { Ok(one.tensor().f_detach()?.f_mean(Kind::Double)?) });
        let means = means.collect::<Result<Vec<_>>>()?;
        Ok(Tensor::f_stack(&means, 0)?
            .f_mean(Kind::Double)?
            .f_double_value(&[])?)
    }
}

/// Nothing is at the target, and the disk has nothing else to do.
fn clear(target: &Path) -> Result<()> {
    let removed = match fs::metadata(target) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(target),
        Ok(_) => fs::remove_file(target),
        Err(_) => Ok(()),
    };
    removed.map_err(Error::data)?;
    rustix::fs::sync();
    Ok(())
}

/// As many bytes in large writes into one file, down to the disk.
fn plain_writes(target: &Path, bytes: usize) -> Result<f64> {
    let piece = vec![0x5a; PIECE];
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        clear(target)?;
        times.push(plain_write(target, bytes, &piece).map_err(Error::data)?);
    }
    clear(target)?;
    Ok(median(times))
}

fn plain_write(target: &Path, bytes: usize, piece: &[u8]) -> io::Result<Duration> {
    let start = Instant::now();
    let mut file = File::create(target)?;
    let mut left = bytes;
    while left > 0 {
        let next = piece.get(..left).unwrap_or(piece);
        file.write_all(next)?;
        left -= next.len();
    }
    file.sync_all()?;
    Ok(start.elapsed())
}
