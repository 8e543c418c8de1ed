//! Data parallelism and its options on real ranks.
#![expect(clippy::panic, reason = "a test may panic")]

use accelerate::nn::{Factory, Forward, Linear, Module, ModuleState};
use accelerate::parallel::{DistributedDataParallelKwargs, Gradients, UnusedReport};
use accelerate::{Accelerator, Error, Result};
use accelerate_testkit::ranks;
use accelerate_torch::{autograd, storage};
use tch::{Device, Kind, Tensor};

#[derive(Debug, Module)]
struct Pair {
    used: Linear,
    idle: Linear,
    state: ModuleState,
}

impl Pair {
    fn new(idle_outputs: i64) -> Result<Self> {
        let factory = Factory::default();
        Ok(Self {
            used: Linear::without_bias(2, 1, &factory)?,
            idle: Linear::new(2, idle_outputs, &factory)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for Pair {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        self.used.call(x)
    }
}

fn accelerator(ddp: DistributedDataParallelKwargs) -> Result<Accelerator> {
    Accelerator::builder().ddp(ddp).build()
}

fn row(a: f32, b: f32) -> Tensor {
    Tensor::from_slice(&[a, b]).view([1, 2])
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.flatten(0, -1)).unwrap_or_default()
}

#[test]
fn several_forward_passes_of_a_static_graph_share_one_backward_pass() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let accelerator = accelerator(DistributedDataParallelKwargs {
            static_graph: true,
            check_reduction: true,
            ..Default::default()
        })?;
        let model = accelerator.prepare(Pair::new(1)?)?;
        let mean = (rank.world() as f32 - 1.0) / 2.0;
        for step in 0..3 {
            let own = rank.index() as f32 + step as f32;
            let first = model.call(row(own, 1.0))?;
            let second = model.call(row(1.0, 2.0 * own))?;
            accelerator.backward(&first.f_add(&second)?.f_sum(Kind::Float)?)?;
            let found = numbers(&model.used.weight.tensor().grad());
            let average = mean + step as f32;
            // A third has no exact float32.
            for (found, expected) in found.iter().zip([average + 1.0, 1.0 + 2.0 * average]) {
                assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
            }
            // Nobody used it, and nobody had to say so.
            assert!(autograd::grad(model.idle.weight.tensor())?.is_none());
            autograd::set_grad(model.used.weight.tensor(), None)?;
        }
        Ok(())
    });
}

#[test]
fn gradients_may_lie_in_the_buckets() {
    ranks(&[2], |rank| -> Result<()> {
        for gradient_as_bucket_view in [false, true] {
            let accelerator = accelerator(DistributedDataParallelKwargs {
                gradient_as_bucket_view,
                ..Default::default()
            })?;
            let model = accelerator.prepare(Linear::new(2, 3, &Factory::default())?)?;
            for _ in 0..2 {
                let out = model.call(row(rank.index() as f32, 1.0))?;
                accelerator.backward(&out.f_sum(Kind::Float)?)?;
            }
            let gradient = model.weight.tensor().grad();
            assert_eq!(numbers(&gradient), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
            // Weight and bias together in one bucket, or the weight's gradient alone.
            let bytes = if gradient_as_bucket_view {
                4 * 9
            } else {
                4 * 6
            };
            assert_eq!(storage::storage_bytes(&gradient)?, bytes);
        }
        Ok(())
    });
}

#[test]
fn models_that_differ_are_told_apart_on_every_rank() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let accelerator = accelerator(DistributedDataParallelKwargs::default())?;
        let last = rank.index() + 1 == rank.world();
        let model = Pair::new(if last { 5 } else { 4 })?;
        let text = accelerator
            .prepare(model)
            .map(drop)
            .unwrap_err()
            .to_string();
        let expected = format!(
            "expected `idle.weight`: Float [4, 2] as on rank 0, \
             found `idle.weight`: Float [5, 2] on rank {}",
            rank.world() - 1
        );
        assert!(text.contains(&expected), "{text}");
        // The group can still be used.
        accelerator.wait_for_everyone()
    });
}

#[test]
fn a_parameter_that_is_frozen_on_one_rank_is_told() {
    ranks(&[2], |rank| -> Result<()> {
        let accelerator = accelerator(DistributedDataParallelKwargs::default())?;
        let model = Pair::new(1)?;
        model.idle.set_requires_grad(rank.index() == 0)?;
        let text = accelerator
            .prepare(model)
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(text.contains("found `idle.weight`: frozen Float"), "{text}");
        Ok(())
    });
}

#[test]
#[expect(clippy::exit, reason = "a rank that is gone is what is tested")]
fn a_rank_that_dies_in_the_backward_pass_is_an_error_on_the_others() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let accelerator = accelerator(DistributedDataParallelKwargs::default())?;
        let model = accelerator.prepare(Linear::new(2, 1, &Factory::default())?)?;
        let out = model.call(row(1.0, 1.0))?;
        if rank.index() == 1 {
            let _hook = autograd::on_gradient(&out, |_| std::process::exit(0))?;
            accelerator.backward(&out.f_sum(Kind::Float)?)?;
        }
        let lost = accelerator.backward(&out.f_sum(Kind::Float)?);
        let Error::CollectiveIncomplete { report, .. } = lost.unwrap_err() else {
            panic!("another error");
        };
        assert_eq!(report.missing, [1], "{report}");
        assert_eq!(report.operation, "backward");
        let text = report.to_string();
        assert!(text.contains("rank 1 has ended"), "{text}");
        // The prepared model, the forward pass, then this.
        assert!(text.contains("(call 3, at "), "{text}");
        assert!(text.contains("distributed/ddp.rs:"), "{text}");
        Ok(())
    });
}

