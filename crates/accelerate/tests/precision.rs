//! Mixed precision, loss scaling and clipping, against PyTorch's numbers where there are any.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of test functions"
)]

use std::cell::Cell;
use std::num::{NonZeroU32, NonZeroUsize};
use std::rc::Rc;

use accelerate::accumulation::GradientAccumulationPlugin;
use accelerate::nn::{
    Activation, ActivationFunction, Factory, Forward, LayerNorm, Linear, Module, ModuleState,
};
use accelerate::optim::{Optimizer, Scheduler, Sgd, SgdConfig, linear_schedule_with_warmup};
use accelerate::precision::{AutocastKwargs, GradScaler, GradScalerKwargs, MixedPrecision};
use accelerate::{Accelerator, AcceleratorBuilder, ClipNorm, Error, Result};
use accelerate_testkit::{Rank, ranks, recorded_here};
use accelerate_torch::{autocast, autograd};
use serde_json::Value;
use tch::{Device, Kind, Reduction, Tensor};

fn numbers(value: &Value, found: &mut Vec<f32>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| numbers(item, found)),
        other => found.push(other.as_f64().unwrap() as f32),
    }
}

/// The numbers of nested lists in one dimension.
fn flat(value: &Value) -> Tensor {
    let mut found = Vec::new();
    numbers(value, &mut found);
    Tensor::from_slice(&found)
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    let flat = tensor.detach().to_kind(Kind::Float).flatten(0, -1);
    let numbers = Vec::<f32>::try_from(flat).unwrap();
    numbers.into_iter().map(f32::to_bits).collect()
}

fn number(tensor: &Tensor) -> f64 {
    tensor.double_value(&[0])
}

fn leaf(values: &[f32]) -> Tensor {
    Tensor::from_slice(values).set_requires_grad(true)
}

fn set_gradient(parameter: &Tensor, gradient: f32) {
    let gradient = parameter.detach().f_full_like(f64::from(gradient)).unwrap();
    autograd::set_grad(parameter, Some(&gradient)).unwrap();
}

fn gradient(parameter: &Tensor) -> f64 {
    number(&autograd::grad(parameter).unwrap().unwrap())
}

fn sgd(parameters: &[&Tensor], lr: f64) -> Sgd {
    let parameters: Vec<Tensor> = parameters.iter().map(|one| one.shallow_clone()).collect();
    Sgd::new(parameters, SgdConfig::new(lr)).unwrap()
}

fn scaler(init_scale: f64, growth_interval: u32) -> GradScaler {
    GradScaler::new(GradScalerKwargs {
        init_scale,
        growth_interval: NonZeroU32::new(growth_interval).unwrap(),
        ..Default::default()
    })
    .unwrap()
}

/// Scales nothing in particular, so that the scaler knows its scale.
fn begin(scaler: &GradScaler) -> f64 {
    let _ = scaler.scale(&Tensor::from(0f32)).unwrap();
    scaler.scale_value().unwrap()
}

fn bf16() -> AcceleratorBuilder {
    Accelerator::builder()
        .cpu(true)
        .mixed_precision(MixedPrecision::Bf16)
}

/// fp16 on a CPU, with a small scale.
fn fp16(init_scale: f64) -> AcceleratorBuilder {
    Accelerator::builder()
        .cpu(true)
        .mixed_precision(MixedPrecision::Fp16)
        .fp16_on_cpu(true)
        .grad_scaler_kwargs(GradScalerKwargs {
            init_scale,
            ..Default::default()
        })
}

