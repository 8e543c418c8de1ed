//! Steps of Adam, Adagrad, RMSprop, Adafactor and Lamb against recorded ones.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside of test functions"
)]

use std::collections::BTreeMap;

use accelerate::optim::{
    Adafactor, AdafactorConfig, Adagrad, AdagradConfig, Adam, AdamConfig, Lamb, LambConfig,
    OneCycleLR, OneCycleLRConfig, Optimizer, RmsProp, RmsPropConfig, Scheduler, Sgd, SgdConfig,
    StateValue,
};
use accelerate_testkit::recorded_here;
use accelerate_torch::autograd;
use serde_json::Value;
use tch::{Device, Kind, Tensor};

#[derive(serde::Deserialize)]
struct Recording {
    made_with: MadeWith,
    initial: Vec<Value>,
    gradients: Vec<Vec<Value>>,
    kept_steps: Vec<usize>,
    cases: BTreeMap<String, Case>,
}

#[derive(serde::Deserialize)]
struct MadeWith {
    processor: String,
    kernels: String,
}

#[derive(serde::Deserialize)]
struct Case {
    optimizer: String,
    options: Value,
    params: Vec<Vec<Value>>,
}

impl Case {
    fn number(&self, name: &str) -> f64 {
        self.options[name].as_f64().unwrap()
    }

    fn flag(&self, name: &str) -> bool {
        self.options[name].as_bool().unwrap()
    }

    fn pair(&self, name: &str) -> (f64, f64) {
        let pair = &self.options[name];
        (pair[0].as_f64().unwrap(), pair[1].as_f64().unwrap())
    }

    fn optimizer(&self, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
        let weight_decay = self.number("weight_decay");
        match self.optimizer.as_str() {
            "Adam" => {
                let config = AdamConfig {
                    lr: self.number("lr"),
                    betas: self.pair("betas"),
                    eps: self.number("eps"),
                    weight_decay,
                    amsgrad: self.flag("amsgrad"),
                    maximize: self.flag("maximize"),
                };
                Box::new(Adam::new(parameters, config).unwrap())
            }
            "Adagrad" => {
                let config = AdagradConfig {
                    lr: self.number("lr"),
                    lr_decay: self.number("lr_decay"),
                    weight_decay,
                    initial_accumulator_value: self.number("initial_accumulator_value"),
                    eps: self.number("eps"),
                    maximize: self.flag("maximize"),
                };
                Box::new(Adagrad::new(parameters, config).unwrap())
            }
            "RMSprop" => {
                let config = RmsPropConfig {
                    lr: self.number("lr"),
                    alpha: self.number("alpha"),
                    eps: self.number("eps"),
                    weight_decay,
                    momentum: self.number("momentum"),
                    centered: self.flag("centered"),
                    maximize: self.flag("maximize"),
                };
                Box::new(RmsProp::new(parameters, config).unwrap())
            }
            "Adafactor" => {
                let config = AdafactorConfig {
                    lr: self.options["lr"].as_f64(),
                    eps: self.pair("eps"),
                    clip_threshold: self.number("clip_threshold"),
                    decay_rate: self.number("decay_rate"),
                    beta1: self.options["beta1"].as_f64(),
                    weight_decay,
                    scale_parameter: self.flag("scale_parameter"),
                    warmup_init: self.flag("warmup_init"),
                };
                Box::new(Adafactor::new(parameters, config).unwrap())
            }
            "Lamb" => {
                let config = LambConfig {
                    lr: self.number("lr"),
                    betas: self.pair("betas"),
                    eps: self.number("eps"),
                    weight_decay,
                    min_trust: self.number("min_trust"),
                    max_trust: self.number("max_trust"),
                    maximize: self.flag("maximize"),
                };
                Box::new(Lamb::new(parameters, config).unwrap())
            }
            other => panic!("unknown optimizer {other}"),
        }
    }
}

