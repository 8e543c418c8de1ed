use std::num::NonZeroUsize;

use proptest::prelude::*;

use super::*;
use crate::parallel::{Cast, Mesh, Offload};

fn size(number: u64) -> NonZeroUsize {
    NonZeroUsize::new(usize::try_from(number).unwrap()).unwrap()
}

fn unit(trainable: u64) -> UnitSize {
    UnitSize {
        trainable,
        frozen: 0,
    }
}

/// 10 elements in the root, units of 100, 80 and 60, 8 bytes of buffers, Adam.
fn model() -> ModelSizes {
    ModelSizes {
        root: unit(10),
        units: vec![unit(80), unit(100), unit(60)],
        loaded: FloatType::Float32,
        fixed_bytes: 8,
        optimizer_bytes: 2000,
    }
}

fn in_bf16(mut plan: ParallelPlan) -> ParallelPlan {
    plan.precision.parameters = Cast::To(FloatType::BFloat16);
    plan.precision.is_master_float32 = true;
    plan
}

fn plan(sharded: Sharded) -> ParallelPlan {
    ParallelPlan::new(Mesh::sharded(size(8)), sharded)
}

fn parts(plan: &ParallelPlan) -> [u64; 4] {
    let memory = plan.rank_memory(&model(), 0);
    let parts = [
        memory.weights,
        memory.copies,
        memory.gradients,
        memory.optimizer,
    ];
    assert_eq!(memory.total(), parts.iter().sum::<u64>());
    parts
}

#[test]
fn every_stage_in_one_type() {
    assert_eq!(parts(&plan(Sharded::Nothing)), [1008, 0, 1000, 2000]);
    assert_eq!(parts(&plan(Sharded::OptimizerState)), [1008, 0, 1000, 250]);
    assert_eq!(parts(&plan(Sharded::Gradients)), [1008, 0, 128, 250]);
    // 250 / 8 rounds up to 32; 10 + 100 + 80 elements are whole.
    assert_eq!(parts(&plan(Sharded::Parameters)), [136, 760, 128, 250]);
}

#[test]
fn every_stage_in_two_types() {
    let parts = |sharded| parts(&in_bf16(plan(sharded)));
    assert_eq!(parts(Sharded::Nothing), [1008, 500, 1000, 2000]);
    assert_eq!(parts(Sharded::OptimizerState), [136, 500, 500, 250]);
    assert_eq!(parts(Sharded::Gradients), [136, 500, 128, 250]);
    assert_eq!(parts(Sharded::Parameters), [136, 380, 128, 250]);
}

/// The table of the ZeRO paper: 16-bit weights and gradients, 12 bytes of each element for Adam in
/// float32, which are the copy, and two averages.
#[test]
fn the_bytes_are_those_of_the_paper() {
    let model = ModelSizes {
        root: unit(0),
        units: vec![unit(7_500_000_000)],
        loaded: FloatType::Float16,
        fixed_bytes: 0,
        optimizer_bytes: 7_500_000_000 * 8,
    };
    let gigabytes = |sharded| {
        let mut plan = ParallelPlan::new(Mesh::sharded(size(64)), sharded);
        plan.precision.parameters = Cast::To(FloatType::Float16);
        plan.precision.is_master_float32 = true;
        let memory = plan.rank_memory(&model, 0);
        (memory.weights + memory.gradients + memory.optimizer + memory.copies) as f64 / 1e9
    };
    // 4 P + 12 P / N.
    assert!((gigabytes(Sharded::OptimizerState) - 31.4).abs() < 0.1);
    // The paper reduces in 16 bits, here shards are kept in 32: 2 P + 16 P / N.
    assert!((gigabytes(Sharded::Gradients) - 16.875).abs() < 0.01);
}

#[test]
fn one_rank_shards_nothing() {
    for sharded in Sharded::ALL {
        let one = ParallelPlan::new(Mesh::sharded(size(1)), *sharded);
        assert_eq!(parts(&one), [1008, 0, 1000, 2000]);
    }
}

