//! Steps over 1,000 tensors of 16 elements, which are all overhead.

use accelerate::optim::{
    Adafactor, AdafactorConfig, Adagrad, AdagradConfig, Adam, AdamConfig, AdamW, AdamWConfig, Lamb,
    LambConfig, Optimizer, RmsProp, RmsPropConfig, Scheduler, Sgd, SgdConfig,
    cosine_schedule_with_warmup,
};
use accelerate::{Accelerator, ClipNorm, clip_grad_norm};
use accelerate_torch::autograd;
use criterion::{BatchSize, Criterion};
use tch::Tensor;

use super::workload::small_parameters;

const TENSORS: usize = 1_000;

/// Parameters that have their gradients.
fn parameters() -> Vec<Tensor> {
    let (parameters, gradients) = small_parameters(TENSORS).unwrap();
    set_gradients(&parameters, &gradients);
    parameters
}

fn set_gradients(parameters: &[Tensor], gradients: &[Tensor]) {
    for (parameter, gradient) in parameters.iter().zip(gradients) {
        autograd::set_grad(parameter, Some(gradient)).unwrap();
    }
}

pub(crate) fn bench(criterion: &mut Criterion) {
    steps(criterion);
    prepared(criterion);
    let mut group = criterion.benchmark_group("optimizer");
    group.bench_function("clip_grad_norm/1000", |bencher| {
        let parameters = parameters();
        bencher.iter(|| clip_grad_norm(&parameters, 1.0, ClipNorm::default()).unwrap());
    });
    group.finish();
}

fn steps(criterion: &mut Criterion) {
    let momentum = SgdConfig {
        momentum: 0.9,
        ..SgdConfig::new(1e-3)
    };
    let optimizers: [Box<dyn Optimizer>; 7] = [
        Box::new(Sgd::new(parameters(), momentum).unwrap()),
        Box::new(Adam::new(parameters(), AdamConfig::default()).unwrap()),
        Box::new(AdamW::new(parameters(), AdamWConfig::default()).unwrap()),
        Box::new(Adagrad::new(parameters(), AdagradConfig::default()).unwrap()),
        Box::new(RmsProp::new(parameters(), RmsPropConfig::default()).unwrap()),
        Box::new(Adafactor::new(parameters(), AdafactorConfig::default()).unwrap()),
        Box::new(Lamb::new(parameters(), LambConfig::default()).unwrap()),
    ];
    let mut group = criterion.benchmark_group("optimizer");
    group.sample_size(20);
    for mut optimizer in optimizers {
        group.bench_function(format!("{}/1000", optimizer.name()), |bencher| {
            bencher.iter(|| optimizer.step().unwrap());
        });
    }
    group.finish();
}

fn prepared(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("optimizer");
    let accelerator = Accelerator::builder().cpu(true).build().unwrap();
    let (parameters, gradients) = small_parameters(TENSORS).unwrap();
    let own: Vec<Tensor> = parameters.iter().map(Tensor::shallow_clone).collect();
    let optimizer = AdamW::new(own, AdamWConfig::default()).unwrap();
    let schedule = cosine_schedule_with_warmup(&optimizer, 10, u64::MAX >> 12, 0.5);
    let (mut optimizer, mut schedule) = accelerator.prepare((optimizer, schedule)).unwrap();
    group.bench_function("prepared_step_schedule_zero_grad/1000", |bencher| {
        bencher.iter_batched(
            || set_gradients(&parameters, &gradients),
            |()| {
                optimizer.step().unwrap();
                schedule.step().unwrap();
                optimizer.zero_grad().unwrap();
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("prepared_schedule/cosine", |bencher| {
        bencher.iter(|| schedule.step().unwrap());
    });
    group.finish();
}
