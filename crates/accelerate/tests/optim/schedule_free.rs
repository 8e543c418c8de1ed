//! The schedule-free optimizers: recorded steps, both modes, states, and what is refused.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside of test functions"
)]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use accelerate::optim::{
    AdamWScheduleFree, AdamWScheduleFreeConfig, Optimizer, Scheduler, SgdScheduleFree,
    SgdScheduleFreeConfig, StateValue, linear_schedule_with_warmup,
};
use accelerate::{Accelerator, Error, Result};
use accelerate_testkit::ranks;
use accelerate_torch::autograd;
use serde_json::Value;
use tch::{Device, Kind, Tensor};

#[derive(serde::Deserialize)]
struct Recording {
    initial: Vec<Value>,
    gradients: Vec<Vec<Value>>,
    kept_steps: Vec<usize>,
    cases: BTreeMap<String, Case>,
}

#[derive(serde::Deserialize)]
struct Case {
    optimizer: String,
    options: Value,
    trained: Vec<Vec<Value>>,
    evaluated: Vec<Vec<Value>>,
    progress: Value,
}

impl Case {
    fn number(&self, name: &str) -> f64 {
        self.options[name].as_f64().unwrap()
    }

    fn optimizer(&self, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
        let (lr, weight_decay) = (self.number("lr"), self.number("weight_decay"));
        let warmup_steps = self.options["warmup_steps"].as_u64().unwrap();
        let (r, weight_lr_power) = (self.number("r"), self.number("weight_lr_power"));
        match self.optimizer.as_str() {
            "AdamWScheduleFree" => {
                let betas = &self.options["betas"];
                let config = AdamWScheduleFreeConfig {
                    lr,
                    betas: (betas[0].as_f64().unwrap(), betas[1].as_f64().unwrap()),
                    eps: self.number("eps"),
                    weight_decay,
                    warmup_steps,
                    r,
                    weight_lr_power,
                };
                Box::new(AdamWScheduleFree::new(parameters, config).unwrap())
            }
            "SGDScheduleFree" => {
                let config = SgdScheduleFreeConfig {
                    lr,
                    momentum: self.number("momentum"),
                    weight_decay,
                    warmup_steps,
                    r,
                    weight_lr_power,
                };
                Box::new(SgdScheduleFree::new(parameters, config).unwrap())
            }
            other => panic!("unknown optimizer {other}"),
        }
    }
}

fn recording() -> Recording {
    let text = include_str!("../../../../tests/parity/fixtures/schedule_free.json");
    serde_json::from_str(text).unwrap()
}

/// The numbers of nested lists, which are 32-bit floats written out in full, and their shape.
fn tensor(value: &Value) -> Tensor {
    fn fill(value: &Value, depth: usize, shape: &mut Vec<i64>, numbers: &mut Vec<f32>) {
        match value {
            Value::Array(items) => {
                if shape.len() == depth {
                    shape.push(items.len() as i64);
                }
                for item in items {
                    fill(item, depth + 1, shape, numbers);
                }
            }
            number => numbers.push(number.as_f64().unwrap() as f32),
        }
    }
    let (mut shape, mut numbers) = (Vec::new(), Vec::new());
    fill(value, 0, &mut shape, &mut numbers);
    Tensor::from_slice(&numbers).reshape(shape)
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    Vec::<f32>::try_from(&tensor.flatten(0, -1)).unwrap()
}

fn leaves(values: &[Value]) -> Vec<Tensor> {
    let leaf = |value| tensor(value).set_requires_grad(true);
    values.iter().map(leaf).collect()
}

fn handles(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(Tensor::shallow_clone).collect()
}

fn set_gradients(parameters: &[Tensor], gradients: &[Value]) {
    for (parameter, gradient) in parameters.iter().zip(gradients) {
        autograd::set_grad(parameter, Some(&tensor(gradient))).unwrap();
    }
}

/// A few roundings apart: kernels fuse a multiplication and an addition where they can.
#[track_caller]
fn assert_close(what: &str, parameters: &[Tensor], expected: &[Value]) {
    for (parameter, expected) in parameters.iter().zip(expected) {
        let (found, expected) = (floats(parameter), floats(&tensor(expected)));
        let close = |(found, expected): (&f32, &f32)| {
            (found - expected).abs() <= 1e-6 * expected.abs().max(0.1)
        };
        let all = found.iter().zip(&expected).all(close);
        assert!(all, "{what}: expected {expected:?}, found {found:?}");
    }
}

