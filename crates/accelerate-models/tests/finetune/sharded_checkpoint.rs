//! Going on from what PyTorch's `fully_shard` (FSDP2) saved on other numbers of ranks.

use std::time::Duration;

use accelerate::nn::{Factory, Forward};
use accelerate::optim::{AdamW, AdamWConfig, Optimizer};
use accelerate::{Accelerator, Result};
use accelerate_models::decoder::CausalLmInput;
use accelerate_models::llama::{LlamaConfig, LlamaForCausalLM};
use accelerate_models::{PretrainedConfig, PretrainedModel};
use accelerate_plan::parallel::Sharded;
use accelerate_testkit::{Rank, ranks_within};
use serde_json::Value;
use tch::Kind;

use crate::sharded::{close, plan, whole};
use crate::{fixtures, integers, parameters, recorded};

/// Relative. Llama's own last digits are not those of transformers, and five steps let that grow.
const TOLERANCE: f64 = 1e-5;

const STAGES: [Sharded; 4] = [
    Sharded::Nothing,
    Sharded::OptimizerState,
    Sharded::Gradients,
    Sharded::Parameters,
];

fn new_model(recorded: &Value) -> LlamaForCausalLM {
    let mut config: LlamaConfig = serde_json::from_value(recorded["config"].clone()).unwrap();
    config.settle();
    LlamaForCausalLM::new(&config, &Factory::default()).unwrap()
}

/// Loads a folder into a new model, and trains on.
fn go_on(rank: Rank, recorded: &Value, checkpoint: &Value, sharded: Sharded) -> Result<()> {
    let accelerator = Accelerator::builder()
        .cpu(true)
        .parallel_plan(plan(rank, sharded, &recorded["class"]))
        .build()?;
    let model = new_model(recorded);
    // With other settings than the recorded ones, which come with the state.
    let optimizer = AdamW::new(parameters(&model), AdamWConfig::default())?;
    let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
    let in_shards = rank.world() > 1 && sharded != Sharded::Nothing;
    assert_eq!(model.sharded().is_some(), in_shards);
    let folder = fixtures().join(checkpoint["folder"].as_str().unwrap());
    accelerator.load_state(Some(&folder))?;

    for (name, tensor) in whole(&model)? {
        let sum = tensor.sum(Kind::Double).double_value(&[]);
        let wanted = checkpoint["sums"][&name].as_f64().unwrap();
        close(sum, wanted, 1e-6, &name);
    }
    let batches = recorded["batches"].as_array().unwrap();
    let losses = checkpoint["losses"].as_array().unwrap();
    assert_eq!(batches.len(), losses.len());
    for (batch, wanted) in batches.iter().zip(losses) {
        let ids = integers(batch);
        let output = model.call(CausalLmInput::new(&ids).with_labels(&ids))?;
        let loss = output.loss.unwrap();
        accelerator.backward(&loss)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        let wanted = wanted.as_f64().unwrap();
        close(loss.double_value(&[]), wanted, TOLERANCE * wanted, "loss");
    }
    Ok(())
}

fn go_on_from_all(rank: Rank) -> Result<()> {
    tch::set_num_threads(1);
    let recorded = recorded("sharded_checkpoints.json");
    let checkpoints = recorded["checkpoints"].as_array().unwrap();
    assert_eq!(checkpoints.len(), 2);
    for checkpoint in checkpoints {
        // A process by itself trains the whole model, whatever the stage; three share two processors.
        let stages = match rank.world() {
            2 => &STAGES[..],
            _ => &STAGES[2..],
        };
        for &sharded in stages {
            go_on(rank, &recorded, checkpoint, sharded)?;
        }
    }
    Ok(())
}

#[test]
fn parity_of_losses_behind_what_other_numbers_of_ranks_saved() {
    ranks_within(Duration::from_secs(120), &[1, 2, 3], go_on_from_all);
}
