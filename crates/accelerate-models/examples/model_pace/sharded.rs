//! Training steps of one model on several ranks: whole on each, or in shards.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::Instant;

use accelerate::nn::{Forward, Module};
use accelerate::optim::{AcceleratedOptimizer, AdamW, AdamWConfig, Optimizer};
use accelerate::{Accelerator, PreparedModel};
use accelerate_models::PretrainedModel;
use accelerate_models::decoder::CausalLmInput;
use accelerate_models::llama::LlamaForCausalLM;
use accelerate_plan::parallel::Sharded;
use serde::Deserialize;
use tch::Tensor;

use super::measures::{Measures, median, written};
use super::shapes::Shape;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Where the sizes are, from the workspace's root.
const SIZES: &str = "tests/parity/bench_sharded.json";

/// What the names of parameters in units begin with; the root has the others.
const BLOCKS: &str = "model.layers.";

const LEARNING_RATE: f64 = 1e-4;

/// So many losses are compared with the other side's.
const COMPARED: usize = 3;

/// One size, and how many steps are made of it.
#[derive(Debug, Deserialize)]
struct Setting {
    warm_up: usize,
    steps: usize,
    #[serde(flatten)]
    shape: Shape,
}

/// Trains as the launcher's flags say, and writes what was measured to `PATH.rankN.json`.
pub(crate) fn run(part: &str, size: &str, path: &Path) -> Outcome<()> {
    let wanted = match part {
        "ddp" => Sharded::Nothing,
        "shard_grad_op" => Sharded::Gradients,
        "full_shard" => Sharded::Parameters,
        other => return Err(format!("expected the name of a part, found `{other}`").into()),
    };
    let setting = setting(size)?;
    let accelerator = Accelerator::builder().cpu(true).build()?;
    let model: LlamaForCausalLM = setting.shape.model()?;
    model.train(true);
    let counts = Counts::of(&model);
    let optimizer = optimizer(&model)?;
    let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
    check_plan(&model, wanted)?;

    let mut measures = Measures::default();
    let made = steps(&accelerator, &model, &mut optimizer, &setting)?;
    measures.check(format!("{part}_parameters"), counts.all as f64);
    for (number, loss) in made.losses.iter().take(COMPARED).enumerate() {
        let name = format!("{part}_loss_{}", number + 1);
        measures.check(name, (loss * 100.0).round());
    }
    measures.time(format!("{part}_step_s"), made.seconds);
    measures.bytes(format!("{part}_sent_bytes"), made.sent_bytes);
    let theory = counts.bytes_to_send(wanted, accelerator.num_processes() as u64);
    measures.bytes(format!("{part}_theory_bytes"), theory);
    measures.bytes(format!("{part}_peak_bytes"), peak_memory()?);
    measures.write(path, accelerator.process_index())?;
    Ok(accelerator.wait_for_everyone()?)
}

fn setting(size: &str) -> Outcome<Setting> {
    let text = fs::read_to_string(SIZES).map_err(|error| format!("`{SIZES}`: {error}"))?;
    let mut sizes: BTreeMap<String, Setting> = serde_json::from_str(&text)?;
    let known: Vec<String> = sizes.keys().cloned().collect();
    let found = sizes.remove(size);
    Ok(found.ok_or_else(|| format!("no size `{size}`; there are {}", known.join(", ")))?)
}

fn optimizer(model: &LlamaForCausalLM) -> accelerate::Result<AdamW> {
    let parameters: Vec<Tensor> = model
        .parameters()
        .iter()
        .map(|parameter| parameter.tensor().shallow_clone())
        .collect();
    let config = AdamWConfig {
        lr: LEARNING_RATE,
        ..AdamWConfig::default()
    };
    AdamW::new(parameters, config)
}

/// The launcher's flags have to reach the model: else the numbers would be those of something else.
fn check_plan(model: &PreparedModel<LlamaForCausalLM>, wanted: Sharded) -> Outcome<()> {
    let found = model
        .sharded()
        .map_or(Sharded::Nothing, |shards| shards.plan().sharded);
    if found != wanted {
        let text = format!("the flags are to shard `{wanted}`, and the model shards `{found}`");
        return Err(text.into());
    }
    let layers = model.config().num_hidden_layers;
    match model.sharded().map(|shards| shards.units().len()) {
        Some(units) if units != layers + 1 => {
            let text = format!("expected a unit for each of {layers} layers and one for the rest");
            Err(format!("{text}, found {units}").into())
        }
        _ => Ok(()),
    }
}

/// What came of the steps.
struct Steps {
    losses: Vec<f64>,
    /// The median.
    seconds: f64,
    /// By this rank, in a step: the median.
    sent_bytes: u64,
}

fn steps(
    accelerator: &Accelerator,
    model: &PreparedModel<LlamaForCausalLM>,
    optimizer: &mut AcceleratedOptimizer<AdamW>,
    setting: &Setting,
) -> Outcome<Steps> {
    let ids = setting.shape.token_ids_of(accelerator.process_index())?;
    let (mut losses, mut times, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..setting.warm_up + setting.steps {
        let (before, start) = (written()?, Instant::now());
        let output = model.call(CausalLmInput::new(&ids).with_labels(&ids))?;
        let loss = output.loss.ok_or("a batch without labels")?;
        accelerator.backward(&loss)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        losses.push(loss.f_double_value(&[])?);
        if number >= setting.warm_up {
            times.push(start.elapsed());
            sent.push(written()? - before);
        }
    }
    sent.sort_unstable();
    Ok(Steps {
        losses,
        seconds: median(times),
        sent_bytes: sent.get(sent.len() / 2).copied().unwrap_or(0),
    })
}

/// How many numbers the model has.
struct Counts {
    all: u64,
    /// Of them in blocks, which are units of their own.
    in_blocks: u64,
}

impl Counts {
    fn of(model: &LlamaForCausalLM) -> Self {
        let (mut all, mut in_blocks) = (0, 0);
        for (name, parameter) in model.named_parameters() {
            let count = parameter.numel() as u64;
            all += count;
            if name.starts_with(BLOCKS) {
                in_blocks += count;
            }
        }
        Self { all, in_blocks }
    }

    /// What a rank has to send in a step, in bytes.
    ///
    /// Where everything goes around once, each rank sends all but the part that it keeps: weights
    /// that are gathered, and gradients that are added up in parts. Sums that are to be whole on
    /// every rank go around once more, and so do blocks that are dropped after the forward pass.
    fn bytes_to_send(&self, sharded: Sharded, ranks: u64) -> u64 {
        let once = |numbers: u64| 4 * numbers * (ranks - 1) / ranks;
        match sharded {
            Sharded::Nothing | Sharded::OptimizerState | Sharded::Gradients => 2 * once(self.all),
            Sharded::Parameters => 2 * once(self.all) + once(self.in_blocks),
        }
    }
}

/// The most memory that this process held, in bytes; only Linux tells.
fn peak_memory() -> Outcome<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|line| line.trim().strip_suffix(" kB"));
    let kibibytes: u64 = line.ok_or("no `VmHWM` in `/proc/self/status`")?.parse()?;
    Ok(kibibytes * 1024)
}