#[test]
fn clipping_equals_pytorchs() -> Result<()> {
    let text = include_str!("../../../tests/parity/fixtures/clipping.json");
    let recording: Value = serde_json::from_str(text).unwrap();
    let accelerator = Accelerator::builder().cpu(true).build()?;
    for case in recording["cases"].as_array().unwrap() {
        let gradients = recording["gradients"].as_array().unwrap();
        let parameters: Vec<Tensor> = gradients
            .iter()
            .map(|gradient| {
                let gradient = flat(gradient);
                let parameter = gradient.zeros_like().set_requires_grad(true);
                autograd::set_grad(&parameter, Some(&gradient)).unwrap();
                parameter
            })
            .collect();
        let options = ClipNorm {
            norm_type: case["norm_type"].as_str().unwrap().parse().unwrap(),
            error_if_nonfinite: true,
        };
        let max_norm = case["max_norm"].as_f64().unwrap();
        let norm = accelerator.clip_grad_norm_with(&parameters, max_norm, options)?;
        assert_eq!(bits(&norm.unwrap()), bits(&flat(&case["norm"])), "{case}");
        for (parameter, expected) in parameters.iter().zip(case["clipped"].as_array().unwrap()) {
            let clipped = autograd::grad(parameter)?.unwrap();
            assert_eq!(bits(&clipped), bits(&flat(expected)), "{case}");
        }
    }
    Ok(())
}

#[test]
fn clipping_minds_its_edges() -> Result<()> {
    let accelerator = Accelerator::builder().cpu(true).build()?;
    let without = leaf(&[1.0]);
    let none = accelerator.clip_grad_norm(&[&without], 1.0)?.unwrap();
    assert_eq!(none.double_value(&[]), 0.0);
    let (a, b) = (leaf(&[0.0]), leaf(&[0.0]));
    set_gradient(&a, 3.0);
    set_gradient(&b, f32::INFINITY);
    let strict = ClipNorm {
        error_if_nonfinite: true,
        ..Default::default()
    };
    assert!(
        accelerator
            .clip_grad_norm_with(&[&a, &b], 1.0, strict)
            .is_err()
    );
    assert_eq!(gradient(&a), 3.0, "a refused call changes nothing");
    accelerator.clip_grad_value(&[&a, &b, &without], 2.5)?;
    assert_eq!((gradient(&a), gradient(&b)), (2.5, 2.5));
    set_gradient(&a, -7.0);
    accelerator.clip_grad_value(&[&a], 2.5)?;
    assert_eq!(gradient(&a), -2.5);
    assert!(accelerator.clip_grad_norm(&[&a], f64::NAN).is_err());
    assert!(accelerator.clip_grad_value(&[&a], f64::NAN).is_err());
    Ok(())
}

#[test]
fn the_scale_follows_the_measured_trace() -> Result<()> {
    let weight = leaf(&[0.0]);
    let mut optimizer = sgd(&[&weight], 1.0);
    let scaler = scaler(1024.0, 2);
    let mut trace = Vec::new();
    for step in 0..6 {
        let scale = begin(&scaler) as f32;
        set_gradient(&weight, if step == 2 { f32::INFINITY } else { scale });
        assert_eq!(scaler.step(&mut optimizer)?, step != 2);
        scaler.update()?;
        trace.push((
            number(&weight),
            scaler.scale_value()?,
            scaler.growth_tracker()?,
        ));
    }
    let expected = [
        (-1.0, 1024.0, 1),
        (-2.0, 2048.0, 0),
        (-2.0, 1024.0, 0),
        (-3.0, 1024.0, 1),
        (-4.0, 2048.0, 0),
        (-5.0, 2048.0, 1),
    ];
    assert_eq!(trace, expected);
    Ok(())
}

