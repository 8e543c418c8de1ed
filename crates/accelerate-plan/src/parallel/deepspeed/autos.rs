//! What fills in the values that are `auto`.

use super::{
    OptimizerRole, Roles, SchedulerRole,
    document::{Document, number},
};
use crate::{
    config::Value,
    parallel::{GivenOptimizer, GivenScheduler, JobFacts, PlanError, PrepareFacts, UnresolvedAuto},
    settings::Origin,
};

type Result<T> = std::result::Result<T, PlanError>;

/// Gives a key that is `auto` a value, and says where that is from.
pub(super) fn fill(document: &mut Document, key: &str, value: Value, how: &str) {
    if document.is_auto(key) {
        document.set(key, value, Origin::Detected(how.to_owned()));
    }
}

pub(super) fn int(number: u64) -> Value {
    i64::try_from(number).map_or_else(|_| Value::Text(number.to_string()), Value::Int)
}

/// What does not depend on anything.
pub(super) fn fill_constants(document: &mut Document) {
    let how = "what `auto` means";
    for (key, value) in [
        ("gradient_clipping", Value::Float(1.0)),
        (
            "zero_optimization.stage3_gather_16bit_weights_on_model_save",
            Value::Bool(false),
        ),
        (
            "zero_optimization.stage3_max_live_parameters",
            Value::Int(1_000_000_000),
        ),
        (
            "zero_optimization.stage3_max_reuse_distance",
            Value::Int(1_000_000_000),
        ),
    ] {
        fill(document, key, value, how);
    }
}

/// Keys that depend on the hidden size.
static BY_HIDDEN_SIZE: [&str; 3] = [
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
];

pub(super) fn fill_by_hidden_size(document: &mut Document, facts: &PrepareFacts) {
    let Some(hidden) = facts.hidden_size() else {
        return;
    };
    let square = hidden.saturating_mul(hidden);
    // As Python's `int(0.9 * h * h)`, which multiplies from the left.
    let most = 0.9 * hidden as f64 * hidden as f64;
    let how = format!("hidden size {hidden}");
    let values = [square, most as u64, hidden.saturating_mul(10)];
    for (key, value) in BY_HIDDEN_SIZE.into_iter().zip(values) {
        fill(document, key, int(value), &how);
    }
}

pub(super) fn fill_optimizer(document: &mut Document, given: GivenOptimizer) {
    let GivenOptimizer::Dummy { lr, weight_decay } = given else {
        return;
    };
    let how = "the `DummyOptim`";
    fill(document, "optimizer.params.lr", Value::Float(lr), how);
    let key = "optimizer.params.weight_decay";
    fill(document, key, Value::Float(weight_decay), how);
}

pub(super) fn fill_scheduler(document: &mut Document, job: &JobFacts, facts: &PrepareFacts) {
    let GivenScheduler::Dummy {
        total_num_steps,
        warmup_num_steps,
        ..
    } = facts.scheduler
    else {
        return;
    };
    let how = "the `DummyScheduler`";
    let key = |name: &str| format!("scheduler.params.{name}");
    fill(document, &key("warmup_min_lr"), Value::Int(0), how);
    fill(
        document,
        &key("warmup_num_steps"),
        int(warmup_num_steps),
        how,
    );
    let of_config = document.get("optimizer.params.lr").and_then(number);
    if let Some(lr) = of_config.or(facts.optimizer.lr()) {
        let how = "the learning rate of the optimizer";
        fill(document, &key("warmup_max_lr"), Value::Float(lr), how);
    }
    if let Some(total) = total_num_steps {
        let steps = match facts.split_batches {
            true => total,
            false => total.div_ceil(job.world_size.get() as u64),
        };
        fill(document, &key("total_num_steps"), int(steps), how);
    }
}

/// Refuses keys that are still open. What nobody uses may stay open.
pub(super) fn unless_open(document: &Document, roles: Roles) -> Result<()> {
    let is_used = |key: &String| {
        let is_unused_optimizer =
            key.starts_with("optimizer.") && roles.optimizer == OptimizerRole::Nobody;
        let is_unused_scheduler =
            key.starts_with("scheduler.") && roles.scheduler == SchedulerRole::Nobody;
        !is_unused_optimizer && !is_unused_scheduler
    };
    let open = document.autos().into_iter().filter(is_used);
    let keys: Vec<_> = open
        .map(|key| UnresolvedAuto {
            origin: document.origin(&key),
            needs: needs(&key),
            key,
        })
        .collect();
    match keys.is_empty() {
        true => Ok(()),
        false => Err(PlanError::Unresolved { keys }),
    }
}

/// What would say what a key is.
fn needs(key: &str) -> &'static str {
    match key {
        key if BY_HIDDEN_SIZE.contains(&key) => {
            "the hidden size of the model, which its configuration does not say"
        }
        "optimizer.params.lr" | "optimizer.params.weight_decay" => "a `DummyOptim` in its place",
        "scheduler.params.total_num_steps" => "a `DummyScheduler` with the number of steps in all",
        "scheduler.params.warmup_min_lr"
        | "scheduler.params.warmup_max_lr"
        | "scheduler.params.warmup_num_steps" => "a `DummyScheduler` in its place",
        _ => "a value: nothing fills it in",
    }
}
