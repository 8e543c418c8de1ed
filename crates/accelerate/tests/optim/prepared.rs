//! Prepared optimizers and schedules, refused settings, and states that do not fit.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::num::NonZeroUsize;

use accelerate::accumulation::GradientAccumulationPlugin;
use accelerate::optim::{
    AcceleratedOptimizer, AcceleratedScheduler, AdamW, AdamWConfig, LambdaLR, LearningRates,
    Optimizer, ParamGroup, Scheduler, SchedulerStepping, Sgd, SgdConfig, StateDict, StateValue,
    linear_schedule_with_warmup,
};
use accelerate::{Error, GradientState, Result};
use accelerate_torch::autograd;
use tch::{Device, Kind, Tensor};

fn leaf() -> Tensor {
    Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true)
}

fn sgd(lr: f64) -> Sgd {
    Sgd::new(vec![leaf()], SgdConfig::new(lr)).unwrap()
}

fn ranks(num_processes: usize) -> SchedulerStepping {
    let num_processes = NonZeroUsize::new(num_processes).unwrap();
    SchedulerStepping {
        num_processes,
        ..Default::default()
    }
}

#[test]
fn nothing_moves_while_gradients_are_accumulated() {
    let state = GradientState::default();
    let weight = leaf();
    let inner = Sgd::new(vec![weight.shallow_clone()], SgdConfig::new(0.5)).unwrap();
    let mut optimizer = AcceleratedOptimizer::new(inner, state.clone());
    weight.sum(Kind::Float).backward();
    state.set_sync_gradients(false);
    optimizer.step().unwrap();
    optimizer.zero_grad().unwrap();
    assert_eq!(weight.double_value(&[0]), 1.0);
    assert_eq!(
        autograd::grad(&weight).unwrap().unwrap().double_value(&[0]),
        1.0
    );
    state.set_sync_gradients(true);
    optimizer.step().unwrap();
    optimizer.zero_grad().unwrap();
    assert_eq!(weight.double_value(&[0]), 0.5);
    assert!(autograd::grad(&weight).unwrap().is_none());
    assert!(!optimizer.step_was_skipped());
}

#[test]
fn a_schedule_makes_one_step_per_rank() {
    let state = GradientState::default();
    let optimizer = sgd(1.0);
    let inner = LambdaLR::new(&optimizer, |step| 1.0 - step as f64 / 10.0);
    let links = [optimizer.learning_rates().clone()];
    let mut schedule = AcceleratedScheduler::new(inner, &links, state.clone(), ranks(2));
    schedule.step().unwrap();
    assert_eq!(
        (schedule.last_lr(), schedule.inner().last_epoch()),
        (vec![0.8], 2)
    );
    state.set_sync_gradients(false);
    schedule.step().unwrap();
    assert_eq!(schedule.inner().last_epoch(), 2);
    state.set_sync_gradients(true);
    optimizer.learning_rates().set_skipped(true);
    schedule.step().unwrap();
    assert_eq!(schedule.inner().last_epoch(), 2);
    optimizer.learning_rates().set_skipped(false);
    schedule.step().unwrap();
    assert_eq!(schedule.inner().last_epoch(), 4);
}

