//! Gradients that travel in other ways, compared with what PyTorch's own hooks make of them.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside of test functions"
)]

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use accelerate::nn::{Forward, Module, ModuleState, Parameter};
use accelerate::parallel::{
    CommHook, CommWrapper, DistributedDataParallelKwargs, PowerSgdOptions, ReduceOp,
};
use accelerate::{Accelerator, PreparedModel, Result};
use accelerate_testkit::{ranks, recorded_here};
use accelerate_torch::autograd;
use tch::{Device, Kind, Tensor};

/// A linear loss: the gradients are the numbers that it is called with.
#[derive(Debug, Module)]
struct Weights {
    values: Vec<Parameter>,
    state: ModuleState,
}

impl Weights {
    fn new(shapes: &[Vec<i64>]) -> Result<Self> {
        let values = shapes
            .iter()
            .map(|shape| {
                let zeros = Tensor::f_zeros(shape.as_slice(), (Kind::Float, Device::Cpu))?;
                Parameter::new(zeros)
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            values,
            state: ModuleState::default(),
        })
    }

    fn clear(&self) -> Result<()> {
        for value in &self.values {
            autograd::set_grad(value.tensor(), None)?;
        }
        Ok(())
    }

    fn gradients(&self) -> Result<Vec<Tensor>> {
        self.values
            .iter()
            .map(|value| Ok(autograd::grad(value.tensor())?.unwrap()))
            .collect()
    }
}

impl Forward for Weights {
    type Input = Vec<Tensor>;
    type Output = Tensor;

    fn forward(&self, weights: Vec<Tensor>) -> Result<Tensor> {
        let mut loss = Tensor::f_zeros([0i64; 0], (Kind::Float, Device::Cpu))?;
        for (value, weight) in self.values.iter().zip(weights) {
            let part = value.tensor().f_mul(&weight)?.f_sum(None::<Kind>)?;
            loss = loss.f_add(&part)?;
        }
        Ok(loss)
    }
}

fn prepared(
    ddp: DistributedDataParallelKwargs,
    shapes: &[Vec<i64>],
) -> Result<(Accelerator, PreparedModel<Weights>)> {
    let accelerator = Accelerator::builder().ddp(ddp).build()?;
    let model = accelerator.prepare(Weights::new(shapes)?)?;
    Ok((accelerator, model))
}

fn with_hook(comm_hook: CommHook, comm_wrapper: CommWrapper) -> DistributedDataParallelKwargs {
    DistributedDataParallelKwargs {
        comm_hook,
        comm_wrapper,
        ..Default::default()
    }
}

/// The gradients of one step.
fn step(
    accelerator: &Accelerator,
    model: &PreparedModel<Weights>,
    gradients: Vec<Tensor>,
) -> Result<Vec<Tensor>> {
    model.clear()?;
    let loss = model.call(gradients)?;
    accelerator.backward(&loss)?;
    model.gradients()
}

fn flat(tensors: &[Tensor]) -> Vec<f32> {
    tensors
        .iter()
        .flat_map(|tensor| Vec::<f32>::try_from(tensor.flatten(0, -1)).unwrap())
        .collect()
}

/// The gradient of a 6 by 5 weight on a rank, as in the table of measured values.
fn measured_gradient(rank: usize) -> Tensor {
    let slope = if rank == 0 { 0.25 } else { -0.125 };
    let values: Vec<f32> = (0..30)
        .map(|index| {
            let (i, j) = ((index / 5) as f64, (index % 5) as f64);
            let diagonal = if index / 5 == index % 5 {
                rank as f64 + 1.0
            } else {
                0.0
            };
            ((i + 1.0) * (j + 1.0) / 10.0 + (i - j) * slope + diagonal) as f32
        })
        .collect();
    Tensor::from_slice(&values).view([6, 5])
}

fn power_sgd(rank: u64, start: u64) -> CommHook {
    CommHook::PowerSgd(PowerSgdOptions {
        matrix_approximation_rank: NonZeroU64::new(rank).unwrap(),
        start_power_sgd_iter: start,
        ..Default::default()
    })
}

type Measured = (CommHook, CommWrapper, usize, [f64; 5]);

/// Hook, step, and sum, norm and three entries of the gradient after it.
fn measured() -> Vec<Measured> {
    let plain = [39.9375, 9.001693, 1.6, 2.525, 1.375];
    let no = CommWrapper::No;
    vec![
        (CommHook::No, no, 0, plain),
        (CommHook::No, CommWrapper::Fp16, 0, plain),
        (
            CommHook::Fp16,
            no,
            0,
            [39.937622, 9.001833, 1.599609, 2.525391, 1.375],
        ),
        (
            CommHook::Bf16,
            no,
            0,
            [39.946289, 9.003542, 1.59375, 2.53125, 1.375],
        ),
        (power_sgd(1, 2), no, 1, plain),
        (
            power_sgd(1, 2),
            no,
            2,
            [13.508142, 4.255008, 0.643352, 0.526071, 1.861122],
        ),
        (
            power_sgd(1, 2),
            no,
            3,
            [64.850922, 15.472934, -0.038062, 4.621224, 1.777266],
        ),
        (
            power_sgd(1, 2),
            CommWrapper::Fp16,
            2,
            [13.476570, 4.248524, 0.643066, 0.524414, 1.857422],
        ),
        (power_sgd(2, 2), no, 3, plain),
    ]
}