#[test]
fn both_modes_equal_the_recorded_ones() {
    let recording = recording();
    assert!(recording.cases.len() >= 6);
    for (name, case) in &recording.cases {
        let parameters = leaves(&recording.initial);
        let mut optimizer = case.optimizer(handles(&parameters));
        optimizer.train().unwrap();
        let mut kept = case.trained.iter().zip(&case.evaluated);
        for (number, gradients) in recording.gradients.iter().enumerate() {
            set_gradients(&parameters, gradients);
            optimizer.step().unwrap();
            let one = autograd::grad(&parameters[1]).unwrap().unwrap();
            assert_eq!(floats(&one), floats(&tensor(&gradients[1])), "{name}");
            optimizer.zero_grad().unwrap();
            if recording.kept_steps.contains(&(number + 1)) {
                let (trained, evaluated) = kept.next().unwrap();
                assert_close(&format!("{name} {number}, trained"), &parameters, trained);
                optimizer.eval().unwrap();
                // Again, it changes nothing.
                optimizer.eval().unwrap();
                assert_close(&format!("{name} {number}, eval"), &parameters, evaluated);
                optimizer.train().unwrap();
            }
        }
        assert!(kept.next().is_none());
        let state = optimizer.state_dict().unwrap();
        for (field, expected) in case.progress.as_object().unwrap() {
            let expected = expected.as_f64().unwrap();
            let found = match state.get(&format!("group.0.{field}")) {
                Some(StateValue::Float(found)) => *found,
                Some(StateValue::Int(found)) => *found as f64,
                other => panic!("{name} {field}: {other:?}"),
            };
            let close = (found - expected).abs() <= 1e-12 * expected.abs();
            assert!(close, "{name} {field}: expected {expected}, found {found}");
        }
    }
}

#[test]
fn a_saved_state_continues_to_the_last_bit_in_either_mode() {
    let recording = recording();
    for (name, case) in &recording.cases {
        for (stop, train) in [(0, true), (1, false), (7, true), (7, false)] {
            let whole = leaves(&recording.initial);
            let mut optimizer = case.optimizer(handles(&whole));
            optimizer.train().unwrap();
            let mut resumed = None;
            for (number, gradients) in recording.gradients.iter().enumerate() {
                if number == stop {
                    if !train {
                        optimizer.eval().unwrap();
                    }
                    let copy = |p: &Tensor| p.detach().copy().set_requires_grad(true);
                    let copies: Vec<_> = whole.iter().map(copy).collect();
                    let mut other = case.optimizer(handles(&copies));
                    let state = optimizer.state_dict().unwrap();
                    other.load_state_dict(&state).unwrap();
                    assert_eq!(other.step().is_ok(), train, "{name}: mode");
                    optimizer.train().unwrap();
                    other.train().unwrap();
                    if train {
                        // The step above had no gradients, but it was one.
                        optimizer.zero_grad().unwrap();
                        optimizer.step().unwrap();
                    }
                    resumed = Some((copies, other));
                }
                set_gradients(&whole, gradients);
                optimizer.step().unwrap();
                if let Some((copies, other)) = &mut resumed {
                    set_gradients(copies, gradients);
                    other.step().unwrap();
                }
            }
            let (copies, mut other) = resumed.unwrap();
            optimizer.eval().unwrap();
            other.eval().unwrap();
            for (left, right) in whole.iter().zip(&copies) {
                assert_eq!(floats(left), floats(right), "{name} stopped at {stop}");
            }
        }
    }
}

#[test]
fn a_parameter_may_join_later_and_lie_in_another_order() {
    let recording = recording();
    for (name, case) in &recording.cases {
        let first = tensor(&recording.initial[0]).set_requires_grad(true);
        let flipped = tensor(&recording.initial[1]).transpose(0, 1).contiguous();
        let second = flipped.transpose(0, 1).set_requires_grad(true);
        assert!(!second.is_contiguous());
        let both = vec![first.shallow_clone(), second.shallow_clone()];
        let mut optimizer = case.optimizer(both);
        optimizer.train().unwrap();
        for (number, gradients) in recording.gradients.iter().enumerate() {
            set_gradients(&[first.shallow_clone()], &gradients[..1]);
            if number == 3 {
                autograd::set_grad(&second, Some(&tensor(&gradients[1]))).unwrap();
            }
            let before = floats(&second);
            optimizer.step().unwrap();
            optimizer.zero_grad().unwrap();
            let moved = before != floats(&second);
            let moves = number == 3 && case.number("lr") > 0.0;
            assert_eq!(moved, moves, "{name}: step {number}");
        }
        let last = floats(&second);
        optimizer.eval().unwrap();
        optimizer.train().unwrap();
        for (before, after) in last.iter().zip(floats(&second)) {
            assert!((before - after).abs() < 1e-5, "{name}: {before} {after}");
        }
    }
}

