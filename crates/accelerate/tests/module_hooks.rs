//! Hooks around the backward pass of modules: order and gradients as PyTorch's.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside of test functions"
)]

use std::sync::{Arc, Mutex};

use accelerate::nn::{BackwardHook, Forward, HookId, Module, ModuleState, Parameter};
use accelerate::tch::{self, Tensor};
use accelerate::{Error, Result};
use accelerate_torch::autograd::{self, BackwardOptions};
use serde::Deserialize;

type Gradients = Vec<Option<Vec<f32>>>;

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    log: Vec<Entry>,
    left: std::collections::BTreeMap<String, Option<Vec<f32>>>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Entry {
    hook: String,
    gradients: Vec<Gradients>,
}

fn case(name: &str) -> Case {
    #[derive(Deserialize)]
    struct Fixture {
        cases: Vec<Case>,
    }
    let text = include_str!("../../../tests/parity/fixtures/module_hooks.json");
    let fixture: Fixture = serde_json::from_str(text).unwrap();
    let found = fixture.cases.into_iter().find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("the fixture has no case `{name}`"))
}

/// `x · weight`
#[derive(Debug, Module)]
struct Scale {
    weight: Parameter,
    state: ModuleState,
}

impl Scale {
    fn new(values: &[f32]) -> Result<Self> {
        Ok(Self {
            weight: Parameter::new(Tensor::from_slice(values))?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for Scale {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        Ok(x.f_mul(self.weight.tensor())?)
    }
}

#[derive(Debug, Module)]
struct Chain {
    first: Scale,
    second: Scale,
    state: ModuleState,
}

impl Chain {
    fn new() -> Result<Self> {
        Ok(Self {
            first: Scale::new(&[2.0, 3.0])?,
            second: Scale::new(&[5.0, 7.0])?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for Chain {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        self.second.call(self.first.call(x)?)
    }
}

/// Two outputs from three inputs, of which the third is not used.
#[derive(Debug, Module)]
struct Pair {
    weight: Parameter,
    state: ModuleState,
}

impl Forward for Pair {
    type Input = (Tensor, Tensor, Tensor);
    type Output = (Tensor, Tensor);

    fn forward(&self, (a, b, _unused): (Tensor, Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
        let weight = self.weight.tensor();
        Ok((a.f_mul(weight)?, b.f_mul(weight)?))
    }
}

type Log = Arc<Mutex<Vec<Entry>>>;

/// Writes down what it sees, and changes it by a factor.
struct Probe {
    name: &'static str,
    log: Log,
    before: Option<f64>,
    after: Option<f64>,
}

impl Probe {
    fn on(
        module: &dyn Module,
        log: &Log,
        name: &'static str,
        before: Option<f64>,
        after: Option<f64>,
    ) -> HookId {
        let log = Arc::clone(log);
        let hook = Self {
            name,
            log,
            before,
            after,
        };
        module.add_backward_hook(Arc::new(hook)).unwrap()
    }

    fn note(&self, when: &str, groups: &[&[Option<Tensor>]]) {
        let gradients = groups
            .iter()
            .map(|group| group.iter().map(|tensor| plain(tensor.as_ref())).collect())
            .collect();
        let hook = format!("{} {when}", self.name);
        self.log.lock().unwrap().push(Entry { hook, gradients });
    }
}

fn scale(gradients: &mut [Option<Tensor>], factor: Option<f64>) -> Result<()> {
    for gradient in gradients.iter_mut().flatten() {
        if let Some(factor) = factor {
            *gradient = gradient.f_mul_scalar(factor)?;
        }
    }
    Ok(())
}

fn plain(tensor: Option<&Tensor>) -> Option<Vec<f32>> {
    tensor.map(|tensor| Vec::try_from(tensor.detach()).unwrap())
}

impl BackwardHook for Probe {
    fn before_backward(
        &self,
        _class: &'static str,
        grad_output: &mut [Option<Tensor>],
    ) -> Result<()> {
        self.note("before", &[grad_output]);
        scale(grad_output, self.before)
    }

    fn after_backward(
        &self,
        _class: &'static str,
        grad_input: &mut [Option<Tensor>],
        grad_output: &[Option<Tensor>],
    ) -> Result<()> {
        self.note("after", &[grad_input, grad_output]);
        scale(grad_input, self.after)
    }
}

fn leaf(values: &[f32]) -> Tensor {
    Tensor::from_slice(values).set_requires_grad(true)
}

fn run_backward(output: &Tensor, retain_graph: bool) -> Result<()> {
    let options = BackwardOptions {
        retain_graph,
        ..BackwardOptions::default()
    };
    let loss = output.f_sum(tch::Kind::Float)?;
    Ok(autograd::backward(&[loss], None, options)?)
}

fn assert_left(case: &Case, found: &[(&str, &Tensor)]) -> Result<()> {
    assert_eq!(case.left.len(), found.len());
    for (name, tensor) in found {
        let gradient = autograd::grad(tensor)?;
        assert_eq!(plain(gradient.as_ref()), case.left[*name], "{name}");
    }
    Ok(())
}

#[test]
fn hooks_of_nested_modules_run_in_order_and_change_gradients() -> Result<()> {
    let (case, model, log) = (case("chain"), Chain::new()?, Log::default());
    Probe::on(&model, &log, "model", None, None);
    Probe::on(&model.first, &log, "first", Some(10.0), Some(2.0));
    Probe::on(&model.first, &log, "first again", None, None);
    Probe::on(&model.second, &log, "second", None, Some(3.0));
    let x = leaf(&[1.0, 1.0]);
    run_backward(&model.call(&x)?, false)?;
    assert_eq!(*log.lock().unwrap(), case.log);
    let (first, second) = (model.first.weight.tensor(), model.second.weight.tensor());
    assert_left(&case, &[("x", &x), ("first", first), ("second", second)])
}

#[test]
fn without_an_input_gradient_the_second_hook_follows_the_first() -> Result<()> {
    let (case, model, log) = (case("no_input_gradient"), Chain::new()?, Log::default());
    Probe::on(&model, &log, "model", Some(2.0), None);
    Probe::on(&model.first, &log, "first", None, None);
    let x = Tensor::from_slice(&[1f32, 1.0]);
    run_backward(&model.call(&x)?, false)?;
    assert_eq!(*log.lock().unwrap(), case.log);
    let (first, second) = (model.first.weight.tensor(), model.second.weight.tensor());
    assert_left(&case, &[("x", &x), ("first", first), ("second", second)])
}

#[test]
fn what_takes_no_part_has_none_or_zeros() -> Result<()> {
    let (mut case, log) = (case("pair"), Log::default());
    let model = Pair {
        weight: Parameter::new(Tensor::from_slice(&[2f32, 3.0]))?,
        state: ModuleState::default(),
    };
    Probe::on(&model, &log, "pair", None, None);
    let (a, b) = (leaf(&[1.0, 2.0]), Tensor::from_slice(&[3f32, 4.0]));
    let unused = leaf(&[5.0, 6.0]);
    let (first, _) = model.call((&a, &b, &unused))?;
    run_backward(&first, false)?;
    // PyTorch has zeros for an input that needs no gradient beside one that does.
    assert_eq!(case.log[1].gradients[0][1].take(), Some(vec![0.0, 0.0]));
    assert_eq!(*log.lock().unwrap(), case.log);
    let weight = model.weight.tensor();
    assert_left(
        &case,
        &[
            ("a", &a),
            ("b", &b),
            ("unused", &unused),
            ("weight", weight),
        ],
    )
}

#[test]
fn a_pass_keeps_the_hooks_it_was_called_with() -> Result<()> {
    let (case, model, log) = (case("twice"), Scale::new(&[2.0, 3.0])?, Log::default());
    let id = Probe::on(&model, &log, "scale", None, Some(2.0));
    let x = leaf(&[1.0, 1.0]);
    let output = model.call(&x)?.f_sum(tch::Kind::Float)?;
    assert!(model.state().unwrap().remove_hook(id));
    assert!(!model.state().unwrap().remove_hook(id));
    run_backward(&output, true)?;
    run_backward(&output, false)?;
    run_backward(&model.call(&x)?, false)?;
    assert_eq!(*log.lock().unwrap(), case.log);
    assert_left(&case, &[("x", &x), ("weight", model.weight.tensor())])
}

#[test]
fn nothing_runs_where_nothing_is_recorded() -> Result<()> {
    let (model, log) = (Scale::new(&[2.0, 3.0])?, Log::default());
    Probe::on(&model, &log, "scale", None, None);
    let x = leaf(&[1.0, 1.0]);
    let output = tch::no_grad(|| model.call(&x))?;
    assert!(!output.requires_grad());
    model.set_requires_grad(false)?;
    let output = model.call(Tensor::from_slice(&[1f32, 1.0]))?;
    assert!(!output.requires_grad());
    assert!(log.lock().unwrap().is_empty());
    Ok(())
}

/// Fails before the backward pass, or puts a gradient where none can be.
struct Wrong {
    early: bool,
}

impl BackwardHook for Wrong {
    fn before_backward(
        &self,
        class: &'static str,
        _gradients: &mut [Option<Tensor>],
    ) -> Result<()> {
        if self.early {
            return Err(Error::data(format!("no gradient for {class} today")));
        }
        Ok(())
    }

    fn after_backward(
        &self,
        _class: &'static str,
        grad_input: &mut [Option<Tensor>],
        _grad_output: &[Option<Tensor>],
    ) -> Result<()> {
        grad_input[0] = Some(Tensor::from(1.0f32));
        Ok(())
    }
}

#[test]
fn errors_of_hooks_come_out_of_the_backward_pass() -> Result<()> {
    for (early, expected) in [
        (true, "no gradient for Scale today"),
        (false, "no gradient for inputs of `Scale` that need none"),
    ] {
        let model = Scale::new(&[2.0, 3.0])?;
        model.add_backward_hook(Arc::new(Wrong { early }))?;
        let output = model.call(Tensor::from_slice(&[1f32, 1.0]))?;
        let mut error: &dyn std::error::Error = &run_backward(&output, false).unwrap_err();
        let mut text = error.to_string();
        while let Some(source) = error.source() {
            text = format!("{text}: {source}");
            error = source;
        }
        assert!(text.contains(expected), "`{expected}` is not in: {text}");
    }
    Ok(())
}

#[test]
fn a_list_takes_no_hook() -> Result<()> {
    let list = vec![Scale::new(&[1.0])?];
    let error = list
        .add_backward_hook(Arc::new(Wrong { early: true }))
        .unwrap_err();
    assert!(matches!(error, Error::HookOnContainer { .. }), "{error}");
    Ok(())
}
