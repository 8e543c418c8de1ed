//! Every schedule through the wrapper, equal to the original's on 1 rank and on 2.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside of test functions"
)]

use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroUsize};

use accelerate::GradientState;
use accelerate::optim::schedule::{Shape, WsdConfig, wsd_schedule};
use accelerate::optim::{
    AcceleratedScheduler, AdamW, AdamWConfig, AnnealStrategy, ChainedScheduler, ConstantLR,
    CosineAnnealingLR, CosineAnnealingWarmRestarts, ExponentialLR, LRRangeTest, LRRangeTestConfig,
    LinearLR, MultiStepLR, MultiplicativeLR, OneCycle, OneCycleConfig, OneCycleLR,
    OneCycleLRConfig, Optimizer, ParamGroup, PlateauConfig, PlateauMode, PolynomialLR,
    ReduceLROnPlateau, Scheduler, SchedulerOptions, SchedulerStepping, SchedulerType, SequentialLR,
    StepLR, ThresholdMode, WarmupConfig, WarmupCosineConfig, WarmupCosineLR, WarmupDecayLR,
    WarmupGrowth, WarmupLR, get_scheduler,
};
use tch::{Device, Kind, Tensor};

#[derive(serde::Deserialize)]
struct Recording {
    rates: [f64; 2],
    metrics: Vec<f64>,
    cases: BTreeMap<String, BTreeMap<String, Course>>,
}

#[derive(serde::Deserialize)]
struct Course {
    lr: Vec<f64>,
    second_lr: Vec<f64>,
    momentum: Option<Vec<f64>>,
}

fn recording() -> Recording {
    let text = include_str!("../../../../tests/parity/fixtures/schedules.json");
    serde_json::from_str(text).unwrap()
}