fn recording() -> Recording {
    let text = include_str!("../../../../tests/parity/fixtures/optimizer_rules.json");
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

fn bits(tensor: &Tensor) -> Vec<u32> {
    floats(tensor).into_iter().map(f32::to_bits).collect()
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

/// Adafactor's smallest parameter scale is one rounding apart, and Lamb is recorded in float64.
fn is_close(found: &Tensor, expected: &Tensor) -> bool {
    floats(found)
        .iter()
        .zip(floats(expected))
        .all(|(found, expected)| (found - expected).abs() <= 1e-6 * expected.abs().max(0.1))
}

/// As far as two processors are apart: small values come from differences of large ones.
fn is_close_to_the_largest(found: &Tensor, expected: &Tensor) -> bool {
    let largest = expected.abs().max().double_value(&[]);
    (found.detach() - expected).abs().max().double_value(&[]) <= 1e-6 * largest
}

#[test]
fn every_step_equals_the_recorded_one() {
    let recording = recording();
    assert!(recording.cases.len() >= 17);
    let MadeWith { processor, kernels } = &recording.made_with;
    let same_kernels = recorded_here(processor, kernels);
    for (name, case) in &recording.cases {
        // PyTorch's own RMSprop differs in the last bit from one kind of processor to another.
        let exact = match case.optimizer.as_str() {
            "Adafactor" | "Lamb" => false,
            "RMSprop" => same_kernels,
            _ => true,
        };
        let parameters = leaves(&recording.initial);
        let mut optimizer = case.optimizer(handles(&parameters));
        let mut kept = case.params.iter();
        for (number, gradients) in recording.gradients.iter().enumerate() {
            set_gradients(&parameters, gradients);
            optimizer.step().unwrap();
            let one = autograd::grad(&parameters[1]).unwrap().unwrap();
            assert_eq!(bits(&one), bits(&tensor(&gradients[1])), "{name}: gradient");
            optimizer.zero_grad().unwrap();
            if recording.kept_steps.contains(&(number + 1)) {
                for (parameter, expected) in parameters.iter().zip(kept.next().unwrap()) {
                    let expected = tensor(expected);
                    if exact {
                        assert_eq!(bits(parameter), bits(&expected), "{name} {number}");
                    } else {
                        let is_close = match case.optimizer.as_str() {
                            "RMSprop" => is_close_to_the_largest,
                            _ => is_close,
                        };
                        assert!(
                            is_close(parameter, &expected),
                            "{name} {number}: {:?} {:?}",
                            floats(parameter),
                            floats(&expected)
                        );
                    }
                }
            }
        }
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
                    other.learning_rates().set(0, 77.0);
                    let state = optimizer.state_dict().unwrap();
                    other.load_state_dict(&state).unwrap();
                    resumed = Some((copies, other));
                }
                set_gradients(&whole, gradients);
                optimizer.step().unwrap();
                if let Some((copies, other)) = &mut resumed {
                    set_gradients(copies, gradients);
                    other.step().unwrap();
                }
            }
            let (copies, _) = resumed.unwrap();
            for (left, right) in whole.iter().zip(&copies) {
                assert_eq!(bits(left), bits(right), "{name} stopped at {stop}");
            }
        }
    }
}

#[test]
fn a_parameter_may_join_later_and_lie_in_another_order() {
    let recording = recording();
    for (name, case) in &recording.cases {
        // The second parameter joins at step 3 and is a transposed view; alone it does the same.
        let transposed = |value: &Value| {
            let flipped = tensor(value).transpose(0, 1).contiguous();
            flipped.transpose(0, 1).set_requires_grad(true)
        };
        let first = tensor(&recording.initial[0]).set_requires_grad(true);
        let second = transposed(&recording.initial[1]);
        assert!(!second.is_contiguous());
        let alone = tensor(&recording.initial[1]).set_requires_grad(true);
        let mut both = case.optimizer(vec![first.shallow_clone(), second.shallow_clone()]);
        let mut single = case.optimizer(vec![alone.shallow_clone()]);
        for (number, gradients) in recording.gradients.iter().enumerate() {
            set_gradients(&[first.shallow_clone()], &gradients[..1]);
            if number >= 3 {
                let gradient = tensor(&gradients[1]);
                autograd::set_grad(&alone, Some(&gradient)).unwrap();
                let flipped = gradient.transpose(0, 1).contiguous().transpose(0, 1);
                autograd::set_grad(&second, Some(&flipped)).unwrap();
                single.step().unwrap();
            }
            both.step().unwrap();
            both.zero_grad().unwrap();
        }
        assert!(is_close(&second, &alone), "{name}: {second:?} {alone:?}");
        assert_ne!(
            bits(&second),
            bits(&tensor(&recording.initial[1])),
            "{name}"
        );
    }
}