fn leaf() -> Tensor {
    Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true)
}

#[test]
fn a_step_in_evaluation_mode_changes_nothing_and_says_what_to_do() {
    let weight = leaf();
    let config = AdamWScheduleFreeConfig::default();
    let mut optimizer = AdamWScheduleFree::new(vec![weight.shallow_clone()], config).unwrap();
    weight.sum(Kind::Float).backward();
    let message = optimizer.step().unwrap_err().to_string();
    assert!(message.contains("`train`"), "{message}");
    assert_eq!(floats(&weight), [1.0, 1.0]);
    assert_eq!(optimizer.learning_rates().step_count(), 0);
}

#[test]
fn settings_that_cannot_be_are_named() {
    let adamw = |config| AdamWScheduleFree::new(vec![leaf()], config).map(|_| ());
    let sgd = |config| SgdScheduleFree::new(vec![leaf()], config).map(|_| ());
    let base = AdamWScheduleFreeConfig::default();
    let refused = |made: Result<()>, named: &str| {
        let message = made.unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    };
    // With 0 there is no way back from the average.
    let betas = (0.0, 0.999);
    refused(
        adamw(AdamWScheduleFreeConfig { betas, ..base }),
        "first beta",
    );
    refused(adamw(AdamWScheduleFreeConfig { lr: -1.0, ..base }), "lr");
    refused(
        adamw(AdamWScheduleFreeConfig {
            r: f64::NAN,
            ..base
        }),
        "`r`",
    );
    let momentum = 1.0;
    let base = SgdScheduleFreeConfig::default();
    refused(sgd(SgdScheduleFreeConfig { momentum, ..base }), "momentum");
}

#[test]
fn a_state_of_the_other_optimizer_is_refused() {
    let adamw = AdamWScheduleFree::new(vec![leaf()], AdamWScheduleFreeConfig::default()).unwrap();
    let mut sgd = SgdScheduleFree::new(vec![leaf()], SgdScheduleFreeConfig::default()).unwrap();
    let state = adamw.state_dict().unwrap();
    let error = sgd.load_state_dict(&state).unwrap_err();
    assert!(matches!(error, Error::StateMismatch { .. }), "{error}");
}

#[test]
fn a_prepared_optimizer_changes_its_mode_on_every_rank() {
    ranks(&[1, 2], |_| -> Result<()> {
        let accelerator = Accelerator::builder()
            .gradient_accumulation_steps(NonZeroUsize::new(2).unwrap())
            .build()?;
        let weight = leaf();
        let config = SgdScheduleFreeConfig {
            lr: 0.5,
            momentum: 0.5,
            ..Default::default()
        };
        let optimizer = SgdScheduleFree::new(vec![weight.shallow_clone()], config)?;
        // Not needed, but allowed.
        let schedule = linear_schedule_with_warmup(&optimizer, 0, 100);
        let (mut optimizer, mut schedule) = accelerator.prepare((optimizer, schedule))?;
        optimizer.train()?;
        for _ in 0..4 {
            accelerator.backward(&weight.sum(Kind::Float))?;
            optimizer.step()?;
            schedule.step()?;
            optimizer.zero_grad()?;
        }
        let trained = weight.double_value(&[0]);
        // Also while gradients are accumulated.
        accelerator.gradient_state().set_sync_gradients(false);
        optimizer.eval()?;
        let evaluated = weight.double_value(&[0]);
        assert!(
            trained < evaluated && evaluated < 1.0,
            "{trained} {evaluated}"
        );
        optimizer.train()?;
        assert!((weight.double_value(&[0]) - trained).abs() < 1e-6);
        let boxed: Box<dyn Optimizer> = Box::new(optimizer.into_inner().unwrap());
        let mut boxed = accelerator.prepare(boxed)?;
        boxed.eval()?;
        assert!((weight.double_value(&[0]) - evaluated).abs() < 1e-6);
        Ok(())
    });
}
