use std::cell::RefCell;
use std::num::{NonZeroU64, NonZeroUsize};
use std::rc::Rc;

use accelerate_plan::parallel::deepspeed::ConfigSource;
use accelerate_plan::parallel::{DeepSpeedPlugins, DeepSpeedSettings, JobFacts, Sharded};
use accelerate_plan::settings::Sourced;
use tch::{Kind, Tensor};

use super::*;
use crate::Result;
use crate::optim::{
    Adagrad, AdagradConfig, Adam, AdamConfig, AdamW, AdamWConfig, CosineAnnealingLR, DummyOptim,
    DummyOptimConfig, DummyScheduler, DummySchedulerConfig, LRRangeTest, LRRangeTestConfig, Lamb,
    LambConfig, MultiStepLR, OneCycle, OneCycleConfig, Optimizer, RmsProp, RmsPropConfig,
    Scheduler, Sgd, SgdConfig, StepLR, WarmupConfig, WarmupCosineConfig, WarmupCosineLR,
    WarmupDecayLR, WarmupGrowth, WarmupLR,
};
use crate::precision::MixedPrecision;

fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

fn manner() -> Manner {
    Manner {
        accumulation: NonZeroUsize::MIN,
        split_batches: false,
    }
}

/// A job of one process with these parts in its config.
fn session(parts: &str) -> Result<DeepSpeed> {
    let text = format!(r#"{{"zero_optimization": {{"stage": 0}}{parts}}}"#);
    let settings = DeepSpeedSettings::with_config(ConfigSource::Text(text));
    let config = settings.resolve(&Sourced::default_value(MixedPrecision::No))?;
    Ok(DeepSpeed::new(
        config,
        JobFacts::on_one_machine(NonZeroUsize::MIN),
        false,
    ))
}

fn named(kind: &str, name: &str, params: &str) -> String {
    format!(r#", "{kind}": {{"type": "{name}", "params": {{{params}}}}}"#)
}

fn parameter() -> Tensor {
    Tensor::from_slice(&[1.0f32, -2.0, 3.0]).set_requires_grad(true)
}

fn dummy() -> Result<DummyOptim> {
    let config = DummyOptimConfig {
        lr: 0.5,
        weight_decay: 0.25,
    };
    DummyOptim::new(vec![parameter()], config)
}

/// A model with a loader, and these.
fn together(optimizer: &dyn Optimizer, scheduler: Option<&dyn Scheduler>) -> Together {
    let mut together = Together {
        has_model: true,
        ..Together::default()
    };
    together.loader(Some(count(4)));
    together.optimizer(optimizer);
    if let Some(scheduler) = scheduler {
        together.scheduler(scheduler);
    }
    together
}

/// The optimizer that takes the place of a stand-in.
fn made(name: &str, params: &str) -> Result<Box<dyn Optimizer>> {
    let session = session(&named("optimizer", name, params))?;
    let dummy = dummy()?;
    session.settle(together(&dummy, None), manner())?;
    session.optimizer_for(&dummy)
}

/// Where three steps lead.
fn three_steps(optimizer: &mut dyn Optimizer) -> Result<Vec<f32>> {
    let parameter = optimizer.groups().parameters(0).unwrap()[0].shallow_clone();
    for _ in 0..3 {
        (&parameter * &parameter).sum(Kind::Float).backward();
        optimizer.step()?;
        optimizer.zero_grad()?;
    }
    Ok(Vec::try_from(&parameter.detach())?)
}

#[test]
fn every_optimizer_by_name_is_the_one_of_this_library() -> Result<()> {
    let of = || vec![parameter()];
    let adamw = AdamWConfig {
        lr: 0.1,
        betas: (0.8, 0.9),
        eps: 1e-6,
        weight_decay: 0.25,
        ..AdamWConfig::default()
    };
    let adam = AdamConfig {
        lr: 0.5,
        weight_decay: 0.125,
        ..AdamConfig::default()
    };
    let adagrad = AdagradConfig {
        lr: 0.1,
        eps: 1e-6,
        weight_decay: 0.5,
        ..AdagradConfig::default()
    };
    let lamb = LambConfig {
        lr: 0.1,
        eps: 1e-8,
        weight_decay: 0.0,
        min_trust: 0.01,
        max_trust: 0.5,
        ..LambConfig::default()
    };
    let sgd = SgdConfig {
        momentum: 0.9,
        nesterov: true,
        ..SgdConfig::new(0.01)
    };
    let rms_prop = RmsPropConfig {
        alpha: 0.5,
        centered: true,
        ..RmsPropConfig::default()
    };
    let cases: [(&str, &str, Box<dyn Optimizer>); 6] = [
        (
            "AdamW",
            r#""lr": 0.1, "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": "auto""#,
            Box::new(AdamW::new(of(), adamw)?),
        ),
        (
            "Adam",
            r#""lr": "auto", "weight_decay": 0.125, "adam_w_mode": false"#,
            Box::new(Adam::new(of(), adam)?),
        ),
        (
            "Adagrad",
            r#""lr": 0.1, "eps": 1e-6, "weight_decay": 0.5"#,
            Box::new(Adagrad::new(of(), adagrad)?),
        ),
        (
            "Lamb",
            r#""lr": 0.1, "max_coeff": 0.5"#,
            Box::new(Lamb::new(of(), lamb)?),
        ),
        (
            "SGD",
            r#""lr": 0.01, "momentum": 0.9, "nesterov": true"#,
            Box::new(Sgd::new(of(), sgd)?),
        ),
        (
            "RMSprop",
            r#""alpha": "0.5", "centered": true"#,
            Box::new(RmsProp::new(of(), rms_prop)?),
        ),
    ];
    for (name, params, mut expected) in cases {
        let mut found = made(name, params)?;
        assert_eq!(found.name(), expected.name(), "{name}");
        assert_eq!(
            found.learning_rates().all(),
            expected.learning_rates().all()
        );
        let (expected, found) = (three_steps(&mut *expected)?, three_steps(&mut *found)?);
        assert_eq!(expected, found, "{name}");
        assert_ne!(found, [1.0, -2.0, 3.0], "{name}");
    }
    Ok(())
}

#[test]
fn optimizers_that_are_not_there_are_refused_with_those_that_are() {
    let refused = |name: &str, params: &str| {
        let made = made(name, params).map(|_| ());
        made.unwrap_err().to_string()
    };
    for name in ["Lion", "OneBitAdam", "NAdam", "sgd"] {
        let text = refused(name, r#""lr": 0.1"#);
        assert!(
            text.starts_with(&format!("`optimizer.type` is `{name}` (")),
            "{text}"
        );
        assert!(
            text.contains("`Adam`, `AdamW`, `Adagrad`, `Lamb`, `SGD` or `RMSprop`"),
            "{text}"
        );
    }
    let text = refused("Adam", r#""bias_correction": false"#);
    assert!(
        text.contains("`optimizer.params.bias_correction` is `false`"),
        "{text}"
    );
    let text = refused("SGD", r#""momentun": 0.9"#);
    assert!(text.contains("expected `momentum`, or another"), "{text}");
    let text = refused("SGD", r#""lr": true"#);
    assert!(text.contains("expected a number"), "{text}");
}

/// The rates of twelve steps.
fn rates(scheduler: &mut dyn Scheduler) -> Result<Vec<f64>> {
    let mut rates = scheduler.last_lr();
    for _ in 0..12 {
        scheduler.step()?;
        rates.extend(scheduler.last_lr());
    }
    Ok(rates)
}

fn sgd() -> Result<Sgd> {
    Sgd::new(vec![parameter()], SgdConfig::new(0.5))
}

/// The schedule that takes the place of a stand-in, for a program's optimizer with rate 0.5.
fn scheduled(name: &str, params: &str) -> Result<Vec<f64>> {
    let session = session(&named("scheduler", name, params))?;
    let optimizer = sgd()?;
    let config = DummySchedulerConfig {
        total_num_steps: Some(10),
        warmup_num_steps: 3,
    };
    let dummy = DummyScheduler::new(&optimizer, config);
    session.settle(together(&optimizer, Some(&dummy)), manner())?;
    let optimizer: Rc<RefCell<dyn Optimizer>> = Rc::new(RefCell::new(optimizer));
    rates(&mut *session.schedule_for(&dummy, &[optimizer])?)
}

#[test]
fn every_schedule_by_name_is_the_one_of_this_library() -> Result<()> {
    let steps = |number| NonZeroU64::new(number).unwrap();
    let linear = WarmupConfig {
        warmup_min_lr: 0.0,
        warmup_max_lr: Some(0.5),
        warmup_num_steps: steps(3),
        warmup_type: WarmupGrowth::Linear,
    };
    let log = WarmupConfig {
        warmup_min_lr: 0.1,
        warmup_max_lr: Some(0.25),
        warmup_num_steps: steps(4),
        warmup_type: WarmupGrowth::Log,
    };
    let cosine = WarmupCosineConfig {
        warmup_min_ratio: 0.25,
        warmup_num_steps: steps(3),
        cos_min_ratio: 0.125,
        warmup_type: WarmupGrowth::Log,
    };
    let cycle = OneCycleConfig {
        cycle_first_step_size: steps(4),
        cycle_second_step_size: Some(steps(2)),
        decay_step_size: 2,
        decay_lr_rate: 0.5,
        ..OneCycleConfig::new(0.1, 0.5)
    };
    let range = LRRangeTestConfig {
        lr_range_test_min_lr: 0.01,
        lr_range_test_step_size: steps(3),
        lr_range_test_step_rate: 2.0,
        lr_range_test_staircase: true,
    };
    let own = sgd;
    let cases: [(&str, &str, Box<dyn Scheduler>); 8] = [
        (
            "WarmupLR",
            r#""warmup_min_lr": 0.1, "warmup_max_lr": 0.25, "warmup_num_steps": 4"#,
            Box::new(WarmupLR::new(&own()?, log)),
        ),
        (
            "WarmupDecayLR",
            r#""warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
               "total_num_steps": "auto", "warmup_type": "linear""#,
            Box::new(WarmupDecayLR::new(&own()?, 10, linear)),
        ),
        (
            "WarmupCosineLR",
            r#""warmup_min_ratio": 0.25, "warmup_num_steps": 3, "cos_min_ratio": 0.125,
               "total_num_steps": "auto""#,
            Box::new(WarmupCosineLR::new(&own()?, 10, cosine)),
        ),
        (
            "OneCycle",
            r#""cycle_min_lr": 0.1, "cycle_max_lr": 0.5, "cycle_first_step_size": 4,
               "cycle_second_step_size": 2, "decay_step_size": 2, "decay_lr_rate": 0.5"#,
            Box::new(OneCycle::new(&own()?, cycle)),
        ),
        (
            "LRRangeTest",
            r#""lr_range_test_min_lr": 0.01, "lr_range_test_step_size": 3,
               "lr_range_test_step_rate": 2.0, "lr_range_test_staircase": true"#,
            Box::new(LRRangeTest::new(&own()?, range)),
        ),
        (
            "StepLR",
            r#""step_size": "4", "gamma": 0.5"#,
            Box::new(StepLR::new(&own()?, steps(4), 0.5)),
        ),
        (
            "MultiStepLR",
            r#""milestones": [2, 5]"#,
            Box::new(MultiStepLR::new(&own()?, vec![2, 5], 0.1)),
        ),
        (
            "CosineAnnealingLR",
            r#""T_max": 10, "eta_min": 0.125"#,
            Box::new(CosineAnnealingLR::new(&own()?, steps(10), 0.125)),
        ),
    ];
    for (name, params, mut expected) in cases {
        let (expected, found) = (rates(&mut *expected)?, scheduled(name, params)?);
        assert_eq!(expected, found, "{name}");
        assert!(found.iter().any(|rate| *rate != found[0]), "{name}");
    }
    Ok(())
}

#[test]
fn schedules_that_are_not_there_are_refused_with_those_that_are() {
    let refused = |name: &str, params: &str| scheduled(name, params).unwrap_err().to_string();
    let text = refused("LambdaLR", r#""last_epoch": -1"#);
    assert!(
        text.starts_with("`scheduler.type` is `LambdaLR` ("),
        "{text}"
    );
    assert!(
        text.contains("`WarmupLR`, `WarmupDecayLR`, `WarmupCosineLR`, `OneCycle` or `LRRangeTest`"),
        "{text}"
    );
    let text = refused("StepLR", r#""gamma": 0.5"#);
    assert!(
        text.starts_with("`scheduler.params.step_size` is `absent`"),
        "{text}"
    );
    let text = refused("CosineAnnealingLR", r#""T_max": 10, "eta": 0.1"#);
    assert!(text.contains("`T_max`, `eta_min`"), "{text}");
    let text = refused(
        "OneCycle",
        r#""cycle_min_lr": 0.1, "cycle_max_lr": 0.5, "cycle_first_step_size": 0"#,
    );
    assert!(
        text.contains("`scheduler.params.cycle_first_step_size` is `0`"),
        "{text}"
    );
}

#[test]
fn a_schedule_follows_the_optimizer_in_a_stand_ins_place() -> Result<()> {
    let parts = named("optimizer", "SGD", r#""lr": 0.5"#);
    let session = session(&parts)?;
    let dummy = dummy()?;
    let schedule =
        DummyScheduler::new(&dummy, DummySchedulerConfig::default()).with_callable(|optimizer| {
            assert_eq!(optimizer.name(), "Sgd");
            let config = WarmupConfig {
                warmup_min_lr: 0.125,
                ..WarmupConfig::default()
            };
            Ok(Box::new(WarmupLR::new(optimizer, config)))
        });
    session.settle(together(&dummy, Some(&schedule)), manner())?;
    let made: Rc<RefCell<dyn Optimizer>> = Rc::new(RefCell::new(session.optimizer_for(&dummy)?));
    let rates = made.borrow().learning_rates().clone();
    assert_eq!(rates.all(), [0.5]);
    let made_by_program = session.schedule_for(&schedule, &[Rc::clone(&made)])?;
    assert!(made_by_program.learning_rates().is_same(&rates));
    assert_eq!(rates.all(), [0.125]);
    let text = session.schedule_for(&schedule, &[]).map(|_| ());
    let text = text.unwrap_err().to_string();
    assert!(
        text.contains("an optimizer that is prepared with it"),
        "{text}"
    );
    Ok(())
}

#[test]
fn things_may_be_prepared_one_after_another() -> Result<()> {
    let session = session(r#", "gradient_accumulation_steps": "auto""#)?;
    let own = sgd()?;
    let of_optimizer = |optimizer: &dyn Optimizer| {
        let mut together = Together::default();
        together.optimizer(optimizer);
        together
    };
    // An optimizer alone waits for its model.
    assert_eq!(session.settle(of_optimizer(&own), manner())?, None);
    assert!(session.plan().is_none());
    let mut loader = Together::default();
    loader.loader(Some(count(4)));
    session.settle(loader, manner())?;
    let model = Together {
        has_model: true,
        ..Together::default()
    };
    let two = Manner {
        accumulation: count(2),
        ..manner()
    };
    assert_eq!(session.settle(model, two)?, Some(count(2)));
    assert!(session.plan().is_some());
    let text = session.config().to_string();
    assert!(text.contains("'train_batch_size': 8"), "{text}");
    // Another loader is evaluated, and changes nothing.
    let mut loader = Together::default();
    loader.loader(Some(count(3)));
    assert_eq!(session.settle(loader, manner())?, None);
    assert_eq!(session.config().to_string(), text);
    // A stand-in that comes later is refused all the same.
    let error = session.settle(of_optimizer(&dummy()?), manner());
    let text = error.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains("the DeepSpeed config names none"), "{text}");
    Ok(())
}

#[test]
fn without_a_loader_only_named_things_need_sizes() -> Result<()> {
    let model = || Together {
        has_model: true,
        ..Together::default()
    };
    let plain = session("")?;
    assert_eq!(plain.settle(model(), manner())?, None);
    let named = session(&named("optimizer", "SGD", r#""lr": 0.5"#))?;
    let mut things = model();
    things.optimizer(&dummy()?);
    let text = named.settle(things, manner()).unwrap_err().to_string();
    assert!(text.contains("no loader is prepared"), "{text}");
    Ok(())
}

#[test]
fn each_of_several_stand_ins_has_its_own_values() -> Result<()> {
    let parts = named("optimizer", "SGD", r#""lr": "auto""#)
        + &named(
            "scheduler",
            "WarmupLR",
            r#""warmup_max_lr": "auto", "warmup_num_steps": 2"#,
        );
    let session = session(&parts)?;
    let of = |lr| {
        let config = DummyOptimConfig {
            lr,
            weight_decay: 0.0,
        };
        DummyOptim::new(vec![parameter()], config)
    };
    let (first, second) = (of(0.5)?, of(0.25)?);
    let schedule = DummyScheduler::new(&first, DummySchedulerConfig::default());
    let mut things = together(&first, Some(&schedule));
    things.optimizer(&second);
    session.settle(things, manner())?;
    let made: Rc<RefCell<dyn Optimizer>> = Rc::new(RefCell::new(session.optimizer_for(&first)?));
    let other = session.optimizer_for(&second)?;
    assert_eq!(made.borrow().learning_rates().all(), [0.5]);
    assert_eq!(other.learning_rates().all(), [0.25]);
    let mut schedule = session.schedule_for(&schedule, &[made])?;
    let last = rates(&mut *schedule)?.pop();
    assert_eq!(last, Some(0.5));
    // A real one beside a stand-in does not hide behind it.
    let mut things = together(&sgd()?, None);
    things.optimizer(&first);
    let text = session.settle(things, manner()).unwrap_err().to_string();
    assert!(text.contains("the program prepares another one"), "{text}");
    Ok(())
}

#[test]
fn configs_have_names_and_one_is_selected() -> Result<()> {
    let config = |stage: u8, parts: &str| {
        let text = format!(
            r#"{{"zero_optimization": {{"stage": {stage}}}, "train_batch_size": 4{parts}}}"#
        );
        let settings = DeepSpeedSettings::with_config(ConfigSource::Text(text));
        settings.resolve(&Sourced::default_value(MixedPrecision::No))
    };
    let job = || JobFacts::on_one_machine(count(2));
    let made = |parts: &str| -> Result<Plugins> {
        let both = [
            ("student".to_owned(), config(2, "")?),
            ("teacher".to_owned(), config(3, parts)?),
        ];
        let sessions = both
            .iter()
            .map(|(_, config)| DeepSpeed::new(config.clone(), job(), false));
        let sessions = sessions.collect();
        Plugins::new(DeepSpeedPlugins::new(both)?, sessions)
    };
    let plugins = made("")?;
    assert_eq!(plugins.names().collect::<Vec<_>>(), ["student", "teacher"]);
    let sharded = || plugins.plan().map(|plan| plan.sharded);
    assert_eq!(sharded(), Some(Sharded::Gradients));
    plugins.select("teacher")?;
    assert_eq!(sharded(), Some(Sharded::Parameters));
    assert_eq!(plugins.selected().map(|own| own.config().stage()), Some(3));
    let text = plugins.select("techer").unwrap_err().to_string();
    assert!(
        text.contains("`student`") && text.contains("teacher"),
        "{text}"
    );
    // A name that is none changes nothing.
    assert_eq!(sharded(), Some(Sharded::Parameters));
    let text = made(r#", "bf16": {"enabled": true}"#)
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("`student` in `no`, `teacher` in `bf16`"),
        "{text}"
    );
    Ok(())
}
