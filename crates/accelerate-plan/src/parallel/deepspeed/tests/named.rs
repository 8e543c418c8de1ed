use super::*;

fn optimizer(optimizer: &str, stage: u64) -> Result<Option<NamedOptimizer>, PlanError> {
    let text =
        format!(r#"{{"zero_optimization": {{"stage": {stage}}}, "optimizer": {optimizer}}}"#);
    let config = json(&text).resolve(&precision(MixedPrecision::No))?;
    let facts = PrepareFacts {
        scheduler: GivenScheduler::Nothing,
        ..facts()
    };
    Ok(config.prepare(&job(2), &facts)?.optimizer)
}

fn scheduler(scheduler: &str) -> Result<SchedulerKind, PlanError> {
    let text = format!(r#"{{"zero_optimization": {{"stage": 1}}, "scheduler": {scheduler}}}"#);
    let config = json(&text).resolve(&precision(MixedPrecision::No))?;
    let facts = PrepareFacts {
        optimizer: GivenOptimizer::Real { lr: 0.02 },
        ..facts()
    };
    Ok(config.prepare(&job(2), &facts)?.scheduler.unwrap().kind)
}

#[test]
fn adam_is_decoupled_unless_it_says_otherwise() {
    let is_decoupled = |text: &str| match optimizer(text, 1).unwrap().unwrap().kind {
        OptimizerKind::Adam { is_decoupled, .. } => is_decoupled,
        other => panic!("expected Adam, found {other:?}"),
    };
    assert!(is_decoupled(r#"{"type": "Adam"}"#));
    assert!(!is_decoupled(
        r#"{"type": "adam", "params": {"adam_w_mode": false}}"#
    ));
    assert!(is_decoupled(
        r#"{"type": "AdamW", "params": {"adam_w_mode": false}}"#
    ));
}

#[test]
fn every_optimizer_has_its_defaults() {
    let kind = |text: &str| optimizer(text, 0).unwrap().unwrap().kind;
    let betas = (0.9, 0.999);
    assert_eq!(
        kind(r#"{"type": "Lamb", "params": {"lr": 0.1, "max_coeff": 5}}"#),
        OptimizerKind::Lamb {
            lr: 0.1,
            betas,
            eps: 1e-8,
            weight_decay: 0.0,
            bias_correction: true,
            max_coeff: 5.0,
            min_coeff: 0.01,
        }
    );
    assert_eq!(
        kind(r#"{"type": "Lion", "params": {"betas": [0.8, 0.9]}}"#),
        OptimizerKind::Lion {
            lr: 1e-3,
            betas: (0.8, 0.9),
            weight_decay: 0.0,
        }
    );
    assert_eq!(
        kind(r#"{"type": "Adagrad"}"#),
        OptimizerKind::Adagrad {
            lr: 1e-2,
            eps: 1e-10,
            weight_decay: 0.0,
        }
    );
    assert_eq!(
        kind(r#"{"type": "OneBitAdam", "params": {"freeze_step": 4e2}}"#),
        OptimizerKind::OneBitAdam {
            lr: 1e-3,
            betas,
            eps: 1e-8,
            weight_decay: 0.0,
            freeze_step: 400,
        }
    );
    assert_eq!(
        kind(r#"{"type": "SGD", "params": {"momentum": 0.9}}"#),
        OptimizerKind::Sgd {
            lr: 1e-3,
            momentum: 0.9,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        }
    );
    let OptimizerKind::Other { params } = kind(r#"{"type": "NAdam", "params": {"lr": 0.5}}"#)
    else {
        panic!("expected one that is not known");
    };
    assert_eq!(params.get("lr"), Some(&crate::config::Value::Float(0.5)));
}

#[test]
fn parameters_that_an_optimizer_does_not_have_are_refused() {
    let error = optimizer(r#"{"type": "AdamW", "params": {"weight_deca": 1}}"#, 1).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("`optimizer.params.weight_deca` is `1` (<the program>:1)"),
        "{text}"
    );
    assert!(text.contains("expected `weight_decay`"), "{text}");
    let error = optimizer(r#"{"type": "AdamW", "params": {"max_grad_norm": 1}}"#, 1).unwrap_err();
    assert!(error.to_string().contains("`gradient_clipping`"), "{error}");
    let error = optimizer(r#"{"type": "OneBitAdam"}"#, 2).unwrap_err();
    assert!(error.to_string().contains("stage 2"), "{error}");
    let error = optimizer(r#"{"params": {}}"#, 2).unwrap_err();
    assert!(
        error.to_string().contains("the name of an optimizer"),
        "{error}"
    );
    let error = optimizer(r#"{"type": "Adam", "params": {"betas": 1}}"#, 1).unwrap_err();
    assert!(
        error.to_string().contains("a list of two numbers"),
        "{error}"
    );
    let params = r#"{"amsgrad": true}"#;
    for name in ["Adam", "Adagrad", "Lamb"] {
        let text = format!(r#"{{"type": "{name}", "params": {params}}}"#);
        let error = optimizer(&text, 0).unwrap_err().to_string();
        assert!(error.contains("`optimizer.params.amsgrad`"), "{error}");
    }
    let text = r#"{"type": "Adam", "params": {"amsgrad": false}}"#;
    assert!(optimizer(text, 0).is_ok());
}

#[test]
fn schedules_have_their_defaults() {
    assert_eq!(
        scheduler(r#"{"type": "WarmupLR"}"#).unwrap(),
        SchedulerKind::Warmup(Warmup {
            min_lr: 0.0,
            max_lr: None,
            num_steps: 1000,
            growth: WarmupGrowth::Log,
        })
    );
    assert_eq!(
        scheduler(
            r#"{"type": "WarmupDecayLR", "params": {"warmup_num_steps": 0, "total_num_steps": 9,
                "warmup_type": "linear"}}"#
        )
        .unwrap(),
        SchedulerKind::WarmupDecay {
            warmup: Warmup {
                min_lr: 0.0,
                max_lr: Some(1e-3),
                num_steps: 2,
                growth: WarmupGrowth::Linear,
            },
            total_num_steps: 9,
        }
    );
    assert_eq!(
        scheduler(r#"{"type": "WarmupCosineLR", "params": {"total_num_steps": "auto"}}"#).unwrap(),
        SchedulerKind::WarmupCosine {
            warmup_min_ratio: 0.0,
            warmup_num_steps: 1000,
            growth: WarmupGrowth::Log,
            cos_min_ratio: 1e-4,
            total_num_steps: 51,
        }
    );
    assert_eq!(
        scheduler(
            r#"{"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1,
                "cycle_first_step_size": 30}}"#
        )
        .unwrap(),
        SchedulerKind::OneCycle {
            min_lr: 0.1,
            max_lr: 1.0,
            first_step_size: 30,
            second_step_size: 30,
            decay_step_size: 0,
            decay_lr_rate: 0.0,
            cycle_momentum: true,
            min_momentum: 0.8,
            max_momentum: 0.9,
            decay_mom_rate: 0.0,
        }
    );
    assert_eq!(
        scheduler(r#"{"type": "LRRangeTest"}"#).unwrap(),
        SchedulerKind::LrRangeTest {
            min_lr: 1e-3,
            step_size: 2000,
            step_rate: 1.0,
            staircase: false,
        }
    );
}

#[test]
fn a_warm_up_ends_at_the_rate_of_the_optimizer() {
    let kind = scheduler(r#"{"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}"#).unwrap();
    assert!(matches!(kind, SchedulerKind::Warmup(Warmup { max_lr: Some(lr), .. }) if lr == 0.02));
}

#[test]
fn schedules_refuse_what_they_do_not_have() {
    for (text, words) in [
        (r#"{"type": "WarmupDecayLR"}"#, "the number of steps in all"),
        (r#"{"type": "OneCycle"}"#, "a rate, which `OneCycle` needs"),
        (
            r#"{"type": "WarmupLR", "params": {"warmup_type": "cosine"}}"#,
            "`log` or `linear`",
        ),
        (
            r#"{"type": "WarmupLR", "params": {"warmup_steps": 3}}"#,
            "expected `warmup_",
        ),
        (
            r#"{"type": "WarmupLR", "params": {"last_batch_iteration": 9}}"#,
            "begins with its first step",
        ),
    ] {
        let error = scheduler(text).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// The four cases of the documentation, and every mistake.
#[test]
fn roles_are_decided_by_config_and_program() {
    let (none, real, dummy) = (
        GivenScheduler::Nothing,
        GivenScheduler::Real,
        GivenScheduler::Dummy {
            total_num_steps: None,
            warmup_num_steps: 0,
            has_callable: false,
        },
    );
    let callable = GivenScheduler::Dummy {
        total_num_steps: None,
        warmup_num_steps: 0,
        has_callable: true,
    };
    let own = GivenOptimizer::Real { lr: 1.0 };
    let stand_in = GivenOptimizer::DUMMY;
    let decide = |optimizer, scheduler, given, schedule| {
        let roles = Roles::decide(optimizer, scheduler, given, schedule);
        roles.map(|roles| (roles.optimizer, roles.scheduler))
    };
    use OptimizerRole as O;
    use RoleMistake as M;
    use SchedulerRole as S;
    for (optimizer, scheduler, given, schedule, expected) in [
        (true, true, stand_in, dummy, Ok((O::Config, S::Config))),
        (false, false, own, real, Ok((O::Program, S::Program))),
        (false, true, own, dummy, Ok((O::Program, S::Config))),
        (
            true,
            false,
            stand_in,
            callable,
            Ok((O::Config, S::Callable)),
        ),
        (false, false, own, callable, Ok((O::Program, S::Callable))),
        (
            true,
            true,
            GivenOptimizer::Nothing,
            none,
            Ok((O::Nobody, S::Nobody)),
        ),
        (true, false, stand_in, none, Ok((O::Config, S::Nobody))),
        (
            true,
            false,
            stand_in,
            real,
            Err(M::SchedulerWithoutOptimizer),
        ),
        (true, false, own, real, Err(M::OptimizerTwice)),
        (false, false, stand_in, none, Err(M::NoOptimizer)),
        (false, true, own, real, Err(M::SchedulerTwice)),
        (false, false, own, dummy, Err(M::NoScheduler)),
    ] {
        let found = decide(optimizer, scheduler, given, schedule);
        assert_eq!(
            found, expected,
            "{optimizer} {scheduler} {given:?} {schedule:?}"
        );
    }
}

#[test]
fn a_schedule_that_nothing_stands_for_is_told() {
    let text = r#"{"zero_optimization": {"stage": 1}, "gradient_accumulation_steps": 4,
        "scheduler": {"type": "WarmupLR"}}"#;
    let notes = |facts: &PrepareFacts| {
        let told = resolved(text).prepare(&job(2), facts).unwrap();
        told.plan.notes
    };
    let found = notes(&own());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("`scheduler` has no effect"),
        "{found:?}"
    );
    let evaluated = PrepareFacts {
        optimizer: GivenOptimizer::Nothing,
        ..own()
    };
    assert_eq!(notes(&evaluated), [] as [&str; 0]);
    let with_it = PrepareFacts {
        optimizer: GivenOptimizer::Real { lr: 1.0 },
        ..facts()
    };
    assert_eq!(notes(&with_it), [] as [&str; 0]);
}

#[test]
fn an_optimizer_of_the_program_is_welcome() {
    let text = r#"{"zero_optimization": {"stage": 1}}"#;
    let told = resolved(text).prepare(&job(2), &own()).unwrap();
    assert!(told.allows_any_optimizer && told.replaces_offloaded_optimizer);
    assert_eq!(told.optimizer, None);
    let evaluated = PrepareFacts {
        optimizer: GivenOptimizer::Nothing,
        ..own()
    };
    let told = resolved(text).prepare(&job(2), &evaluated).unwrap();
    assert!(!told.allows_any_optimizer);
}
