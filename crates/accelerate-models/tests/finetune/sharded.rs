//! Fine-tuning in shards, against the losses and weights of PyTorch's `fully_shard` (FSDP2).

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use accelerate::nn::{Forward, Module};
use accelerate::optim::{AdamW, AdamWConfig, Optimizer};
use accelerate::{Accelerator, PreparedModel, Result};
use accelerate_models::bert::BertForSequenceClassification;
use accelerate_plan::parallel::{Mesh, ParallelPlan, Sharded, WrapPolicy};
use accelerate_testkit::{Rank, ranks_within};
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::{TOLERANCE, input, parameters, recorded, starting_model};

/// How far norms and numbers of parameters may be from the recorded ones.
///
/// Clipping multiplies by a norm whose squares are added up in another order, and three ranks add
/// gradients up in another order; AdamW divides by the size of a gradient, so a last digit of a small
/// one counts as much as that of a large one.
const WEIGHTS_APART: f64 = 2e-5;

const STAGES: [Sharded; 3] = [
    Sharded::OptimizerState,
    Sharded::Gradients,
    Sharded::Parameters,
];

pub(crate) fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

/// Shards over all ranks, with a unit for each module of a class.
pub(crate) fn plan(rank: Rank, sharded: Sharded, class: &Value) -> ParallelPlan {
    let mut plan = ParallelPlan::new(Mesh::sharded(count(rank.world())), sharded);
    plan.wrap = WrapPolicy::Classes(vec![class.as_str().unwrap().to_owned()]);
    plan
}

/// Copies of the whole parameters.
pub(crate) fn whole<M: Module>(model: &PreparedModel<M>) -> Result<HashMap<String, Tensor>> {
    model.with_whole_parameters(false, |model| {
        let own = model.named_parameters().into_iter();
        own.map(|(name, one)| Ok((name, one.tensor().f_detach_copy()?)))
            .collect()
    })
}

pub(crate) fn close(found: f64, wanted: f64, apart: f64, what: &str) {
    assert!(
        (found - wanted).abs() <= apart,
        "{what}: {found}, not {wanted}"
    );
}

/// Ranks behind the second read the batches of the first two, half a round later.
fn batch(base: &Value, number: usize, rank: Rank) -> &Value {
    let batches = base["batches"].as_array().unwrap();
    let step = (number + 10 * (rank.index() / 2)) % batches.len();
    &batches[step][rank.index() % 2]
}

/// What all runs have in common.
struct Recordings {
    /// Model, first weights and batches.
    base: Value,
    /// Losses in shards.
    sharded: Value,
}

impl Recordings {
    fn optimizer(&self, model: &BertForSequenceClassification) -> Result<AdamW> {
        let setting = |key: &str| self.sharded["training"][key].as_f64().unwrap();
        let config = AdamWConfig {
            lr: setting("lr"),
            weight_decay: setting("weight_decay"),
            ..AdamWConfig::default()
        };
        AdamW::new(parameters(model), config)
    }

    /// Trains as one run did; answers how many losses were equal to the last bit.
    fn repeat(&self, rank: Rank, run: &Value, sharded: Sharded) -> Result<usize> {
        let accumulation = run["accumulation"].as_u64().unwrap();
        let accelerator = Accelerator::builder()
            .cpu(true)
            .gradient_accumulation_steps(count(usize::try_from(accumulation).unwrap()))
            .parallel_plan(plan(rank, sharded, &self.sharded["class"]))
            .build()?;
        let model = starting_model(&self.base);
        let optimizer = self.optimizer(&model)?;
        let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
        // A process by itself has nobody to share with.
        assert_eq!(model.sharded().is_some(), rank.world() > 1);
        let losses = run["ranks"][rank.index()]["losses"].as_array().unwrap();
        let mut norms = run["grad_norms"].as_array().unwrap().iter();
        let mut exact = 0;
        for (number, wanted) in losses.iter().enumerate() {
            let _batch = accelerator.accumulate(&model)?;
            let inputs = input(batch(&self.base, number, rank));
            let loss = model.call(inputs)?.loss.unwrap();
            accelerator.backward(&loss)?;
            if let Some(max_norm) = run["max_norm"].as_f64()
                && let Some(norm) = accelerator.clip_grad_norm(model.parameters(), max_norm)?
            {
                let wanted = norms.next().unwrap().as_f64().unwrap();
                close(norm.double_value(&[]), wanted, 1e-5 * wanted, "norm");
            }
            optimizer.step()?;
            optimizer.zero_grad()?;
            let (found, wanted) = (loss.double_value(&[]), wanted.as_f64().unwrap());
            close(found, wanted, TOLERANCE * wanted, "loss");
            exact += usize::from(found == wanted);
        }
        assert!(norms.next().is_none());
        self.compare_weights(run, &whole(&model)?);
        Ok(exact)
    }

    fn compare_weights(&self, run: &Value, found: &HashMap<String, Tensor>) {
        let names = self.sharded["parameters"].as_array().unwrap();
        assert!(names.len() > 40);
        for (place, name) in names.iter().enumerate() {
            let name = name.as_str().unwrap();
            let tensor = found[name].to_kind(Kind::Double);
            let number = |field: &str| run[field][place].as_f64().unwrap();
            let norm = tensor.norm().double_value(&[]);
            close(norm, number("norms"), WEIGHTS_APART, name);
            let first = tensor.reshape([-1]).double_value(&[0]);
            close(first, number("first_values"), WEIGHTS_APART, name);
        }
    }
}

fn repeat_all(rank: Rank) -> Result<()> {
    tch::set_num_threads(1);
    let recordings = Recordings {
        base: recorded("bert_finetune.json"),
        sharded: recorded("sharded.json"),
    };
    let all = recordings.sharded["runs"].as_array().unwrap().iter();
    let runs: Vec<&Value> = all
        .filter(|run| run["world_size"] == rank.world())
        .collect();
    assert_eq!(runs.len(), 3);
    // A process by itself trains the whole model, whatever the stage; three share two processors.
    let stages = match rank.world() {
        2 => &STAGES[..],
        _ => &STAGES[2..],
    };
    for run in runs {
        for &sharded in stages {
            let exact = recordings.repeat(rank, run, sharded)?;
            println!(
                "rank {} of {}, {sharded}, {} batches a step, norm {}: {exact} losses equal to the \
                 last bit",
                rank.index(),
                rank.world(),
                run["accumulation"],
                run["max_norm"]
            );
        }
    }
    Ok(())
}

#[test]
fn parity_of_losses_and_weights_in_shards() {
    ranks_within(Duration::from_secs(180), &[1, 2, 3], repeat_all);
}
