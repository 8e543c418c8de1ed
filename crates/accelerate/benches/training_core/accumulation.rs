//! What accumulating gradients adds to a batch.

use std::num::NonZeroUsize;

use accelerate::Accelerator;
use accelerate::nn::{Factory, Forward, Linear, Module};
use accelerate::optim::{Optimizer, Sgd, SgdConfig};
use criterion::Criterion;
use tch::{Device, Kind, Tensor};

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("accumulation");
    let accelerator = Accelerator::builder()
        .cpu(true)
        .gradient_accumulation_steps(NonZeroUsize::new(4).unwrap())
        .build()
        .unwrap();
    let model = Linear::new(8, 8, &Factory::default()).unwrap();
    let weights: Vec<Tensor> = model
        .parameters()
        .iter()
        .map(|one| one.tensor().shallow_clone())
        .collect();
    let optimizer = Sgd::new(weights, SgdConfig::new(1e-3)).unwrap();
    let (model, mut optimizer) = accelerator.prepare((model, optimizer)).unwrap();
    group.bench_function("scope", |bencher| {
        bencher.iter(|| accelerator.accumulate(&model).unwrap().sync_gradients());
    });
    group.bench_function("no_sync", |bencher| {
        bencher.iter(|| drop(accelerator.no_sync(&model)));
    });
    group.bench_function("batch/8x8", |bencher| {
        let input = Tensor::ones([4, 8], (Kind::Float, Device::Cpu));
        bencher.iter(|| {
            let _scope = accelerator.accumulate(&model).unwrap();
            let loss = model.call(&input).unwrap().mean(Kind::Float);
            accelerator.backward(&loss).unwrap();
            optimizer.step().unwrap();
            optimizer.zero_grad().unwrap();
        });
    });
    group.bench_function("clip_while_accumulating", |bencher| {
        let parameters: Vec<Tensor> = Vec::new();
        accelerator.gradient_state().set_sync_gradients(false);
        bencher.iter(|| accelerator.clip_grad_norm(&parameters, 1.0).unwrap());
    });
    group.finish();
}