fn some(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn adamw(rates: [f64; 2]) -> AdamW {
    let leaf = || vec![Tensor::zeros([1], (Kind::Float, Device::Cpu)).set_requires_grad(true)];
    let groups = vec![
        ParamGroup::new(leaf()),
        ParamGroup::new(leaf()).lr(rates[1]),
    ];
    let config = AdamWConfig {
        lr: rates[0],
        ..Default::default()
    };
    AdamW::new(groups, config).unwrap()
}

/// The schedule that the recorder makes under this name.
fn schedule(name: &str, o: &AdamW) -> Box<dyn Scheduler> {
    match name {
        "step" => Box::new(StepLR::new(o, some(7), 0.5)),
        "multi_step" => Box::new(MultiStepLR::new(o, vec![5, 20, 20, 61], 0.3)),
        "exponential" => Box::new(ExponentialLR::new(o, 0.97)),
        "multiplicative" => Box::new(MultiplicativeLR::new(o, |step| {
            1.0 - 1.0 / (step as f64 + 5.0)
        })),
        "constant_factor" => Box::new(ConstantLR::new(o, 0.3, 9).unwrap()),
        "linear_factor" => Box::new(LinearLR::new(o, 0.2, 0.9, 30).unwrap()),
        "polynomial_torch" => Box::new(PolynomialLR::new(o, 80, 1.7).unwrap()),
        "cosine_annealing" => Box::new(CosineAnnealingLR::new(o, some(17), 0.001)),
        "warm_restarts" => Box::new(CosineAnnealingWarmRestarts::new(
            o,
            some(10),
            some(2),
            0.001,
        )),
        "warm_restarts_even" => {
            Box::new(CosineAnnealingWarmRestarts::new(o, some(13), some(1), 0.0))
        }
        "sequential" => {
            let parts: Vec<Box<dyn Scheduler>> = vec![
                Box::new(LinearLR::new(o, 0.1, 1.0, 10).unwrap()),
                Box::new(CosineAnnealingLR::new(o, some(60), 0.0)),
                Box::new(ExponentialLR::new(o, 0.9)),
            ];
            Box::new(SequentialLR::new(o, parts, vec![10, 60]).unwrap())
        }
        "chained" => {
            let parts: Vec<Box<dyn Scheduler>> = vec![
                Box::new(ConstantLR::new(o, 0.1, 20).unwrap()),
                Box::new(ExponentialLR::new(o, 0.95)),
            ];
            Box::new(ChainedScheduler::new(o, parts).unwrap())
        }
        _ if name.starts_with("one_cycle") => one_cycle(name, o),
        _ if name.starts_with("plateau") => plateau(name, o),
        _ if name.starts_with("ds_") => deepspeed(name, o),
        _ => by_name(name, o),
    }
}

fn one_cycle(name: &str, o: &AdamW) -> Box<dyn Scheduler> {
    let config = |total| OneCycleLRConfig::new(some(total));
    let made = match name {
        "one_cycle" => OneCycleLR::per_group(o, vec![0.5, 0.1], config(90)),
        "one_cycle_linear" => {
            let config = OneCycleLRConfig {
                anneal_strategy: AnnealStrategy::Linear,
                momentum: Some((0.8, 0.9)),
                ..config(250)
            };
            OneCycleLR::new(o, 0.5, config)
        }
        "one_cycle_three" => {
            let config = OneCycleLRConfig {
                three_phase: true,
                pct_start: 0.4,
                div_factor: 10.0,
                final_div_factor: 100.0,
                ..config(150)
            };
            OneCycleLR::new(o, 0.5, config)
        }
        "one_cycle_still" => {
            let config = OneCycleLRConfig {
                momentum: None,
                ..config(200)
            };
            OneCycleLR::new(o, 0.5, config)
        }
        other => panic!("unknown schedule {other}"),
    };
    Box::new(made.unwrap())
}

fn plateau(name: &str, o: &AdamW) -> Box<dyn Scheduler> {
    let config = match name {
        "plateau" => PlateauConfig {
            factor: 0.5,
            patience: 3,
            cooldown: 2,
            min_lr: 1e-3,
            ..Default::default()
        },
        "plateau_max" => PlateauConfig {
            mode: PlateauMode::Max,
            factor: 0.8,
            patience: 2,
            threshold: 0.01,
            threshold_mode: ThresholdMode::Abs,
            eps: 1e-4,
            ..Default::default()
        },
        other => panic!("unknown schedule {other}"),
    };
    Box::new(ReduceLROnPlateau::new(o, config).unwrap())
}

fn deepspeed(name: &str, o: &AdamW) -> Box<dyn Scheduler> {
    let warmup = |low, high, warmup_type| WarmupConfig {
        warmup_min_lr: low,
        warmup_max_lr: Some(high),
        warmup_num_steps: some(40),
        warmup_type,
    };
    let cosine = |warmup_min_ratio, cos_min_ratio, warmup_type| WarmupCosineConfig {
        warmup_min_ratio,
        warmup_num_steps: some(30),
        cos_min_ratio,
        warmup_type,
    };
    let test = |lr_range_test_staircase| LRRangeTestConfig {
        lr_range_test_min_lr: 0.001,
        lr_range_test_step_size: some(20),
        lr_range_test_step_rate: 2.0,
        lr_range_test_staircase,
    };
    let (log, linear) = (WarmupGrowth::Log, WarmupGrowth::Linear);
    match name {
        "ds_warmup" => Box::new(WarmupLR::new(o, warmup(0.001, 0.08, log))),
        "ds_warmup_linear" => {
            // The largest rate is the optimizer's own.
            let config = WarmupConfig {
                warmup_max_lr: None,
                ..warmup(0.0, 0.0, linear)
            };
            Box::new(WarmupLR::new(o, config))
        }
        "ds_warmup_decay" => Box::new(WarmupDecayLR::new(o, 150, warmup(0.001, 0.08, log))),
        "ds_warmup_cosine" => Box::new(WarmupCosineLR::new(o, 150, cosine(0.1, 0.01, log))),
        "ds_warmup_cosine_linear" => {
            Box::new(WarmupCosineLR::new(o, 120, cosine(0.0, 1e-4, linear)))
        }
        "ds_one_cycle" => Box::new(OneCycle::new(
            o,
            OneCycleConfig {
                cycle_first_step_size: some(30),
                cycle_second_step_size: Some(some(50)),
                decay_lr_rate: 0.3,
                decay_step_size: 10,
                decay_mom_rate: 0.002,
                ..OneCycleConfig::new(0.001, 0.1)
            },
        )),
        "ds_one_cycle_stairs" => Box::new(OneCycle::new(
            o,
            OneCycleConfig {
                cycle_first_step_size: some(40),
                cycle_first_stair_count: 4,
                ..OneCycleConfig::new(0.001, 0.1)
            },
        )),
        "ds_range_test" => Box::new(LRRangeTest::new(o, test(false))),
        "ds_range_test_stairs" => Box::new(LRRangeTest::new(o, test(true))),
        other => panic!("unknown schedule {other}"),
    }
}

fn by_name(name: &str, o: &AdamW) -> Box<dyn Scheduler> {
    let plain = SchedulerOptions::default();
    let (kind, options) = match name {
        "cosine_waves" => {
            let num_cycles = Some(1.5);
            (
                "cosine",
                SchedulerOptions {
                    num_cycles,
                    ..plain
                },
            )
        }
        "cosine_with_restarts" => {
            let num_cycles = Some(3.0);
            (
                name,
                SchedulerOptions {
                    num_cycles,
                    ..plain
                },
            )
        }
        "polynomial" => {
            let (lr_end, power) = (1e-4, 2.0);
            let options = SchedulerOptions {
                lr_end,
                power,
                ..plain
            };
            (name, options)
        }
        "inverse_sqrt_scaled" => {
            let timescale = Some(300);
            ("inverse_sqrt", SchedulerOptions { timescale, ..plain })
        }
        "cosine_with_min_lr" | "cosine_warmup_with_min_lr" | "cosine_warmup_with_min_lr_plain" => {
            let options = SchedulerOptions {
                min_lr_rate: Some(0.1),
                warmup_lr_rate: (name == "cosine_warmup_with_min_lr").then_some(0.05),
                ..plain
            };
            (name.trim_end_matches("_plain"), options)
        }
        "wsd" => {
            let options = SchedulerOptions {
                num_decay_steps: Some(70),
                min_lr_rate: Some(0.1),
                ..plain
            };
            ("warmup_stable_decay", options)
        }
        "wsd_roots" => {
            let options = SchedulerOptions {
                num_decay_steps: Some(70),
                num_stable_steps: Some(40),
                warmup_type: Shape::OneMinusSqrt,
                decay_type: Shape::OneMinusSqrt,
                ..plain
            };
            ("warmup_stable_decay", options)
        }
        "wsd_lines" => {
            let config = WsdConfig {
                warmup_type: Shape::Cosine,
                decay_type: Shape::Linear,
                ..WsdConfig::new(20, 40, 70)
            };
            return Box::new(wsd_schedule(o, config).unwrap());
        }
        _ => (name, plain),
    };
    let kind: SchedulerType = kind.parse().unwrap();
    get_scheduler(kind, o, Some(20), Some(180), &options).unwrap()
}

fn prepared(name: &str, o: &AdamW, ranks: usize) -> AcceleratedScheduler<Box<dyn Scheduler>> {
    let stepping = SchedulerStepping {
        num_processes: NonZeroUsize::new(ranks).unwrap(),
        ..Default::default()
    };
    let links = [o.learning_rates().clone()];
    AcceleratedScheduler::new(
        schedule(name, o),
        &links,
        GradientState::default(),
        stepping,
    )
}

fn advance(schedule: &mut dyn Scheduler, name: &str, metric: f64) {
    if name.starts_with("plateau") {
        schedule.step_with_metric(metric).unwrap();
    } else {
        schedule.step().unwrap();
    }
}

/// Equal to the last bit, but for one rounding where a formula is written in another order.
#[track_caller]
fn assert_close(found: f64, expected: f64, place: &str) {
    let off = (found - expected).abs();
    assert!(
        off <= 1e-12 * expected.abs(),
        "{place}: expected {expected}, found {found}"
    );
}

#[test]
fn every_schedule_sets_the_recorded_rates() {
    let recording = recording();
    assert!(recording.cases.len() >= 42);
    let mut exact = 0;
    for (name, courses) in &recording.cases {
        for (ranks, course) in [(1, &courses["n1"]), (2, &courses["n2"])] {
            let optimizer = adamw(recording.rates);
            let mut schedule = prepared(name, &optimizer, ranks);
            let rates = optimizer.learning_rates();
            for (update, &expected) in course.lr.iter().enumerate() {
                let place = format!("{name} on {ranks} ranks at update {update}");
                let found = rates.get(0).unwrap();
                assert_close(found, expected, &place);
                exact += usize::from(found.to_bits() == expected.to_bits());
                if update % 10 == 9 {
                    let second = course.second_lr[update / 10];
                    assert_close(rates.get(1).unwrap(), second, &place);
                }
                if let Some(momenta) = &course.momentum {
                    assert_close(rates.momentum(0).unwrap(), momenta[update], &place);
                }
                advance(&mut schedule, name, recording.metrics[update]);
                assert_eq!(schedule.last_lr(), rates.all(), "{place}");
            }
        }
    }
    let all = 200 * recording.cases.len();
    assert_eq!(exact, all, "rates that are equal to the last bit");
}

#[test]
fn a_saved_schedule_goes_on_to_the_last_bit() {
    let recording = recording();
    for name in recording.cases.keys() {
        let original = adamw(recording.rates);
        let mut schedule = prepared(name, &original, 1);
        for &metric in &recording.metrics[..37] {
            advance(&mut schedule, name, metric);
        }
        let fresh = adamw(recording.rates);
        let mut resumed = prepared(name, &fresh, 1);
        // As from a checkpoint: the rates in force come with the optimizer.
        let mut fresh = fresh;
        fresh
            .load_state_dict(&original.state_dict().unwrap())
            .unwrap();
        resumed.load_state_dict(&schedule.state_dict()).unwrap();
        assert_eq!(resumed.last_lr(), schedule.last_lr(), "{name}");
        for &metric in &recording.metrics[37..80] {
            advance(&mut schedule, name, metric);
            advance(&mut resumed, name, metric);
            let (left, right) = (fresh.learning_rates(), original.learning_rates());
            assert_eq!(left.all(), right.all(), "{name}");
            assert_eq!(left.momentum(0), right.momentum(0), "{name}");
        }
        assert_eq!(resumed.step_count(), schedule.step_count(), "{name}");
    }
}

#[test]
fn names_are_those_of_configurations() {
    for kind in SchedulerType::ALL {
        assert_eq!(kind.to_string().parse::<SchedulerType>().unwrap(), kind);
    }
    let message = "greedy".parse::<SchedulerType>().unwrap_err().to_string();
    assert!(message.contains("`greedy`") && message.contains("inverse_sqrt"));
    let optimizer = adamw([0.1, 0.1]);
    let options = SchedulerOptions::default();
    let missing = |kind, warmup, total| {
        get_scheduler(kind, &optimizer, warmup, total, &options)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert!(missing(SchedulerType::Linear, None, Some(9)).contains("`num_warmup_steps`"));
    assert!(missing(SchedulerType::Cosine, Some(1), None).contains("`num_training_steps`"));
    let kind = SchedulerType::CosineWithMinLr;
    assert!(missing(kind, Some(1), Some(9)).contains("`min_lr_rate`"));
    let kind = SchedulerType::WarmupStableDecay;
    assert!(missing(kind, Some(1), Some(9)).contains("`num_decay_steps`"));
}

#[test]
fn what_a_schedule_cannot_do_is_an_error() {
    let optimizer = adamw([0.1, 0.1]);
    let mut cycle = OneCycleLR::new(&optimizer, 0.5, OneCycleLRConfig::new(some(2))).unwrap();
    cycle.step().unwrap();
    cycle.step().unwrap();
    let before = optimizer.learning_rates().all();
    assert!(cycle.step().unwrap_err().to_string().contains("at most 2"));
    assert_eq!(optimizer.learning_rates().all(), before);
    assert!(cycle.step_with_metric(1.0).is_err());
    let mut plateau = ReduceLROnPlateau::new(&optimizer, PlateauConfig::default()).unwrap();
    let message = plateau.step().unwrap_err().to_string();
    assert!(message.contains("step_with_metric"), "{message}");
    let alone: Vec<Box<dyn Scheduler>> = vec![Box::new(plateau)];
    assert!(SequentialLR::new(&optimizer, alone, vec![]).is_err());
    let other = adamw([0.1, 0.1]);
    let strange: Vec<Box<dyn Scheduler>> = vec![Box::new(ExponentialLR::new(&other, 0.9))];
    assert!(ChainedScheduler::new(&optimizer, strange).is_err());
}