#[test]
fn the_scaler_equals_pytorchs_to_the_last_bit() -> Result<()> {
    let text = include_str!("../../../tests/parity/fixtures/grad_scaler.json");
    let recording: Value = serde_json::from_str(text).unwrap();
    let setting = |name: &str| recording["scaler"][name].as_f64().unwrap();
    let scaler = GradScaler::new(GradScalerKwargs {
        init_scale: setting("init_scale"),
        growth_factor: setting("growth_factor"),
        backoff_factor: setting("backoff_factor"),
        growth_interval: NonZeroU32::new(setting("growth_interval") as u32).unwrap(),
        enabled: true,
    })?;
    let initial = recording["initial"].as_array().unwrap();
    let parameters: Vec<Tensor> = initial
        .iter()
        .map(|one| flat(one).set_requires_grad(true))
        .collect();
    let mut config = SgdConfig::new(recording["sgd"]["lr"].as_f64().unwrap());
    config.momentum = recording["sgd"]["momentum"].as_f64().unwrap();
    let own = parameters
        .iter()
        .map(Tensor::shallow_clone)
        .collect::<Vec<_>>();
    let mut optimizer = Sgd::new(own, config)?;
    let steps = recording["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| !step["bad"].is_null()));
    for (place, step) in (0i64..).zip(steps) {
        let scale = begin(&scaler);
        for (one, gradient) in parameters.iter().zip(step["gradients"].as_array().unwrap()) {
            let scaled = flat(gradient).f_mul_scalar(scale)?;
            autograd::set_grad(one, Some(&scaled))?;
        }
        if let Some(bad) = step["bad"].as_str() {
            let at = (place % 3) * 7 + place % 7;
            let gradient = autograd::grad(&parameters[1])?.unwrap();
            let bad: f64 = bad.parse().unwrap();
            let _ = gradient.f_narrow(0, at, 1)?.f_fill_(bad)?;
        }
        if place % 2 == 0 {
            scaler.unscale(&optimizer)?;
        }
        let stepped = scaler.step(&mut optimizer)?;
        scaler.update()?;
        assert_eq!(stepped, step["stepped"].as_bool().unwrap(), "step {place}");
        assert_eq!(scaler.scale_value()?, step["scale"].as_f64().unwrap());
        assert_eq!(scaler.growth_tracker()?, step["tracker"].as_i64().unwrap());
        for (one, expected) in parameters
            .iter()
            .zip(step["parameters"].as_array().unwrap())
        {
            assert_eq!(bits(one), bits(&flat(expected)), "step {place}");
        }
    }
    Ok(())
}

#[test]
fn a_scaler_is_used_in_order() -> Result<()> {
    let weight = leaf(&[0.0]);
    let mut optimizer = sgd(&[&weight], 1.0);
    let scaler = scaler(8.0, 100);
    begin(&scaler);
    let message = |result: Result<()>| result.unwrap_err().to_string();
    assert!(message(scaler.update()).contains("has stepped"));
    assert!(message(scaler.step(&mut optimizer).map(drop)).contains("no gradient"));
    set_gradient(&weight, 8.0);
    scaler.unscale(&optimizer)?;
    assert_eq!(gradient(&weight), 1.0);
    assert!(message(scaler.unscale(&optimizer)).contains("a second call"));
    assert!(scaler.step(&mut optimizer)?);
    assert_eq!(number(&weight), -1.0, "divided once");
    assert!(message(scaler.step(&mut optimizer).map(drop)).contains("a second step"));
    assert!(message(scaler.unscale(&optimizer)).contains("has stepped"));
    scaler.update()?;
    let half = Tensor::zeros([1], (Kind::Half, Device::Cpu)).set_requires_grad(true);
    set_gradient(&half, 1.0);
    begin(&scaler);
    assert!(message(scaler.unscale(&sgd(&[&half], 1.0))).contains("float16"));
    scaler.update_to(32.0)?;
    assert_eq!(begin(&scaler), 32.0);
    assert!(scaler.update_to(0.0).is_err());
    for wrong in [
        GradScalerKwargs {
            growth_factor: 1.0,
            ..Default::default()
        },
        GradScalerKwargs {
            backoff_factor: 1.0,
            ..Default::default()
        },
        GradScalerKwargs {
            init_scale: f64::NAN,
            ..Default::default()
        },
    ] {
        assert!(GradScaler::new(wrong).is_err());
    }
    let off = GradScaler::new(GradScalerKwargs {
        enabled: false,
        ..Default::default()
    })?;
    assert_eq!(begin(&off), 1.0);
    set_gradient(&weight, f32::NAN);
    assert!(off.step(&mut optimizer)?, "it looks at nothing");
    off.update()?;
    assert!(off.state_dict()?.is_empty());
    Ok(())
}

#[test]
fn a_saved_scaler_goes_on() -> Result<()> {
    let weight = leaf(&[0.0]);
    let mut optimizer = sgd(&[&weight], 1.0);
    let first = scaler(1024.0, 3);
    let good_step = |scaler: &GradScaler, optimizer: &mut Sgd| -> Result<()> {
        begin(scaler);
        set_gradient(&weight, 1.0);
        scaler.step(optimizer)?;
        scaler.update()
    };
    good_step(&first, &mut optimizer)?;
    good_step(&first, &mut optimizer)?;
    let state = first.state_dict()?;
    let names: Vec<&str> = state.iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "scale",
            "growth_factor",
            "backoff_factor",
            "growth_interval",
            "_growth_tracker"
        ]
    );
    // Into a new one, and into one that has been at work.
    let used = scaler(2.0, 100);
    good_step(&used, &mut optimizer)?;
    for other in [scaler(2.0, 100), used] {
        other.load_state_dict(&state)?;
        assert_eq!((other.scale_value()?, other.growth_tracker()?), (1024.0, 2));
        good_step(&other, &mut optimizer)?;
        assert_eq!((other.scale_value()?, other.growth_tracker()?), (2048.0, 0));
        let nothing = other.load_state_dict(&Default::default());
        let Err(Error::StateMismatch { problems, .. }) = nothing else {
            panic!("an empty state is no state");
        };
        assert_eq!(problems.len(), 5);
        assert_eq!(other.scale_value()?, 2048.0);
    }
    Ok(())
}

