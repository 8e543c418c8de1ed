//! Optimizer steps and schedules, equal to PyTorch's to the last bit.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside of test functions"
)]

use std::collections::BTreeMap;

use accelerate::optim::{
    AdamW, AdamWConfig, Optimizer, ParamGroup, Scheduler, Sgd, SgdConfig,
    linear_schedule_with_warmup,
};
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
    options: Options,
    params: Vec<Vec<Value>>,
}

#[derive(serde::Deserialize)]
struct Options {
    lr: f64,
    weight_decay: f64,
    maximize: bool,
    betas: Option<(f64, f64)>,
    eps: Option<f64>,
    amsgrad: Option<bool>,
    momentum: Option<f64>,
    dampening: Option<f64>,
    nesterov: Option<bool>,
}

impl Case {
    fn optimizer(&self, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
        let Options {
            lr,
            weight_decay,
            maximize,
            ..
        } = self.options;
        match self.optimizer.as_str() {
            "AdamW" => {
                let config = AdamWConfig {
                    lr,
                    weight_decay,
                    maximize,
                    betas: self.options.betas.unwrap(),
                    eps: self.options.eps.unwrap(),
                    amsgrad: self.options.amsgrad.unwrap(),
                };
                Box::new(AdamW::new(parameters, config).unwrap())
            }
            "SGD" => {
                let config = SgdConfig {
                    lr,
                    weight_decay,
                    maximize,
                    momentum: self.options.momentum.unwrap(),
                    dampening: self.options.dampening.unwrap(),
                    nesterov: self.options.nesterov.unwrap(),
                };
                Box::new(Sgd::new(parameters, config).unwrap())
            }
            other => panic!("unknown optimizer {other}"),
        }
    }
}

fn recording() -> Recording {
    let text = include_str!("../../../../tests/parity/fixtures/adamw_sgd.json");
    serde_json::from_str(text).unwrap()
}

/// The numbers of nested lists, which are 32-bit floats written out in full.
fn flat(value: &Value) -> Vec<f32> {
    match value {
        Value::Array(items) => items.iter().flat_map(flat).collect(),
        number => vec![number.as_f64().unwrap() as f32],
    }
}

fn tensor(value: &Value) -> Tensor {
    let rows = value.as_array().unwrap();
    let numbers = Tensor::from_slice(&flat(value));
    if rows[0].is_array() {
        numbers.view([rows.len() as i64, -1])
    } else {
        numbers
    }
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    let numbers = Vec::<f32>::try_from(&tensor.flatten(0, -1)).unwrap();
    numbers.into_iter().map(f32::to_bits).collect()
}

fn leaves(values: &[Value]) -> Vec<Tensor> {
    values
        .iter()
        .map(|value| tensor(value).set_requires_grad(true))
        .collect()
}

fn handles(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(Tensor::shallow_clone).collect()
}

fn set_gradients(parameters: &[Tensor], gradients: &[Value]) {
    for (parameter, gradient) in parameters.iter().zip(gradients) {
        autograd::set_grad(parameter, Some(&tensor(gradient))).unwrap();
    }
}

#[test]
fn every_step_equals_the_recorded_one() {
    let recording = recording();
    assert!(recording.cases.len() >= 11);
    for (name, case) in &recording.cases {
        let parameters = leaves(&recording.initial);
        let mut optimizer = case.optimizer(handles(&parameters));
        let mut kept = case.params.iter();
        for (number, gradients) in recording.gradients.iter().enumerate() {
            set_gradients(&parameters, gradients);
            optimizer.step().unwrap();
            optimizer.zero_grad().unwrap();
            if recording.kept_steps.contains(&(number + 1)) {
                for (parameter, expected) in parameters.iter().zip(kept.next().unwrap()) {
                    assert_eq!(bits(parameter), bits(&tensor(expected)), "{name} {number}");
                }
            }
        }
        assert_eq!(
            optimizer.learning_rates().step_count(),
            recording.gradients.len() as u64
        );
    }
}