/// The rule: at each update, a step for every rank and every batch that went into it.
#[test]
fn an_adjusted_schedule_counts_the_batches_of_each_update() {
    for (processes, stepping) in [
        (2, ranks(2)),
        (
            1,
            SchedulerStepping {
                split_batches: true,
                ..ranks(2)
            },
        ),
    ] {
        let plugin = GradientAccumulationPlugin {
            adjust_scheduler: true,
            ..GradientAccumulationPlugin::new(NonZeroUsize::new(3).unwrap())
        };
        let state = GradientState::with_plugin(plugin);
        let optimizer = sgd(1.0);
        let length = 8 * processes;
        let inner = linear_schedule_with_warmup(&optimizer, 0, length);
        let links = [optimizer.learning_rates().clone()];
        let mut schedule = AcceleratedScheduler::new(inner, &links, state.clone(), stepping);
        assert_eq!(schedule.steps_per_update(), 3 * processes);
        assert_eq!(schedule.ends_at_update(), Some(3));
        let mut batches = 0;
        // Eight batches, the last update of two: as long as the schedule.
        for syncs in [false, false, true, false, false, true, false, true] {
            state.set_sync_gradients(syncs);
            let before = schedule.last_lr();
            schedule.step().unwrap();
            batches += 1;
            if syncs {
                assert_eq!(schedule.inner().last_epoch(), batches * processes);
                let rest = 1.0 - batches as f64 / 8.0;
                assert!((schedule.last_lr()[0] - rest).abs() < 1e-12);
            } else {
                assert_eq!(schedule.last_lr(), before);
            }
        }
        // A skipped update takes its batches with it.
        let stood = schedule.inner().last_epoch();
        state.set_sync_gradients(false);
        schedule.step().unwrap();
        state.set_sync_gradients(true);
        optimizer.learning_rates().set_skipped(true);
        schedule.step().unwrap();
        assert_eq!(schedule.inner().last_epoch(), stood);
        optimizer.learning_rates().set_skipped(false);
        schedule.step().unwrap();
        assert_eq!(schedule.inner().last_epoch(), stood + processes);
        assert_eq!(schedule.once_per_update().steps_per_update(), 1);
    }
}

#[test]
fn a_schedule_that_is_not_adjusted_counts_updates() {
    let state = GradientState::new(NonZeroUsize::new(4).unwrap());
    let optimizer = sgd(1.0);
    let inner = LambdaLR::new(&optimizer, |_| 1.0);
    let mut schedule = AcceleratedScheduler::new(inner, &[], state.clone(), ranks(2));
    for batch in 1..=40 {
        state.set_sync_gradients(batch % 4 == 0);
        schedule.step().unwrap();
    }
    // As measured of the original: ten updates, twenty steps.
    assert_eq!(schedule.inner().last_epoch(), 20);
}

#[test]
fn split_batches_and_free_schedules_make_one_step() {
    let state = GradientState::default();
    for stepping in [
        SchedulerStepping {
            split_batches: true,
            ..ranks(3)
        },
        SchedulerStepping {
            step_with_optimizer: false,
            ..ranks(3)
        },
    ] {
        let optimizer = sgd(1.0);
        let inner = linear_schedule_with_warmup(&optimizer, 2, 10);
        let mut schedule = AcceleratedScheduler::new(inner, &[], state.clone(), stepping);
        schedule.step().unwrap();
        assert_eq!(schedule.inner().last_epoch(), 1);
        state.set_sync_gradients(false);
        schedule.step().unwrap();
        let free = !stepping.step_with_optimizer;
        assert_eq!(schedule.inner().last_epoch(), 1 + u64::from(free));
        state.set_sync_gradients(true);
    }
}

#[test]
fn a_schedule_follows_its_own_optimizer_or_all_of_them() {
    let state = GradientState::default();
    let (own, other) = (sgd(1.0), sgd(1.0));
    let links = [own.learning_rates().clone(), other.learning_rates().clone()];
    let factor = |_| 1.0;
    let mut linked =
        AcceleratedScheduler::new(LambdaLR::new(&own, factor), &links, state.clone(), ranks(1));
    let mut stranger =
        AcceleratedScheduler::new(LambdaLR::new(&sgd(1.0), factor), &links, state, ranks(1));
    other.learning_rates().set_skipped(true);
    linked.step().unwrap();
    stranger.step().unwrap();
    assert_eq!(
        (linked.inner().last_epoch(), stranger.inner().last_epoch()),
        (1, 0)
    );
}

/// Refuses to go past its end, as one-cycle schedules do.
#[derive(Debug)]
struct Ending {
    rates: LearningRates,
    count: u64,
}