#[test]
fn hooks_give_the_measured_gradients() {
    ranks(&[2], |rank| -> Result<()> {
        for (hook, wrapper, last, expected) in measured() {
            let (accelerator, model) = prepared(with_hook(hook.clone(), wrapper), &[vec![6, 5]])?;
            let mut found = Vec::new();
            for _ in 0..=last {
                found = step(&accelerator, &model, vec![measured_gradient(rank.index())])?;
            }
            let g = &found[0];
            let numbers = [
                g.f_sum(Kind::Float)?.double_value(&[]),
                g.f_norm()?.double_value(&[]),
                g.double_value(&[0, 0]),
                g.double_value(&[5, 3]),
                g.double_value(&[2, 4]),
            ];
            for (found, expected) in numbers.iter().zip(expected) {
                assert!(
                    (found - expected).abs() <= 2e-6 * expected.abs().max(1.0),
                    "{hook:?} {wrapper:?} step {last}: {numbers:?}"
                );
            }
        }
        Ok(())
    });
}

#[derive(serde::Deserialize)]
struct Recording {
    made_with: MadeWith,
    shapes: Vec<Vec<i64>>,
    cases: Vec<Case>,
}

impl Recording {
    fn is_of_here(&self) -> bool {
        recorded_here(&self.made_with.processor, &self.made_with.kernels)
    }
}

#[derive(serde::Deserialize)]
struct MadeWith {
    processor: String,
    kernels: String,
}

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    hook: String,
    wrapper: String,
    options: serde_json::Map<String, serde_json::Value>,
    checksums: Vec<String>,
    sums: Vec<f64>,
    squares: Vec<f64>,
    last: Vec<f64>,
}

impl Case {
    fn hook(&self) -> CommHook {
        match self.hook.as_str() {
            "no" => CommHook::No,
            "fp16" => CommHook::Fp16,
            "bf16" => CommHook::Bf16,
            "power_sgd" => CommHook::PowerSgd(self.options()),
            "batched_power_sgd" => CommHook::BatchedPowerSgd(self.options()),
            other => panic!("unknown hook {other}"),
        }
    }

    fn wrapper(&self) -> CommWrapper {
        match self.wrapper.as_str() {
            "no" => CommWrapper::No,
            "fp16" => CommWrapper::Fp16,
            "bf16" => CommWrapper::Bf16,
            other => panic!("unknown wrapper {other}"),
        }
    }

    fn options(&self) -> PowerSgdOptions {
        let mut options = PowerSgdOptions {
            start_power_sgd_iter: 2,
            ..Default::default()
        };
        for (name, value) in &self.options {
            let number = value.as_u64();
            match name.as_str() {
                "start_powerSGD_iter" => options.start_power_sgd_iter = number.unwrap(),
                "matrix_approximation_rank" => {
                    options.matrix_approximation_rank = NonZeroU64::new(number.unwrap()).unwrap();
                }
                "min_compression_rate" => options.min_compression_rate = value.as_f64().unwrap(),
                "use_error_feedback" => options.use_error_feedback = value.as_bool().unwrap(),
                "warm_start" => options.warm_start = value.as_bool().unwrap(),
                "orthogonalization_epsilon" => {
                    options.orthogonalization_epsilon = value.as_f64().unwrap();
                }
                "random_seed" => options.random_seed = u32::try_from(number.unwrap()).unwrap(),
                "batch_tensors_with_same_shape" => {
                    options.batch_tensors_with_same_shape = value.as_bool().unwrap();
                }
                other => panic!("unknown option {other}"),
            }
        }
        options
    }