#[test]
fn a_saved_state_continues_to_the_last_bit() {
    let recording = recording();
    for (name, case) in &recording.cases {
        for stop in [0, 1, 7] {
            let whole = leaves(&recording.initial);
            let mut optimizer = case.optimizer(handles(&whole));
            let mut resumed = None;
            for (number, gradients) in recording.gradients.iter().enumerate() {
                if number == stop {
                    let copies: Vec<_> = whole
                        .iter()
                        .map(|p| p.detach().copy().set_requires_grad(true))
                        .collect();
                    let mut other = case.optimizer(handles(&copies));
                    // Settings come with the state too.
                    other.learning_rates().set(0, 77.0);
                    other
                        .load_state_dict(&optimizer.state_dict().unwrap())
                        .unwrap();
                    resumed = Some((copies, other));
                }
                set_gradients(&whole, gradients);
                optimizer.step().unwrap();
                if let Some((copies, other)) = &mut resumed {
                    set_gradients(copies, gradients);
                    other.step().unwrap();
                }
            }
            let (copies, other) = resumed.unwrap();
            for (left, right) in whole.iter().zip(&copies) {
                assert_eq!(bits(left), bits(right), "{name} stopped at {stop}");
            }
            assert_eq!(
                other.learning_rates().all(),
                optimizer.learning_rates().all()
            );
            assert_eq!(
                other.learning_rates().step_count(),
                recording.gradients.len() as u64
            );
        }
    }
}

#[test]
fn parameters_without_gradient_stand_still_and_may_join_later() {
    let recording = recording();
    for name in ["adamw_amsgrad", "sgd_nesterov"] {
        let case = &recording.cases[name];
        // The second parameter joins at step 3; alone it must do the same from there on.
        let (together, alone) = (leaves(&recording.initial), leaves(&recording.initial));
        let mut both = case.optimizer(handles(&together));
        let mut second = case.optimizer(vec![alone[1].shallow_clone()]);
        for (number, gradients) in recording.gradients.iter().enumerate() {
            set_gradients(&together[..1], &gradients[..1]);
            if number >= 3 {
                set_gradients(&together[1..], &gradients[1..]);
                set_gradients(&alone[1..], &gradients[1..]);
                second.step().unwrap();
            }
            both.step().unwrap();
            assert_eq!(bits(&together[1]), bits(&alone[1]), "{name} {number}");
            both.zero_grad().unwrap();
        }
        assert_ne!(bits(&together[0]), bits(&alone[0]));
    }
}

#[test]
fn kinds_may_be_mixed_in_a_group() {
    let single = Tensor::ones([3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let double = Tensor::ones([3], (Kind::Double, Device::Cpu)).set_requires_grad(true);
    let parameters = vec![single.shallow_clone(), double.shallow_clone()];
    let mut optimizer = Sgd::new(parameters, SgdConfig::new(0.5)).unwrap();
    let loss = single.sum(Kind::Float) + double.sum(Kind::Double);
    loss.backward();
    optimizer.step().unwrap();
    assert_eq!(
        (single.double_value(&[0]), double.double_value(&[2])),
        (0.5, 0.5)
    );
    optimizer.zero_grad_in_place().unwrap();
    assert_eq!(
        autograd::grad(&single).unwrap().unwrap().double_value(&[1]),
        0.0
    );
    optimizer.zero_grad().unwrap();
    assert!(autograd::grad(&double).unwrap().is_none());
}

#[test]
fn groups_have_settings_of_their_own() {
    let leaf = || Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let (decayed, plain) = (leaf(), leaf());
    let groups = vec![
        ParamGroup::new(vec![decayed.shallow_clone()]).weight_decay(0.5),
        ParamGroup::new(vec![plain.shallow_clone()]).lr(0.25),
    ];
    let mut optimizer = Sgd::new(groups, SgdConfig::new(0.5)).unwrap();
    assert_eq!(optimizer.learning_rates().all(), [0.5, 0.25]);
    (decayed.sum(Kind::Float) + plain.sum(Kind::Float)).backward();
    optimizer.step().unwrap();
    assert_eq!(decayed.double_value(&[0]), 1.0 - 0.5 * 1.5);
    assert_eq!(plain.double_value(&[0]), 0.75);
}

#[derive(serde::Deserialize)]
struct Schedules {
    schedules: Vec<Schedule>,
}

#[derive(serde::Deserialize)]
struct Schedule {
    base_lr: f64,
    warmup_steps: u64,
    total_steps: u64,
    lr: Vec<f64>,
}

#[test]
fn the_linear_schedule_sets_the_recorded_rates() {
    let text = include_str!("../../../../tests/parity/fixtures/linear_schedule.json");
    let recording: Schedules = serde_json::from_str(text).unwrap();
    assert!(recording.schedules.len() >= 6);
    for case in recording.schedules {
        let leaf = Tensor::zeros([1], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let optimizer = Sgd::new(vec![leaf], SgdConfig::new(case.base_lr)).unwrap();
        let mut schedule =
            linear_schedule_with_warmup(&optimizer, case.warmup_steps, case.total_steps);
        for (step, expected) in case.lr.iter().enumerate() {
            let found = optimizer.learning_rates().all();
            assert_eq!(found, [*expected], "step {step} of {}", case.total_steps);
            assert_eq!(schedule.last_lr(), found);
            schedule.step().unwrap();
        }
    }
}
