//! Whole epochs of a prepared loader, with the threads that they start.

use accelerate::Accelerator;
use criterion::{BenchmarkId, Criterion, Throughput};

use super::workload::{images, pad, shuffled, texts};

const TEXTS: usize = 2_048;
const IMAGES: usize = 1_024;

pub(crate) fn bench(criterion: &mut Criterion) {
    let accelerator = Accelerator::builder().cpu(true).build().unwrap();
    let mut group = criterion.benchmark_group("loader");
    group.sample_size(20);
    for workers in [0, 1, 2] {
        group.throughput(Throughput::Elements(TEXTS as u64));
        group.bench_function(
            BenchmarkId::new("text", format!("{workers}_workers")),
            |bencher| {
                let loader = shuffled(texts(TEXTS), workers)
                    .collate(pad)
                    .build()
                    .unwrap();
                let loader = accelerator.prepare(loader).unwrap();
                bencher.iter(|| {
                    for batch in &loader {
                        let _batch = std::hint::black_box(batch.unwrap());
                    }
                });
            },
        );
        group.throughput(Throughput::Elements(IMAGES as u64));
        group.bench_function(
            BenchmarkId::new("image", format!("{workers}_workers")),
            |bencher| {
                let loader = shuffled(images(IMAGES).unwrap(), workers).build().unwrap();
                let loader = accelerator.prepare(loader).unwrap();
                bencher.iter(|| {
                    for batch in &loader {
                        let _batch = std::hint::black_box(batch.unwrap());
                    }
                });
            },
        );
    }
    group.finish();
}