/// A layer that remembers the kind of what came out of it.
#[derive(Module)]
struct Watched {
    inner: Linear,
    #[module(skip)]
    seen: Rc<Cell<Kind>>,
    #[module(skip)]
    fails: Rc<Cell<bool>>,
    state: ModuleState,
}

impl Watched {
    fn new() -> Result<Self> {
        Ok(Self {
            inner: Linear::new(2, 2, &Factory::default())?,
            seen: Rc::new(Cell::new(Kind::Bool)),
            fails: Rc::default(),
            state: ModuleState::default(),
        })
    }
}

impl Forward for Watched {
    type Input = Tensor;
    type Output = (Tensor, Vec<Tensor>);

    fn forward(&self, input: Tensor) -> Result<Self::Output> {
        let out = self.inner.call(input)?;
        self.seen.set(out.f_kind()?);
        if self.fails.get() {
            return Err(Error::data("no more memory"));
        }
        Ok((out, vec![Tensor::from(1i64), Tensor::from(1f64)]))
    }
}

fn ones() -> Tensor {
    Tensor::ones([3, 2], (Kind::Float, Device::Cpu))
}

#[test]
fn a_prepared_model_computes_in_bf16_and_answers_in_fp32() -> Result<()> {
    let accelerator = bf16().build()?;
    assert_eq!(accelerator.mixed_precision(), MixedPrecision::Bf16);
    assert!(accelerator.scaler().is_none());
    let model = accelerator.prepare(Watched::new()?)?;
    let (out, others) = model.call(ones())?;
    assert_eq!(
        (model.seen.get(), out.kind()),
        (Kind::BFloat16, Kind::Float)
    );
    assert_eq!(
        (others[0].kind(), others[1].kind()),
        (Kind::Int64, Kind::Double)
    );
    // Outside, operations are not cast, unless in a scope.
    assert_eq!(out.matmul(&out.tr()).kind(), Kind::Float);
    {
        let scope = accelerator.autocast()?;
        assert!(scope.is_active());
        assert_eq!(out.matmul(&out.tr()).kind(), Kind::BFloat16);
        let _off = accelerator.autocast_with(AutocastKwargs {
            enabled: false,
            cache_enabled: Some(false),
        })?;
        assert_eq!(out.matmul(&out.tr()).kind(), Kind::Float);
        assert!(!autocast::state(Device::Cpu)?.cache);
    }
    assert_eq!(out.matmul(&out.tr()).kind(), Kind::Float);
    let loss = out.f_square()?.f_mean(None)?;
    assert_eq!(loss.kind(), Kind::Float);
    accelerator.backward(&loss)?;
    let weight = model.parameters()[0].tensor().shallow_clone();
    assert_eq!(autograd::grad(&weight)?.unwrap().kind(), Kind::Float);
    // Models for evaluation are cast too.
    let evaluated = accelerator.prepare_for_evaluation(Watched::new()?)?;
    let _ = evaluated.call(ones())?;
    assert_eq!(evaluated.seen.get(), Kind::BFloat16);
    Ok(())
}

