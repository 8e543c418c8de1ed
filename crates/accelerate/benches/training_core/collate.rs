//! Samples into one batch.

use accelerate::data::{Collate, Dataset, Stack, StackLeaves};
use criterion::{BatchSize, Criterion, Throughput};
use tch::Tensor;

use super::workload::{BATCH, images, pad, texts};

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("collate");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("stack_images/32x3x64x64", |bencher| {
        let images = images(BATCH).unwrap();
        let batch = || -> Vec<[Tensor; 2]> { (0..BATCH).map(|i| images.get(i).unwrap()).collect() };
        bencher.iter_batched(
            batch,
            |items| Stack.collate(items).unwrap(),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("stack_leaves/32x3x64x64", |bencher| {
        let images = images(BATCH).unwrap();
        let batch = || -> Vec<[Tensor; 2]> { (0..BATCH).map(|i| images.get(i).unwrap()).collect() };
        bencher.iter_batched(
            batch,
            |items| StackLeaves.collate(items).unwrap(),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("stack_numbers/32", |bencher| {
        let batch = || (0..BATCH as i64).map(|i| (i, 0.5f32)).collect::<Vec<_>>();
        bencher.iter_batched(
            batch,
            |items| Stack.collate(items).unwrap(),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("pad_texts/32x96", |bencher| {
        let texts = texts(BATCH);
        bencher.iter_batched(
            || texts.clone(),
            |items| pad(items).unwrap(),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}
