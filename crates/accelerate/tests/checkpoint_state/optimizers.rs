//! Every optimizer goes on from a saved state as if it had not stopped.

use std::ops::Range;

use accelerate::nn::{Factory, Forward, Linear, Module as _};
use accelerate::optim::{
    AcceleratedOptimizer, Adafactor, AdafactorConfig, Adagrad, AdagradConfig, Adam, AdamConfig,
    AdamW, AdamWConfig, AdamWScheduleFree, AdamWScheduleFreeConfig, Lamb, LambConfig, Optimizer,
    RmsProp, RmsPropConfig, Sgd, SgdConfig, SgdScheduleFree, SgdScheduleFreeConfig,
};
use accelerate::{Accelerator, PreparedModel, Result};
use accelerate_testkit::turn;
use tch::{Device, Kind, Tensor};

type Boxed = Box<dyn Optimizer>;
type Make = fn(Vec<Tensor>) -> Result<Boxed>;

/// Each with settings under which it remembers all that it can.
const OPTIMIZERS: [Make; 10] = [
    |parameters| {
        let config = SgdConfig {
            momentum: 0.9,
            nesterov: true,
            ..SgdConfig::new(0.05)
        };
        Ok(Box::new(Sgd::new(parameters, config)?))
    },
    |parameters| {
        let config = AdamConfig {
            amsgrad: true,
            ..AdamConfig::default()
        };
        Ok(Box::new(Adam::new(parameters, config)?))
    },
    |parameters| Ok(Box::new(AdamW::new(parameters, AdamWConfig::default())?)),
    |parameters| {
        let config = AdagradConfig {
            lr_decay: 0.1,
            ..AdagradConfig::default()
        };
        Ok(Box::new(Adagrad::new(parameters, config)?))
    },
    |parameters| {
        let config = RmsPropConfig {
            momentum: 0.9,
            centered: true,
            ..RmsPropConfig::default()
        };
        Ok(Box::new(RmsProp::new(parameters, config)?))
    },
    |parameters| {
        let config = AdafactorConfig {
            beta1: Some(0.9),
            ..AdafactorConfig::default()
        };
        Ok(Box::new(Adafactor::new(parameters, config)?))
    },
    |parameters| Ok(Box::new(Lamb::new(parameters, LambConfig::default())?)),
    |parameters| {
        let config = AdamWScheduleFreeConfig {
            warmup_steps: 10,
            ..AdamWScheduleFreeConfig::default()
        };
        Ok(Box::new(AdamWScheduleFree::new(parameters, config)?))
    },
    |parameters| {
        let config = SgdScheduleFreeConfig {
            lr: 0.1,
            ..SgdScheduleFreeConfig::default()
        };
        Ok(Box::new(SgdScheduleFree::new(parameters, config)?))
    },
    |parameters| Ok(Box::new(Sgd::new(parameters, SgdConfig::new(0.05))?)),
];

struct Training {
    accelerator: Accelerator,
    model: PreparedModel<Linear>,
    optimizer: AcceleratedOptimizer<Boxed>,
}

impl Training {
    fn new(make: Make, seed: i64) -> Result<Self> {
        tch::manual_seed(seed);
        let accelerator = Accelerator::new()?;
        let model = Linear::new(3, 4, &Factory::default())?;
        let parameters = model.parameters().into_iter();
        let parameters = parameters.map(|one| one.tensor().shallow_clone());
        let optimizer = make(parameters.collect())?;
        let (model, optimizer) = accelerator.prepare((model, optimizer))?;
        Ok(Self {
            accelerator,
            model,
            optimizer,
        })
    }

    /// The losses of these steps, and the weights behind them, bit by bit.
    fn steps(&mut self, steps: Range<i64>) -> Result<Vec<u64>> {
        self.optimizer.train()?;
        let mut bits = Vec::new();
        for step in steps {
            let numbers = Tensor::arange(6, (Kind::Float, Device::Cpu)) + step as f64;
            let output = self.model.call(numbers.sin().view([2, 3]))?;
            let loss = output.f_square()?.f_mean(Kind::Float)?;
            self.accelerator.backward(&loss)?;
            self.optimizer.step()?;
            self.optimizer.zero_grad()?;
            bits.push(loss.double_value(&[]).to_bits());
        }
        for parameter in self.model.parameters() {
            let values = parameter.tensor().detach().flatten(0, -1);
            let values: Vec<f64> = values.to_kind(Kind::Double).try_into().unwrap();
            bits.extend(values.into_iter().map(f64::to_bits));
        }
        Ok(bits)
    }
}

#[test]
fn moments_counters_and_settings_of_every_optimizer_come_back() {
    let _turn = turn();
    for make in OPTIMIZERS {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("step_7");
        let mut training = Training::new(make, 1).unwrap();
        let name = training.optimizer.name();
        training.steps(0..7).unwrap();
        training.accelerator.save_state(Some(&saved)).unwrap();
        let expected = training.steps(7..20).unwrap();
        let mut numbers = expected.iter().map(|&bits| f64::from_bits(bits));
        assert!(numbers.all(f64::is_finite), "{name}");
        drop(training);

        // One that never stepped, and one that stepped otherwise.
        for steps in [0..0, 3..8] {
            let mut resumed = Training::new(make, 2).unwrap();
            resumed.steps(steps).unwrap();
            resumed.accelerator.load_state(Some(&saved)).unwrap();
            assert_eq!(resumed.steps(7..20).unwrap(), expected, "{name}");
        }
    }
}