#[test]
fn the_conversion_of_outputs_can_be_turned_off_and_taken_away() -> Result<()> {
    let half = bf16().convert_outputs_to_fp32(false).build()?;
    let model = half.prepare(Watched::new()?)?;
    assert_eq!(model.call(ones())?.0.kind(), Kind::BFloat16);
    let accelerator = bf16().build()?;
    let kept = accelerator.unwrap_model(accelerator.prepare(Watched::new()?)?);
    assert_eq!(kept.call(ones())?.0.kind(), Kind::Float);
    assert_eq!(kept.seen.get(), Kind::BFloat16);
    let bare = accelerator.unwrap_model_with(accelerator.prepare(Watched::new()?)?, false);
    let _ = bare.call(ones())?;
    assert_eq!(bare.seen.get(), Kind::Float);
    Ok(())
}

#[test]
fn a_forward_pass_that_fails_ends_autocast() -> Result<()> {
    let accelerator = bf16().build()?;
    let model = accelerator.prepare(Watched::new()?)?;
    model.fails.set(true);
    assert!(model.call(ones()).is_err());
    assert!(!autocast::state(Device::Cpu)?.enabled);
    let wrong_width = Tensor::ones([3, 5], (Kind::Float, Device::Cpu));
    assert!(model.call(wrong_width).is_err());
    assert!(!autocast::state(Device::Cpu)?.enabled);
    model.fails.set(false);
    assert_eq!(model.call(ones())?.0.kind(), Kind::Float);
    Ok(())
}

#[test]
fn fp16_on_a_cpu_is_fp32_unless_it_is_asked_for() -> Result<()> {
    let plain = Accelerator::builder()
        .cpu(true)
        .mixed_precision(MixedPrecision::Fp16)
        .build()?;
    assert_eq!(plain.mixed_precision(), MixedPrecision::Fp16);
    assert!(plain.scaler().is_none() && !plain.precision().is_native_amp());
    assert!(!plain.autocast()?.is_active());
    let model = plain.prepare(Watched::new()?)?;
    let _ = model.call(ones())?;
    assert_eq!(model.seen.get(), Kind::Float);
    let real = fp16(8.0).build()?;
    let model = real.prepare(Watched::new()?)?;
    let _ = model.call(ones())?;
    assert_eq!(model.seen.get(), Kind::Half);
    let fp8 = Accelerator::builder()
        .cpu(true)
        .mixed_precision(MixedPrecision::Fp8)
        .build();
    assert!(fp8.unwrap_err().to_string().contains("8.9"));
    Ok(())
}

#[derive(Module)]
struct Classifier {
    first: Linear,
    norm: LayerNorm,
    activation: Activation,
    last: Linear,
    state: ModuleState,
}

impl Forward for Classifier {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let hidden = self.norm.call(self.first.call(input)?)?;
        self.last.call(self.activation.call(hidden)?)
    }
}

