//! Twenty steps of fine-tuning through the whole library, against the losses of PyTorch.
//!
//! `tests/parity/record.py` recorded them from transformers' BERT, on one process and, with
//! `DistributedDataParallel` over Gloo, on two. In shards, [`sharded`] and [`sharded_checkpoint`]
//! compare with `fully_shard`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may panic, and says how exact it was"
)]

mod pipelined;
mod sharded;
mod sharded_checkpoint;

use std::path::{Path, PathBuf};

use accelerate::nn::{Factory, Forward, Module};
use accelerate::optim::{AdamW, AdamWConfig, Optimizer, Scheduler, linear_schedule_with_warmup};
use accelerate::{Accelerator, Result};
use accelerate_models::PretrainedModel;
use accelerate_models::bert::{BertForSequenceClassification, BertInput};
use accelerate_testkit::{Rank, ranks};
use accelerate_torch::storage::with_bytes;
use serde_json::Value;
use tch::Tensor;

/// Relative; the recorded machine's matrix kernels may differ in the last bits.
const TOLERANCE: f64 = 1e-6;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/fixtures")
}

fn recorded(name: &str) -> Value {
    let text = std::fs::read(fixtures().join(name)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// A list of numbers, or of lists of them, as int64.
fn integers(value: &Value) -> Tensor {
    let rows = value.as_array().unwrap();
    if rows.iter().all(Value::is_number) {
        let values: Vec<i64> = rows.iter().map(|number| number.as_i64().unwrap()).collect();
        return Tensor::from_slice(&values);
    }
    Tensor::stack(&rows.iter().map(integers).collect::<Vec<_>>(), 0)
}

fn input(batch: &Value) -> BertInput {
    BertInput {
        input_ids: integers(&batch["input_ids"]),
        attention_mask: Some(integers(&batch["attention_mask"])),
        token_type_ids: Some(integers(&batch["token_type_ids"])),
        labels: Some(integers(&batch["labels"])),
    }
}

/// The recorded starting point, in a folder as the hub has them.
fn starting_model(recorded: &Value) -> BertForSequenceClassification {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("config.json"),
        recorded["model"].to_string(),
    )
    .unwrap();
    std::fs::copy(
        fixtures().join("bert_tiny.safetensors"),
        folder.path().join("model.safetensors"),
    )
    .unwrap();
    let model =
        BertForSequenceClassification::from_folder(folder.path(), &Factory::default()).unwrap();
    model.train(true);
    model
}

fn parameters(model: &dyn Module) -> Vec<Tensor> {
    model
        .parameters()
        .into_iter()
        .map(|one| one.tensor().shallow_clone())
        .collect()
}

/// Every rank has the bytes of rank 0.
fn assert_equal_weights(
    accelerator: &Accelerator,
    parameters: &[Tensor],
    step: usize,
) -> Result<()> {
    let Some(group) = accelerator.state().process_group() else {
        return Ok(());
    };
    let mut own = Vec::new();
    for parameter in parameters {
        with_bytes(&parameter.detach(), |bytes| own.extend_from_slice(bytes))?;
    }
    let all = group.all_gather_bytes(&own)?;
    assert!(
        all.iter().all(|bytes| *bytes == all[0]),
        "weights differ after step {step}"
    );
    Ok(())
}

fn finetune(rank: Rank) -> Result<()> {
    tch::set_num_threads(1);
    let recorded = recorded("bert_finetune.json");
    let runs = recorded["runs"].as_array().unwrap();
    let run = runs
        .iter()
        .find(|run| run["world_size"] == rank.world())
        .unwrap();
    let expected = &run["ranks"][rank.index()];
    let training = &recorded["training"];
    let setting = |key: &str| training[key].as_f64().unwrap();

    let model = starting_model(&recorded);
    let config = AdamWConfig {
        lr: setting("lr"),
        weight_decay: setting("weight_decay"),
        ..AdamWConfig::default()
    };
    let optimizer = AdamW::new(parameters(&model), config)?;
    let count = |key: &str| training[key].as_u64().unwrap();
    let scheduler = linear_schedule_with_warmup(&optimizer, count("warmup_steps"), count("steps"));
    // The recorded loop steps its schedule once per update, whatever the number of processes.
    let accelerator = Accelerator::builder()
        .step_scheduler_with_optimizer(false)
        .build()?;
    assert_eq!(accelerator.num_processes(), rank.world());
    let (model, mut optimizer, mut scheduler) =
        accelerator.prepare((model, optimizer, scheduler))?;
    let trained = parameters(&*model);

    let mut exact = 0;
    let batches = recorded["batches"].as_array().unwrap();
    for (step, batch) in batches.iter().enumerate() {
        assert_eq!(
            scheduler.last_lr()[0],
            expected["lr"][step].as_f64().unwrap()
        );
        let loss = model.call(input(&batch[rank.index()]))?.loss.unwrap();
        accelerator.backward(&loss)?;
        optimizer.step()?;
        scheduler.step()?;
        optimizer.zero_grad()?;
        let (found, wanted) = (
            loss.double_value(&[]),
            expected["losses"][step].as_f64().unwrap(),
        );
        assert!(
            (found - wanted).abs() <= TOLERANCE * wanted,
            "step {step}: {found}, not {wanted}"
        );
        exact += usize::from(found == wanted);
        assert_equal_weights(&accelerator, &trained, step)?;
    }
    assert_eq!(batches.len(), 20);
    println!(
        "rank {}: {exact} of 20 losses equal to the last bit",
        rank.index()
    );
    Ok(())
}

#[test]
fn parity_of_twenty_losses_on_one_process_and_on_two() {
    ranks(&[1, 2], finetune);
}
