//! Walks over nested values, and collectives of a process by itself, which only walk.

use std::collections::BTreeMap;

use accelerate::Accelerator;
use accelerate::tree::{SendOptions, Tree, find_batch_size, send_to_device};
use criterion::Criterion;
use tch::{Device, Kind, Tensor};

type Nested = (Tensor, Vec<Tensor>, BTreeMap<String, Tensor>);

/// 16 tensors.
fn nested() -> Nested {
    let tensor = || Tensor::zeros([32, 8], (Kind::Float, Device::Cpu));
    let map = (0..8).map(|number| (format!("column_{number}"), tensor()));
    (tensor(), (0..7).map(|_| tensor()).collect(), map.collect())
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tree");
    let accelerator = Accelerator::builder().cpu(true).build().unwrap();
    group.bench_function("visit/16", |bencher| {
        let tree = nested();
        bencher.iter(|| {
            let mut leaves = 0;
            tree.visit(&mut |_| {
                leaves += 1;
                Ok(())
            })
            .unwrap();
            leaves
        });
    });
    group.bench_function("find_batch_size/16", |bencher| {
        let tree = nested();
        bencher.iter(|| find_batch_size(&tree).unwrap());
    });
    group.bench_function("send_to_same_device/16", |bencher| {
        let mut tree = Some(nested());
        bencher.iter(|| {
            let sent = send_to_device(tree.take().unwrap(), Device::Cpu, &SendOptions::default());
            tree = Some(sent.unwrap());
        });
    });
    group.bench_function("gather_for_metrics_alone/16", |bencher| {
        let mut tree = Some(nested());
        bencher.iter(|| {
            tree = Some(
                accelerator
                    .gather_for_metrics(tree.take().unwrap())
                    .unwrap(),
            );
        });
    });
    group.finish();
}