#[test]
fn without_prefetch_one_unit_is_whole_and_without_release_all_are() {
    let mut plan = plan(Sharded::Parameters);
    plan.prefetch.backward = BackwardPrefetch::NoPrefetch;
    plan.prefetch.forward = false;
    assert_eq!(parts(&plan)[1], 4 * (10 + 100));
    plan.after_forward = AfterForward::Keep;
    assert_eq!(parts(&plan)[1], 1000);
    plan.after_forward = AfterForward::ReleaseTo(size(4));
    assert_eq!(parts(&plan)[1], 4 * (10 + 100) + 4 * 63);
}

#[test]
fn offloaded_bytes_are_elsewhere() {
    let mut plan = in_bf16(plan(Sharded::Parameters));
    let device = plan.placed_memory(&model(), 0);
    assert_eq!((device.cpu, device.disk), (0, 0));
    assert_eq!(device.device, plan.rank_memory(&model(), 0).total());
    plan.offload = Offload::everything(Storage::Cpu { is_pinned: true });
    let all = plan.placed_memory(&model(), 0);
    assert_eq!((all.device, all.cpu), (8 + 380, 128 + 128 + 250));
    plan.offload.optimizer_state = Storage::Disk {
        folder: "/nvme".into(),
    };
    let three = plan.placed_memory(&model(), 0);
    // Shards in bfloat16 are in CPU memory, float32 copies and averages on disk.
    assert_eq!((three.cpu, three.disk), (64 + 128, 128 + 250));
    plan.offload = Offload::nothing();
    plan.offload.optimizer_state = Storage::Cpu { is_pinned: false };
    plan.offload.optimizer_ratio = 0.5;
    assert_eq!(plan.placed_memory(&model(), 0).cpu, 128 + 125);
}

#[test]
fn frozen_parameters_have_no_gradients() {
    let mut frozen = model();
    frozen.units = vec![UnitSize {
        trainable: 0,
        frozen: 240,
    }];
    frozen.loaded = FloatType::BFloat16;
    let memory = plan(Sharded::Parameters).rank_memory(&frozen, 0);
    assert_eq!(memory.weights, 8 + 2 * 2 + 2 * 30);
    assert_eq!(memory.gradients, 2 * 2);
    assert_eq!(memory.copies, 2 * 250);
}

proptest! {
    #[test]
    fn parts_make_the_whole(whole in 0_u64..10_000, ranks in 1_u64..20) {
        let sum: u64 = (0..ranks).map(|rank| part(whole, ranks, rank)).sum();
        prop_assert_eq!(sum, whole);
        prop_assert!((1..ranks).all(|rank| part(whole, ranks, rank) <= part(whole, ranks, 0)));
    }

    /// What ranks hold of everything that is sharded makes what one rank holds of it alone.
    #[test]
    fn ranks_together_hold_what_one_holds(
        ranks in 2_u64..9,
        root in 0_u64..50,
        units in proptest::collection::vec((0_u64..500, 0_u64..500), 0..6),
        state in 0_u64..5000,
        stage in 0_usize..4,
        is_mixed in any::<bool>(),
    ) {
        let model = ModelSizes {
            root: unit(root),
            units: units
                .into_iter()
                .map(|(trainable, frozen)| UnitSize { trainable, frozen })
                .collect(),
            loaded: FloatType::Float32,
            fixed_bytes: 0,
            optimizer_bytes: state,
        };
        let sharded = Sharded::ALL[stage];
        let of = |count: u64| {
            let plan = ParallelPlan::new(Mesh::sharded(size(count)), sharded);
            if is_mixed { in_bf16(plan) } else { plan }
        };
        let alone = of(1).rank_memory(&model, 0);
        let all: Vec<_> = (0..ranks).map(|rank| of(ranks).rank_memory(&model, rank)).collect();
        let sum = |what: fn(&RankMemory) -> u64| all.iter().map(what).sum::<u64>();
        if sharded >= Sharded::OptimizerState {
            prop_assert_eq!(sum(|memory| memory.optimizer), alone.optimizer);
        }
        if sharded >= Sharded::Gradients {
            prop_assert_eq!(sum(|memory| memory.gradients), alone.gradients);
        }
        if sharded == Sharded::Parameters {
            prop_assert_eq!(sum(|memory| memory.weights), alone.weights);
        }
        prop_assert!(all.iter().all(|memory| memory.optimizer <= all[0].optimizer));
    }
}