    /// The recording to compare with, for how many steps, and whether to the last bit.
    ///
    /// PyTorch itself takes another path in some cases on another processor, because the matrices
    /// to orthogonalise are close to singular: `other` has those. Where neither processor is this
    /// one they are compared as long as both agree.
    fn on_this_processor<'a>(
        &'a self,
        own: &Recording,
        other: &'a Recording,
    ) -> (&'a Self, usize, bool) {
        let elsewhere = other.cases.iter().find(|case| case.name == self.name);
        let all = self.checksums.len();
        match elsewhere {
            Some(elsewhere) if other.is_of_here() => (elsewhere, all, true),
            Some(elsewhere) if !own.is_of_here() => {
                let pairs = self.sums.iter().zip(&elsewhere.sums);
                let common = pairs.take_while(|(one, two)| (*one - *two).abs() < 1e-4);
                (self, common.count(), false)
            }
            _ => (self, all, own.is_of_here() || other.is_of_here()),
        }
    }

    /// Gradients are the recorded ones: to the last bit where the same kernels run.
    ///
    /// Another processor has other kernels for matrix products, which take sums in
    /// another order. Twenty steps of feedback make more of it than one step's 1e-6, and
    /// low precision rounds it up to its own steps.
    fn compare(&self, number: usize, found: &[f32], same_kernels: bool) {
        let name = &self.name;
        let sum: f64 = found.iter().map(|&value| f64::from(value)).sum();
        let squares: f64 = found.iter().map(|&value| f64::from(value).powi(2)).sum();
        let tolerance = match self.wrapper.as_str() {
            "no" => 1e-5,
            _ => 2e-2,
        };
        for (found, expected) in [(sum, self.sums[number]), (squares, self.squares[number])] {
            assert!(
                (found - expected).abs() <= tolerance * expected.abs().max(100.0),
                "{name}, step {number}: {found}, not {expected}"
            );
        }
        if same_kernels {
            let checksum = format!("{:016x}", checksum(found));
            assert_eq!(checksum, self.checksums[number], "{name}, step {number}");
        }
        if number + 1 == self.checksums.len() {
            for (found, expected) in found.iter().zip(&self.last) {
                let off = (f64::from(*found) - expected).abs();
                assert!(off <= tolerance, "{name}: {found}, not {expected}");
            }
        }
    }
}