impl Scheduler for Ending {
    fn step(&mut self) -> Result<()> {
        self.count += 1;
        assert!(self.count <= 4, "stepped past the end");
        Ok(())
    }
    fn last_lr(&self) -> Vec<f64> {
        self.rates.all()
    }
    fn learning_rates(&self) -> &LearningRates {
        &self.rates
    }
    fn step_count(&self) -> u64 {
        self.count
    }
    fn total_steps(&self) -> Option<u64> {
        Some(3)
    }
    fn state_dict(&self) -> StateDict {
        StateDict::new()
    }
    fn load_state_dict(&mut self, _state: &StateDict) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_schedule_with_an_end_is_not_pushed_past_it() {
    let rates = sgd(1.0).learning_rates().clone();
    let inner = Ending { rates, count: 1 };
    let state = GradientState::default();
    let mut schedule = AcceleratedScheduler::new(inner, &[], state, ranks(2));
    for _ in 0..4 {
        schedule.step().unwrap();
    }
    assert_eq!(schedule.step_count(), 4);
}

#[test]
fn settings_out_of_range_are_named() {
    let adamw = |config: AdamWConfig| AdamW::new(vec![leaf()], config).map(|_| ());
    let sgd = |config: SgdConfig| Sgd::new(vec![leaf()], config).map(|_| ());
    let default = AdamWConfig::default();
    let plain = SgdConfig::new(0.1);
    let refused = [
        (
            adamw(AdamWConfig {
                lr: f64::NAN,
                ..default
            }),
            "AdamWConfig.lr",
        ),
        (
            adamw(AdamWConfig {
                lr: -1.0,
                ..default
            }),
            "AdamWConfig.lr",
        ),
        (
            adamw(AdamWConfig {
                betas: (1.0, 0.9),
                ..default
            }),
            "AdamWConfig.betas.0",
        ),
        (
            adamw(AdamWConfig {
                betas: (0.9, f64::NAN),
                ..default
            }),
            "AdamWConfig.betas.1",
        ),
        (
            adamw(AdamWConfig {
                eps: -1e-8,
                ..default
            }),
            "AdamWConfig.eps",
        ),
        (
            adamw(AdamWConfig {
                weight_decay: f64::INFINITY,
                ..default
            }),
            "AdamWConfig.weight_decay",
        ),
        (sgd(SgdConfig::new(f64::NEG_INFINITY)), "SgdConfig.lr"),
        (
            sgd(SgdConfig {
                momentum: -0.1,
                ..plain
            }),
            "SgdConfig.momentum",
        ),
        (
            sgd(SgdConfig {
                dampening: f64::NAN,
                ..plain
            }),
            "SgdConfig.dampening",
        ),
        (
            sgd(SgdConfig {
                nesterov: true,
                ..plain
            }),
            "SgdConfig.nesterov",
        ),
        (
            Sgd::new(ParamGroup::new(vec![leaf()]).lr(f64::NAN), plain).map(|_| ()),
            "ParamGroup.lr",
        ),
    ];
    for (outcome, field) in refused {
        let message = outcome.unwrap_err().to_string();
        assert!(
            message.contains(&format!("`{field}`")),
            "{message} should name {field}"
        );
    }
}

#[test]
fn parameters_that_cannot_be_are_refused() {
    let plain = SgdConfig::new(0.1);
    let refuse = |groups: Vec<ParamGroup>, named: &str| {
        let message = Sgd::new(groups, plain).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(named), "{message} should contain {named}");
    };
    refuse(vec![], "at least one parameter");
    refuse(vec![ParamGroup::new(vec![])], "at least one parameter");
    let computed = leaf() * 2.0;
    refuse(
        vec![ParamGroup::named([("head".into(), computed)])],
        "`head` of group 0",
    );
    let tied = leaf();
    let group = |name: &str| ParamGroup::named([(name.into(), tied.shallow_clone())]);
    refuse(
        vec![group("embedding"), group("head")],
        "`head` of group 1 in group 0 too",
    );
    let mut nameless = ParamGroup::new(vec![leaf(), leaf()]);
    nameless.names = vec!["only one".into()];
    refuse(vec![nameless], "1 names in group 0");
}