#[test]
fn state_has_the_names_of_pytorch() {
    let recording = recording();
    let names = |case: &str| -> Vec<String> {
        let parameters = leaves(&recording.initial);
        let mut optimizer = recording.cases[case].optimizer(handles(&parameters));
        set_gradients(&parameters, &recording.gradients[0]);
        optimizer.step().unwrap();
        let state = optimizer.state_dict().unwrap();
        let own = state
            .iter()
            .filter_map(|(name, _)| name.strip_prefix("state.1."));
        own.map(str::to_owned).collect()
    };
    assert_eq!(names("adam_default"), ["step", "exp_avg", "exp_avg_sq"]);
    assert_eq!(names("adagrad_default"), ["step", "sum"]);
    assert_eq!(
        names("rmsprop_all"),
        ["step", "square_avg", "grad_avg", "momentum_buffer"]
    );
    assert_eq!(
        names("adafactor_average"),
        ["step", "exp_avg", "exp_avg_sq_row", "exp_avg_sq_col"]
    );
    assert_eq!(names("lamb_default"), ["step", "exp_avg", "exp_avg_sq"]);
}

#[test]
fn a_schedule_moves_the_momentum_that_is_saved() {
    let leaf = Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let mut optimizer = Sgd::new(vec![leaf.shallow_clone()], SgdConfig::new(0.1)).unwrap();
    let config = OneCycleLRConfig::new(10.try_into().unwrap());
    let mut schedule = OneCycleLR::new(&optimizer, 0.5, config).unwrap();
    for _ in 0..4 {
        leaf.sum(Kind::Float).backward();
        optimizer.step().unwrap();
        schedule.step().unwrap();
    }
    let state = optimizer.state_dict().unwrap();
    let momentum = optimizer.learning_rates().momentum(0).unwrap();
    assert!(momentum > 0.85 && momentum < 0.95, "{momentum}");
    assert!(matches!(state.get("group.0.momentum"), Some(StateValue::Float(m)) if *m == momentum));
    assert!(state.get("state.0.momentum_buffer").is_some());
    // RMSprop without momentum has no buffer for it.
    let plain = RmsProp::new(vec![leaf], RmsPropConfig::default()).unwrap();
    let message = OneCycleLR::new(&plain, 0.5, config)
        .unwrap_err()
        .to_string();
    assert!(message.contains("OneCycleLRConfig.momentum"), "{message}");
}

#[test]
fn relative_steps_are_told_and_wrong_settings_named() {
    let leaf = || Tensor::ones([2, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let weight = leaf();
    let config = AdafactorConfig::default();
    let mut optimizer = Adafactor::new(vec![weight.shallow_clone()], config).unwrap();
    weight.sum(Kind::Float).backward();
    optimizer.step().unwrap();
    assert_eq!(optimizer.learning_rates().all(), [0.01]);
    let refused = |config: AdafactorConfig| {
        let made = Adafactor::new(vec![leaf()], config).map(|_| ());
        made.unwrap_err().to_string()
    };
    let warmed = AdafactorConfig {
        lr: Some(0.1),
        warmup_init: true,
        ..config
    };
    assert!(refused(warmed).contains("AdafactorConfig.warmup_init"));
    let rising = AdafactorConfig {
        decay_rate: 0.5,
        ..config
    };
    assert!(refused(rising).contains("AdafactorConfig.decay_rate"));
    let bounds = LambConfig {
        min_trust: 2.0,
        max_trust: 1.0,
        ..LambConfig::default()
    };
    let message = Lamb::new(vec![leaf()], bounds).map(|_| ()).unwrap_err();
    assert!(message.to_string().contains("LambConfig.max_trust"));
}
