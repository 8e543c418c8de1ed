//! Ranks that train apart and meet now and then.

use std::num::NonZeroUsize;

use accelerate::nn::{Factory, Forward, Linear};
use accelerate::optim::{AcceleratedOptimizer, Optimizer, Sgd, SgdConfig};
use accelerate::parallel::LocalSgd;
use accelerate::{Accelerator, PreparedModel, Result};
use accelerate_testkit::ranks;
use tch::{Kind, Tensor};

/// `y = w x` with `w` = 1 and a learning rate of 0.1.
struct Trainer {
    accelerator: Accelerator,
    model: PreparedModel<Linear>,
    optimizer: AcceleratedOptimizer<Sgd>,
}

impl Trainer {
    fn new() -> Result<Self> {
        let accelerator = Accelerator::new()?;
        let model = Linear::without_bias(1, 1, &Factory::default())?;
        let mut weight = model.weight.tensor().f_detach()?;
        let _ = weight.f_fill_(1.0)?;
        let parameters = vec![model.weight.tensor().shallow_clone()];
        let optimizer = Sgd::new(parameters, SgdConfig::new(0.1))?;
        let (model, optimizer) = accelerator.prepare((model, optimizer))?;
        Ok(Self {
            accelerator,
            model,
            optimizer,
        })
    }

    /// Brings the gradient `x` on this rank.
    fn backward(accelerator: &Accelerator, model: &PreparedModel<Linear>, x: f64) -> Result<()> {
        let x = Tensor::from_slice(&[x as f32]).f_view([1, 1])?;
        accelerator.backward(&model.call(x)?.f_sum(Kind::Float)?)
    }

    fn weight(&self) -> f64 {
        value(&self.model)
    }
}

fn value(model: &PreparedModel<Linear>) -> f64 {
    model.weight.tensor().double_value(&[0, 0])
}

fn step(optimizer: &mut AcceleratedOptimizer<Sgd>) -> Result<()> {
    optimizer.step()?;
    optimizer.zero_grad()
}

fn every(steps: usize) -> NonZeroUsize {
    NonZeroUsize::new(steps).unwrap_or(NonZeroUsize::MIN)
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
}

#[test]
fn parameters_are_averaged_every_few_steps_and_at_the_end() {
    ranks(&[2], |rank| -> Result<()> {
        let mut trainer = Trainer::new()?;
        let x = [1.0, 3.0][rank.index()];
        let own = |values: [f64; 2]| values[rank.index()];
        let (accelerator, model) = (&trainer.accelerator, &trainer.model);
        let mut local_sgd = accelerator.local_sgd(model, every(2), true)?;
        for expected in [own([0.9, 0.7]), 0.6, own([0.5, 0.3])] {
            Trainer::backward(accelerator, model, x)?;
            step(&mut trainer.optimizer)?;
            local_sgd.step()?;
            assert_near(value(model), expected);
        }
        local_sgd.finish()?;
        assert_near(trainer.weight(), 0.4);
        // After it, gradients are averages again.
        Trainer::backward(accelerator, model, x)?;
        assert_near(model.weight.tensor().grad().double_value(&[0, 0]), 2.0);
        Ok(())
    });
}

#[test]
fn an_error_in_the_loop_does_not_leave_ranks_apart() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let Trainer {
            accelerator,
            model,
            mut optimizer,
        } = Trainer::new()?;
        let mut broken = || -> Result<()> {
            let _local_sgd: LocalSgd<'_> = accelerator.local_sgd(&model, every(100), true)?;
            Trainer::backward(&accelerator, &model, rank.index() as f64)?;
            step(&mut optimizer)?;
            Err(accelerate::Error::data("no more data"))
        };
        assert!(broken().is_err());
        // The mean over ranks of 1 - 0.1 times their numbers.
        assert_near(value(&model), 1.0 - 0.05 * (rank.world() - 1) as f64);
        assert!(
            model
                .data_parallel()
                .is_some_and(|ddp| ddp.syncs_gradients())
        );
        Ok(())
    });
}

#[test]
fn off_and_alone_it_changes_nothing() {
    ranks(&[1, 2], |rank| -> Result<()> {
        for enabled in [false, true] {
            if enabled && rank.world() > 1 {
                continue;
            }
            let mut trainer = Trainer::new()?;
            let (accelerator, model) = (&trainer.accelerator, &trainer.model);
            let mut local_sgd = accelerator.local_sgd(model, every(1), enabled)?;
            Trainer::backward(accelerator, model, 1.0 + 2.0 * rank.index() as f64)?;
            step(&mut trainer.optimizer)?;
            local_sgd.step()?;
            local_sgd.finish()?;
            // The average of 1 and 3, or the only gradient.
            assert_near(value(model), if rank.world() == 2 { 0.8 } else { 0.9 });
        }
        Ok(())
    });
}

#[test]
fn gradients_accumulate_inside() {
    ranks(&[2], |rank| -> Result<()> {
        let mut trainer = Trainer::new()?;
        let (accelerator, model) = (&trainer.accelerator, &trainer.model);
        let mut local_sgd = accelerator.local_sgd(model, every(2), true)?;
        let x = 1.0 + 2.0 * rank.index() as f64;
        for syncs in [false, true] {
            // What accumulation does around each batch.
            model
                .data_parallel()
                .map(|ddp| ddp.set_sync_gradients(syncs));
            Trainer::backward(accelerator, model, x)?;
        }
        step(&mut trainer.optimizer)?;
        assert_near(value(model), 1.0 - 0.1 * 2.0 * x);
        local_sgd.step()?;
        local_sgd.finish()?;
        assert_near(value(model), 0.6);
        Ok(())
    });
}
