//! All ranks together learn what one process would.

use std::num::NonZeroUsize;

use accelerate::collectives;
use accelerate::data::DataLoader;
use accelerate::optim::{AdamW, AdamWConfig, Optimizer, Sgd, SgdConfig};
use accelerate::parallel::{CommHook, DistributedDataParallelKwargs};
use accelerate::tch::{Kind, Tensor};

use crate::failure::Failure;
use crate::perceptron::{Perceptron, samples};
use crate::probe::{Probe, values};
use crate::stage::Step;

pub(super) const FLOAT32: &[Step] = &[
    Step::new("Sgd", |probe| {
        equals_one_process(probe, Setting::new(sgd, 1e-5))
    }),
    Step::new("AdamW", |probe| {
        equals_one_process(probe, Setting::new(adamw, 1e-4))
    }),
];

pub(super) const BFLOAT16: &[Step] = &[Step::new("parameters in bfloat16", |probe| {
    let setting = Setting {
        kind: Kind::BFloat16,
        ..Setting::new(sgd, 2e-2)
    };
    equals_one_process(probe, setting)
})];

pub(super) const COMPRESSED: &[Step] = &[
    Step::new("gradients sent as float16", |probe| {
        equals_one_process(probe, Setting::new(sgd, 5e-3).sending(CommHook::Fp16))
    }),
    Step::new("gradients sent as bfloat16", |probe| {
        equals_one_process(probe, Setting::new(sgd, 2e-2).sending(CommHook::Bf16))
    }),
];

const BATCH: usize = 4;
const STEPS: usize = 5;
/// That of the one process, and of rank 0.
const SEED: i64 = 1;

type MakeOptimizer = fn(Vec<Tensor>) -> accelerate::Result<Box<dyn Optimizer>>;

/// How is trained, and how far results may be apart.
#[derive(Debug, Clone)]
struct Setting {
    optimizer: MakeOptimizer,
    kind: Kind,
    hook: CommHook,
    tolerance: f64,
}

impl Setting {
    fn new(optimizer: MakeOptimizer, tolerance: f64) -> Self {
        Self {
            optimizer,
            kind: Kind::Float,
            hook: CommHook::No,
            tolerance,
        }
    }

    fn sending(self, hook: CommHook) -> Self {
        Self { hook, ..self }
    }
}

fn sgd(parameters: Vec<Tensor>) -> accelerate::Result<Box<dyn Optimizer>> {
    let config = SgdConfig {
        momentum: 0.9,
        ..SgdConfig::new(0.05)
    };
    Ok(Box::new(Sgd::new(parameters, config)?))
}

fn adamw(parameters: Vec<Tensor>) -> accelerate::Result<Box<dyn Optimizer>> {
    let config = AdamWConfig {
        lr: 0.01,
        ..AdamWConfig::default()
    };
    Ok(Box::new(AdamW::new(parameters, config)?))
}

fn equals_one_process(probe: &mut Probe<'_>, setting: Setting) -> Result<(), Failure> {
    let (world, device) = (probe.world(), probe.device());
    let ddp = DistributedDataParallelKwargs {
        comm_hook: setting.hook,
        ..DistributedDataParallelKwargs::default()
    };
    let accelerator = probe.builder().ddp(ddp).build()?;
    accelerator
        .gradient_state()
        .set_num_steps(NonZeroUsize::MIN);

    // Every rank begins with values of its own: preparing makes them rank 0's.
    let own_seed = SEED + i64::try_from(probe.rank()).unwrap_or(0);
    let model = Perceptron::seeded(own_seed, setting.kind)?;
    let optimizer = (setting.optimizer)(model.tensors())?;
    let numbers: Vec<i64> = (0..).take(BATCH * world * STEPS).collect();
    let loader = DataLoader::builder(numbers).batch_size(BATCH).build()?;
    let (model, mut optimizer, loader) = accelerator.prepare((model, optimizer, loader))?;

    let alone = Perceptron::seeded_on(device, SEED, setting.kind)?;
    let mut lonely = (setting.optimizer)(alone.tensors())?;
    let start = values(&alone.values()?)?;
    probe.holds("parameters of rank 0", &start, &model.values()?)?;

    for (step, batch) in loader.iter().enumerate() {
        accelerator.backward(&model.loss(&batch?)?)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        let all = samples(device, step * BATCH * world, BATCH * world)?;
        alone.loss(&all)?.f_backward()?;
        lonely.step()?;
        lonely.zero_grad()?;
    }

    let trained = model.values()?;
    let (expected, tolerance) = (alone.values()?, setting.tolerance);
    probe.close("parameters of one process", &expected, &trained, tolerance)?;
    probe.equal(
        "whether training moves parameters",
        true,
        values(&trained)? != start,
    );
    let length = trained.numel();
    let of_all = values(&collectives::gather(probe.accelerator.state(), trained)?)?;
    let first = of_all.get(..length).unwrap_or_default();
    for (rank, theirs) in of_all.chunks(length).enumerate() {
        probe.equal(
            format!("parameters of rank 0 on rank {rank}"),
            first,
            theirs,
        );
    }
    Ok(())
}