#[test]
fn bf16_on_a_cpu_gives_pytorchs_numbers() -> Result<()> {
    let text = include_str!("../../../tests/parity/fixtures/autocast_bf16.json");
    let recording: Value = serde_json::from_str(text).unwrap();
    // As recorded: layer norm sums its gradients in as many parts as there are threads.
    tch::set_num_threads(1);
    let factory = Factory::default();
    let model = Classifier {
        first: Linear::new(8, 16, &factory)?,
        norm: LayerNorm::new(16, 1e-5, &factory)?,
        activation: Activation::new(ActivationFunction::Gelu),
        last: Linear::new(16, 4, &factory)?,
        state: ModuleState::default(),
    };
    let parameters: Vec<Tensor> = model
        .parameters()
        .into_iter()
        .map(|one| one.tensor().shallow_clone())
        .collect();
    for (one, values) in parameters
        .iter()
        .zip(recording["initial"].as_array().unwrap())
    {
        let values = flat(values).reshape(one.size());
        tch::no_grad(|| one.shallow_clone().f_copy_(&values))?;
    }
    let accelerator = bf16().build()?;
    let model = accelerator.prepare(model)?;
    let logits = model.call(flat(&recording["inputs"]).reshape([6, 8]))?;
    let labels: Vec<i64> = serde_json::from_value(recording["labels"].clone()).unwrap();
    let labels = Tensor::from_slice(&labels);
    let loss = logits.f_cross_entropy_loss::<Tensor>(&labels, None, Reduction::Mean, -100, 0.0)?;
    accelerator.backward(&loss)?;
    // bfloat16 is the upper half of float32.
    assert!(bits(&logits).iter().all(|one| one & 0xffff == 0));
    let made_with = |what: &str| recording["made_with"][what].as_str().unwrap().to_owned();
    let same = recorded_here(&made_with("processor"), &made_with("kernels"));
    close(&logits, &recording["logits"], same);
    close(&loss, &recording["loss"], same);
    for (one, expected) in parameters
        .iter()
        .zip(recording["gradients"].as_array().unwrap())
    {
        close(&autograd::grad(one)?.unwrap(), expected, same);
    }
    Ok(())
}

/// Equal to the last bit on the processor of the recording; elsewhere kernels take sums in another
/// order, and a bfloat16 has 8 bits.
#[track_caller]
fn close(found: &Tensor, expected: &Value, same_processor: bool) {
    let expected = flat(expected);
    if same_processor {
        assert_eq!(bits(found), bits(&expected));
    }
    let difference = found.detach().flatten(0, -1).f_sub(&expected).unwrap();
    let largest = difference.abs().max().double_value(&[]);
    let size = expected.abs().max().double_value(&[]);
    assert!(largest <= size / 64.0, "{largest} of {size}");
}