/// FNV-1a over the bytes.
fn checksum(values: &[f32]) -> u64 {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |state, byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Sixteenths that differ over everything, as the recorder makes them.
fn recorded_gradient(shape: &[i64], parameter: usize, step: usize, rank: usize) -> Tensor {
    let count: i64 = shape.iter().product();
    let values: Vec<f32> = (0..usize::try_from(count).unwrap())
        .map(|i| (i * i * 5 + i * (7 + rank) + step * 11 + parameter * 3 + rank * 5) % 61)
        .map(|mixed| (mixed as f32 - 30.0) / 16.0)
        .collect();
    Tensor::from_slice(&values).view(shape)
}

#[test]
fn twenty_steps_are_those_of_pytorch() {
    ranks(&[2], |rank| -> Result<()> {
        let text = include_str!("../../../../tests/parity/fixtures/comm_hooks.json");
        let recording: Recording = serde_json::from_str(text).unwrap();
        assert!(recording.cases.len() >= 17);
        let text = include_str!("../../../../tests/parity/other_processors/comm_hooks.json");
        let other: Recording = serde_json::from_str(text).unwrap();
        tch::set_num_threads(1);
        for case in &recording.cases {
            let ddp = with_hook(case.hook(), case.wrapper());
            let (accelerator, model) = prepared(ddp, &recording.shapes)?;
            let (case, steps, same_kernels) = case.on_this_processor(&recording, &other);
            for number in 0..steps {
                let shapes = recording.shapes.iter().enumerate();
                let gradients = shapes
                    .map(|(n, shape)| recorded_gradient(shape, n, number, rank.index()))
                    .collect();
                let found = step(&accelerator, &model, gradients)?;
                case.compare(number, &flat(&found), same_kernels);
            }
        }
        Ok(())
    });
}

/// `left` times `right`, different on each rank, with a mean that is such a product too.
fn product(rank: usize, rows: i64, columns: i64) -> Tensor {
    let left = Tensor::arange(rows, (Kind::Float, Device::Cpu)) / rows * (rank + 1) as f64 + 0.5;
    let right = Tensor::arange(columns, (Kind::Float, Device::Cpu)) / columns - 0.3;
    left.unsqueeze(1) * right.unsqueeze(0)
}

#[test]
fn products_of_thin_matrices_survive_in_several_buckets_of_any_options() {
    ranks(&[2, 3], |rank| -> Result<()> {
        // Each matrix is more than a mebibyte, and so has a bucket of its own.
        let shapes = [vec![600, 500], vec![500, 600], vec![600, 500], vec![7]];
        for (warm_start, use_error_feedback) in [(true, true), (false, false)] {
            let options = PowerSgdOptions {
                start_power_sgd_iter: 2,
                warm_start,
                use_error_feedback,
                batch_tensors_with_same_shape: warm_start,
                ..Default::default()
            };
            let ddp = DistributedDataParallelKwargs {
                bucket_cap_mb: NonZeroUsize::new(1),
                gradient_as_bucket_view: !warm_start,
                ..with_hook(CommHook::PowerSgd(options), CommWrapper::No)
            };
            let (accelerator, model) = prepared(ddp, &shapes)?;
            let own = |rank: usize| -> Vec<Tensor> {
                let matrices = shapes[..3].iter().map(|s| product(rank, s[0], s[1]));
                matrices
                    .chain([Tensor::full([7], rank as f64, (Kind::Float, Device::Cpu))])
                    .collect()
            };
            for _ in 0..5 {
                let found = step(&accelerator, &model, own(rank.index()))?;
                for (number, found) in found.iter().enumerate() {
                    let mut mean = own(0)[number].shallow_clone();
                    for other in 1..rank.world() {
                        mean += &own(other)[number];
                    }
                    mean /= rank.world() as f64;
                    let off = (found - mean).abs().max().double_value(&[]);
                    assert!(off < 1e-4, "gradient {number} is off by {off}");
                }
            }
            // Three steps: matrices of 300,000 values as 1,100, the vector as it is.
            let stats = model.data_parallel().unwrap().compression_stats().unwrap();
            assert_eq!(stats.numel_before_compression, 3 * 900_007);
            assert_eq!(stats.numel_after_compression, 3 * (3 * 1100 + 7));
            assert!(stats.rate() > 200.0);
        }
        Ok(())
    });
}

#[test]
fn compression_does_not_change_what_a_program_draws() {
    ranks(&[2], |rank| -> Result<()> {
        let (accelerator, model) =
            prepared(with_hook(power_sgd(1, 2), CommWrapper::No), &[vec![6, 5]])?;
        let mut numbers = Vec::new();
        for steps in [0, 4] {
            tch::manual_seed(11);
            for _ in 0..steps {
                step(&accelerator, &model, vec![measured_gradient(rank.index())])?;
            }
            numbers.push(Tensor::randn([3], (Kind::Float, Device::Cpu)));
        }
        assert!(numbers[0].equal(&numbers[1]));
        Ok(())
    });
}

#[test]
fn a_hook_of_ones_own_runs_for_every_bucket_in_the_wrappers_precision() {
    ranks(&[2], |rank| -> Result<()> {
        for (wrapper, kind) in [
            (CommWrapper::No, Kind::Float),
            (CommWrapper::Bf16, Kind::BFloat16),
        ] {
            let calls = Arc::new(AtomicUsize::new(0));
            let seen = Arc::clone(&calls);
            let hook = CommHook::custom(move |group, bucket| {
                assert_eq!(bucket.buffer()?.kind(), kind);
                let shapes: Vec<_> = bucket.gradients()?.iter().map(Tensor::size).collect();
                let expected: Vec<_> = bucket.parameters()?.iter().map(Tensor::size).collect();
                assert_eq!(shapes, expected);
                assert!(bucket.index() == 0 && bucket.is_last());
                seen.fetch_add(1, Ordering::Relaxed);
                // Twice the average.
                let share = bucket
                    .buffer()?
                    .f_mul_scalar(2)?
                    .f_div_scalar(group.size() as i64)?;
                Ok(group.all_reduce_async(&share, ReduceOp::Sum)?.future()?)
            });
            let (accelerator, model) = prepared(with_hook(hook, wrapper), &[vec![2, 3], vec![4]])?;
            for _ in 0..2 {
                let ones = Tensor::full([2, 3], rank.index() as f64, (Kind::Float, Device::Cpu));
                let found = step(
                    &accelerator,
                    &model,
                    vec![ones, Tensor::ones([4], (Kind::Float, Device::Cpu))],
                )?;
                assert_eq!(
                    flat(&found),
                    [[1f32; 6].as_slice(), [2f32; 4].as_slice()].concat()
                );
            }
            assert_eq!(calls.load(Ordering::Relaxed), 2);
        }
        Ok(())
    });
}

#[test]
fn a_hook_that_fails_fails_the_backward_pass() {
    ranks(&[2], |_| -> Result<()> {
        let hook = CommHook::custom(|_, _| Err("the line is cut".into()));
        let (accelerator, model) = prepared(with_hook(hook, CommWrapper::Fp16), &[vec![2]])?;
        let error = step(
            &accelerator,
            &model,
            vec![Tensor::ones([2], (Kind::Float, Device::Cpu))],
        );
        let text = error.unwrap_err().to_string();
        assert!(text.contains("the line is cut"), "{text}");
        Ok(())
    });
}

#[test]
fn settings_that_cannot_be_are_refused_on_every_rank() {
    ranks(&[2], |_| -> Result<()> {
        let error = prepared(with_hook(power_sgd(1, 1), CommWrapper::No), &[vec![6, 5]])
            .unwrap_err()
            .to_string();
        assert!(error.contains("`start_power_sgd_iter` above 1"), "{error}");
        Ok(())
    });
}