#[test]
fn tied_parameters_of_a_group_are_updated_once() {
    let tied = leaf();
    let parameters = vec![tied.shallow_clone(), tied.shallow_clone()];
    let mut optimizer = Sgd::new(parameters, SgdConfig::new(0.5)).unwrap();
    assert_eq!(optimizer.groups().iter().count(), 1);
    tied.sum(Kind::Float).backward();
    optimizer.step().unwrap();
    assert_eq!(tied.double_value(&[0]), 0.5);
}

#[test]
fn a_state_that_does_not_fit_is_told_whole_and_changes_nothing() {
    let weight = leaf();
    let mut optimizer = AdamW::new(vec![weight.shallow_clone()], AdamWConfig::default()).unwrap();
    weight.sum(Kind::Float).backward();
    optimizer.step().unwrap();
    let saved = optimizer.state_dict().unwrap();
    let damaged: StateDict = saved
        .iter()
        .filter(|(name, _)| *name != "state.0.exp_avg")
        .map(|(name, value)| {
            let value = match (name, value) {
                ("state.0.exp_avg_sq", _) => {
                    StateValue::Tensor(Tensor::zeros([3], (Kind::Float, Device::Cpu)))
                }
                ("group.0.lr", _) => StateValue::Bool(true),
                (_, StateValue::Tensor(tensor)) => StateValue::Tensor(tensor.shallow_clone()),
                (_, StateValue::Float(number)) => StateValue::Float(*number),
                (_, StateValue::Int(count)) => StateValue::Int(*count),
                (_, StateValue::Bool(flag)) => StateValue::Bool(*flag),
            };
            (name.to_owned(), value)
        })
        .chain([("state.5.exp_avg".to_owned(), StateValue::Int(1))])
        .collect();
    optimizer.learning_rates().set(0, 0.125);
    match optimizer.load_state_dict(&damaged) {
        Err(Error::StateMismatch {
            target: "AdamW",
            problems,
        }) => {
            let all = problems.join("\n");
            for name in [
                "state.0.exp_avg",
                "state.0.exp_avg_sq",
                "group.0.lr",
                "state.5.exp_avg",
            ] {
                assert!(
                    all.contains(&format!("`{name}`")),
                    "{all} should name {name}"
                );
            }
            assert_eq!(problems.len(), 4);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(optimizer.learning_rates().all(), [0.125]);
    let other_shape = Sgd::new(vec![leaf()], SgdConfig::new(0.1))
        .unwrap()
        .state_dict()
        .unwrap();
    assert!(optimizer.load_state_dict(&other_shape).is_err());
}

#[test]
fn a_saved_schedule_continues() {
    let optimizer = sgd(0.1);
    let mut schedule = linear_schedule_with_warmup(&optimizer, 3, 20);
    for _ in 0..7 {
        schedule.step().unwrap();
    }
    let fresh = sgd(0.7);
    let mut resumed = linear_schedule_with_warmup(&fresh, 3, 20);
    resumed.load_state_dict(&schedule.state_dict()).unwrap();
    assert_eq!(resumed.last_lr(), schedule.last_lr());
    for _ in 0..15 {
        schedule.step().unwrap();
        resumed.step().unwrap();
        assert_eq!(
            fresh.learning_rates().all(),
            optimizer.learning_rates().all()
        );
    }
    assert_eq!(resumed.step_count(), schedule.step_count());
    assert!(resumed.load_state_dict(&StateDict::new()).is_err());
}

#[test]
fn one_function_per_group_or_an_error() {
    let groups = vec![
        ParamGroup::new(vec![leaf()]),
        ParamGroup::new(vec![leaf()]).lr(2.0),
    ];
    let optimizer = Sgd::new(groups, SgdConfig::new(1.0)).unwrap();
    let half: Box<dyn Fn(u64) -> f64> = Box::new(|_| 0.5);
    assert!(LambdaLR::per_group(&optimizer, vec![half]).is_err());
    let schedule =
        LambdaLR::per_group(&optimizer, vec![Box::new(|_| 0.5), Box::new(|_| 0.25)]).unwrap();
    assert_eq!(schedule.last_lr(), [0.5, 0.5]);
    assert_eq!(optimizer.learning_rates().all(), [0.5, 0.5]);
}