#[test]
fn buffers_and_frozen_parameters_come_from_rank_0() {
    ranks(&[2], |rank| -> Result<()> {
        let accelerator = accelerator(DistributedDataParallelKwargs::default())?;
        let model = Pair::new(1)?;
        model.idle.set_requires_grad(false)?;
        let mut weight = model.idle.weight.tensor().f_detach()?;
        let _ = weight.f_fill_(rank.index() as f64 + 7.0)?;
        let model = accelerator.prepare(model)?;
        assert_eq!(
            numbers(&model.idle.weight.tensor().f_to_device(Device::Cpu)?),
            [7.0, 7.0]
        );
        Ok(())
    });
}

/// A layer that only some inputs go through.
#[derive(Debug, Module)]
struct Branches {
    always: Linear,
    sometimes: Linear,
    state: ModuleState,
}

impl Branches {
    fn new() -> Result<Self> {
        let factory = Factory::default();
        Ok(Self {
            always: Linear::new(2, 2, &factory)?,
            sometimes: Linear::new(2, 2, &factory)?,
            state: ModuleState::default(),
        })
    }
}

impl Forward for Branches {
    type Input = (Tensor, bool);
    type Output = Tensor;

    fn forward(&self, (x, branch): (Tensor, bool)) -> Result<Tensor> {
        let x = self.always.call(x)?;
        if branch {
            self.sometimes.call(x)
        } else {
            Ok(x)
        }
    }
}

fn unused(error: Error) -> Box<UnusedReport> {
    match error {
        Error::UnusedParameters { report } => report,
        other => panic!("another error: {other}"),
    }
}

fn missing() -> Gradients {
    Gradients::Missing(
        ["sometimes.weight", "sometimes.bias"]
            .map(str::to_owned)
            .to_vec(),
    )
}

#[test]
fn a_branch_that_no_rank_takes_is_named_with_all_ranks() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let accelerator = accelerator(DistributedDataParallelKwargs::default())?;
        let model = accelerator.prepare(Branches::new()?)?;
        let step = |branch| -> Result<()> {
            let out = model.call((row(1.0, 2.0), branch))?;
            accelerator.backward(&out.f_sum(Kind::Float)?)
        };
        step(true)?;
        step(false)?;
        let report = unused(step(true).unwrap_err());
        assert!(report.is_on_all_ranks(), "{report}");
        assert_eq!(report.gradients, vec![missing(); rank.world()]);
        let text = report.to_string();
        let expected = format!(
            "`sometimes.weight`, `sometimes.bias`, on all {} ranks",
            rank.world()
        );
        assert!(text.contains(&expected), "{text}");
        accelerator.wait_for_everyone()
    });
}

#[test]
fn a_branch_that_one_rank_does_not_take_is_named_with_that_rank() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let accelerator = accelerator(DistributedDataParallelKwargs::default())?;
        let model = accelerator.prepare(Branches::new()?)?;
        for _ in 0..2 {
            let branch = rank.index() != 1;
            let out = model.call((row(1.0, 2.0), branch));
            let done = out.and_then(|out| accelerator.backward(&out.f_sum(Kind::Float)?));
            let Err(error) = done else {
                continue;
            };
            // Rank 1 finds it in its next forward pass; the others, which waited in the
            // backward pass, when it has ended.
            let report = unused(error);
            let complete = |index| match index {
                1 => missing(),
                _ => Gradients::Complete,
            };
            let found = &report.gradients;
            assert_eq!(found[rank.index()], complete(rank.index()), "{report}");
            assert_eq!(found[1], missing(), "{report}");
            if rank.index() == 1 {
                let expected: Vec<_> = (0..rank.world()).map(complete).collect();
                assert_eq!(*found, expected, "{report}");
                let text = report.to_string();
                assert!(text.contains("` on rank 1; rank"), "{text}");
            }
            return Ok(());
        }
        panic!("nobody noticed on rank {}", rank.index());
    });
}

#[test]
fn a_loss_times_zero_is_no_missing_gradient() {
    ranks(&[2], |rank| -> Result<()> {
        let accelerator = accelerator(DistributedDataParallelKwargs::default())?;
        let model = accelerator.prepare(Branches::new()?)?;
        for _ in 0..3 {
            let out = model.call((row(1.0, 2.0), true))?.f_sum(Kind::Float)?;
            let own = if rank.index() == 1 { 0.0 } else { 2.0 };
            accelerator.backward(&out.f_mul_scalar(own)?)?;
            let bias = model
                .sometimes
                .bias
                .as_ref()
                .map(|bias| bias.tensor().grad());
            // The mean of 2 and 0.
            assert_eq!(bias.as_ref().map(numbers), Some(vec![1.0, 1.0]));
            for parameter in model.parameters() {
                autograd::set_grad(parameter.tensor(), None)?;
            }
        }
        Ok(())
    });
}

#[test]
fn unused_branches_may_differ_where_they_are_looked_for() {
    ranks(&[2], |rank| -> Result<()> {
        let accelerator = accelerator(DistributedDataParallelKwargs {
            find_unused_parameters: true,
            ..Default::default()
        })?;
        let model = accelerator.prepare(Branches::new()?)?;
        for _ in 0..3 {
            let out = model.call((row(1.0, 2.0), rank.index() == 0))?;
            accelerator.backward(&out.f_sum(Kind::Float)?)?;
        }
        let bias = model
            .sometimes
            .bias
            .as_ref()
            .map(|bias| bias.tensor().grad());
        assert_eq!(bias.as_ref().map(numbers), Some(vec![1.5, 1.5]));
        Ok(())
    });
}