#[test]
fn the_launchers_variables_count() {
    let inside = std::env::var_os("THIS_IS_THE_INNER_RUN").is_some();
    if !inside {
        let inner = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_launchers_variables_count"])
            .env("THIS_IS_THE_INNER_RUN", "1")
            .env("ACCELERATE_MIXED_PRECISION", "bf16")
            .env("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "3")
            .output()
            .unwrap();
        assert!(inner.status.success(), "{inner:?}");
        return;
    }
    let builder = || Accelerator::builder().cpu(true);
    let launched = builder().build().unwrap();
    assert_eq!(launched.mixed_precision(), MixedPrecision::Bf16);
    assert_eq!(launched.gradient_accumulation_steps().get(), 3);
    let own = builder()
        .mixed_precision(MixedPrecision::No)
        .build()
        .unwrap();
    assert_eq!(own.mixed_precision(), MixedPrecision::No);
    let plugin = GradientAccumulationPlugin::default();
    let own = builder()
        .gradient_accumulation_plugin(plugin)
        .build()
        .unwrap();
    assert_eq!(own.gradient_accumulation_steps().get(), 1);
}

#[test]
fn a_skipped_step_is_seen_and_the_schedule_waits() -> Result<()> {
    let accelerator = fp16(1024.0).build()?;
    let weight = leaf(&[1.0]);
    let optimizer = sgd(&[&weight], 0.5);
    let schedule = linear_schedule_with_warmup(&optimizer, 0, 10);
    let (mut optimizer, mut schedule) = accelerator.prepare((optimizer, schedule))?;
    let mut step = |factor: f64| -> Result<(f64, bool, f64, f64)> {
        accelerator.backward(&weight.f_mul_scalar(factor)?.f_sum(None)?)?;
        optimizer.step()?;
        schedule.step()?;
        optimizer.zero_grad()?;
        Ok((
            number(&weight),
            accelerator.optimizer_step_was_skipped(),
            schedule.last_lr()[0],
            accelerator.scaler().unwrap().scale_value()?,
        ))
    };
    assert_eq!(step(f64::INFINITY)?, (1.0, true, 0.5, 512.0));
    assert_eq!(step(1.0)?, (0.5, false, 0.45, 512.0));
    assert_eq!(step(f64::NAN)?, (0.5, true, 0.45, 256.0));
    Ok(())
}

#[test]
fn clipping_undoes_the_loss_scale_once() -> Result<()> {
    let accelerator = fp16(1024.0)
        .gradient_accumulation_steps(NonZeroUsize::new(2).unwrap())
        .build()?;
    let weights = [leaf(&[1.0]), leaf(&[1.0]), leaf(&[1.0])];
    let first = sgd(&[&weights[0], &weights[1]], 1.0);
    let second = sgd(&[&weights[2]], 1.0);
    let (mut first, mut second) = accelerator.prepare((first, second))?;
    let batch = || -> Result<()> {
        let loss = Tensor::f_cat(&weights, 0)?.f_mul_scalar(4.0)?.f_sum(None)?;
        accelerator.backward(&loss)
    };
    {
        let _step = accelerator.accumulate(())?;
        batch()?;
        assert!(accelerator.clip_grad_norm(&weights[..1], 100.0)?.is_none());
        let early = accelerator.unscale_gradients().unwrap_err().to_string();
        assert!(early.contains("sync_gradients"), "{early}");
        first.step()?;
        assert_eq!(gradient(&weights[0]), 2048.0);
    }
    let _step = accelerator.accumulate(())?;
    batch()?;
    // A part of the parameters, twice: the whole optimizer is unscaled, once, and only that one.
    for _ in 0..2 {
        let norm = accelerator.clip_grad_norm(&weights[..1], 100.0)?.unwrap();
        assert_eq!(norm.double_value(&[]), 4.0);
    }
    assert_eq!(
        (gradient(&weights[1]), gradient(&weights[2])),
        (4.0, 4096.0)
    );
    // The first optimizer's step does not disturb the second one's gradients.
    accelerator
        .scaler()
        .unwrap()
        .set_growth(2.0, 0.5, NonZeroU32::MIN)?;
    first.step()?;
    assert_eq!(accelerator.scaler().unwrap().scale_value()?, 2048.0);
    accelerator.unscale_gradients()?;
    second.step()?;
    for weight in &weights {
        assert_eq!(number(weight), -3.0);
    }
    // A new backward pass after gradients were dropped is scaled, and unscaled, anew.
    second.zero_grad()?;
    first.zero_grad()?;
    batch()?;
    second.step()?;
    assert_eq!(number(&weights[2]), -5.0);
    Ok(())
}

#[test]
fn ranks_agree_on_what_is_not_finite() {
    ranks(&[2, 3], |rank: Rank| -> Result<()> {
        let accelerator = fp16(1024.0).build()?;
        let model = Linear::without_bias(1, 1, &Factory::default())?;
        let own: Vec<Tensor> = model
            .parameters()
            .into_iter()
            .map(|one| one.tensor().shallow_clone())
            .collect();
        let optimizer = Sgd::new(own, SgdConfig::new(1.0))?;
        let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
        for (step, scale) in [(0, 1024.0), (1, 512.0), (2, 512.0)] {
            // Only the last rank meets an overflow, and only in the middle.
            let bad = step == 1 && rank.index() + 1 == rank.world();
            let factor = if bad { f64::INFINITY } else { 1.0 };
            let out = model.call(Tensor::ones([1, 1], (Kind::Float, Device::Cpu)))?;
            accelerator.backward(&out.f_mul_scalar(factor)?.f_sum(None)?)?;
            optimizer.step()?;
            assert_eq!(optimizer.step_was_skipped(), step == 1);
            assert_eq!(accelerator.scaler().unwrap().scale_value()?, scale);
            optimizer.zero_grad()?;
        }
        Ok(())
    });
}
