//! The order of an epoch, and one rank's part of it.

use std::num::NonZeroUsize;

use accelerate::data::{
    BatchSampler, BatchSamplerShard, IndexBatches, RandomSampler, Sampler, SequentialSampler,
    ShardLayout,
};
use criterion::{Criterion, Throughput};

const SAMPLES: usize = 10_000;
const BATCH: usize = 32;

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sampler");
    group.throughput(Throughput::Elements(SAMPLES as u64));
    group.bench_function("sequential/10000", |bencher| {
        let batches = batches(SequentialSampler::new(SAMPLES));
        bencher.iter(|| {
            batches
                .epoch()
                .flatten()
                .map(|batch| batch.len())
                .sum::<usize>()
        });
    });
    group.bench_function("random/10000", |bencher| {
        let batches = batches(RandomSampler::new(SAMPLES).unwrap());
        bencher.iter(|| {
            batches
                .epoch()
                .flatten()
                .map(|batch| batch.len())
                .sum::<usize>()
        });
    });
    for split_batches in [false, true] {
        let kind = if split_batches { "split" } else { "dealt" };
        group.bench_function(format!("shard_{kind}/10000"), |bencher| {
            let layout = ShardLayout {
                num_processes: NonZeroUsize::new(4).unwrap(),
                process_index: 3,
                split_batches,
                even_batches: true,
            };
            let batches = batches(SequentialSampler::new(SAMPLES));
            let shard = BatchSamplerShard::new(batches, layout).unwrap();
            bencher.iter(|| {
                shard
                    .epoch()
                    .flatten()
                    .map(|batch| batch.len())
                    .sum::<usize>()
            });
        });
    }
    group.finish();
}

fn batches(sampler: impl Sampler + 'static) -> BatchSampler {
    BatchSampler::new(sampler, NonZeroUsize::new(BATCH).unwrap(), false)
}
