//! Batch normalisation over several real ranks against one process with the whole batch.

use accelerate::nn::{
    BatchNorm2d, BatchNormOptions, Conv2d, Conv2dOptions, Factory, Forward, Module, ModuleState,
    convert_sync_batchnorm,
};
use accelerate::tch::{Kind, Tensor};
use accelerate::{Accelerator, Result};
use accelerate_testkit::{Rank, formula, ranks};

const CHANNELS: i64 = 3;

fn filled(shape: &[i64], salt: u32, centre: f64) -> Tensor {
    let count = shape.iter().product::<i64>() as usize;
    Tensor::from_slice(&formula(count, salt, centre, 1.0)).reshape(shape)
}

#[track_caller]
fn assert_close(what: &str, found: &Tensor, expected: &Tensor) {
    assert_eq!(found.size(), expected.size(), "{what}");
    let gap = (found - expected).abs().to_kind(Kind::Double);
    let allowed = expected.abs().to_kind(Kind::Double) * 1e-5 + 2e-6;
    let worst = if gap.numel() == 0 {
        0.0
    } else {
        (gap - allowed).max().double_value(&[])
    };
    assert!(worst <= 0.0, "{what}: {found:?} {expected:?} {worst}");
}

/// How many of the rows are this rank's, and how many come before them: the first rank has none
/// where `empty`, each next one has more.
fn part(rank: Rank, empty: bool) -> (i64, i64) {
    let rows = |index: usize| index as i64 + i64::from(!empty);
    let before = (0..rank.index()).map(rows).sum();
    (before, rows(rank.index()))
}

fn layer(options: BatchNormOptions) -> Result<BatchNorm2d> {
    let layer = BatchNorm2d::new(CHANNELS, options, &Factory::default())?;
    for (salt, (_, parameter)) in (60..).zip(layer.named_parameters()) {
        let values = filled(&[CHANNELS], salt, 1.0);
        accelerate::tch::no_grad(|| parameter.tensor().shallow_clone().f_copy_(&values))?;
    }
    Ok(layer)
}

/// Three steps on this rank's rows, beside three steps of a plain layer on all rows.
fn same_as_one_process(
    rank: Rank,
    options: BatchNormOptions,
    empty: bool,
    kind: Kind,
) -> Result<()> {
    let accelerator = Accelerator::new()?;
    let (own, whole) = (layer(options)?, layer(options)?);
    let converted = convert_sync_batchnorm(&own, accelerator.state().process_group());
    assert_eq!((converted, own.class_name()), (1, "SyncBatchNorm"));
    assert_eq!(whole.class_name(), "BatchNorm2d");
    let (before, rows) = part(rank, empty);
    let total = (0..rank.world())
        .map(|index| index as i64 + i64::from(!empty))
        .sum();
    for step in 0..3 {
        let input = filled(&[total, CHANNELS, 2, 3], step, f64::from(step)).to_kind(kind);
        let weights = filled(&[total, CHANNELS, 2, 3], 50 + step, 0.0).to_kind(kind);
        let mine = input
            .narrow(0, before, rows)
            .detach()
            .copy()
            .set_requires_grad(true);
        let all = input.set_requires_grad(true);
        let output = own.call(&mine)?;
        let expected = whole.call(&all)?;
        assert_eq!(output.f_kind()?, kind);
        let tolerant = |tensor: &Tensor| tensor.to_kind(Kind::Float);
        if kind == Kind::Float {
            assert_close("output", &output, &expected.narrow(0, before, rows));
        } else {
            let gap = (tolerant(&output) - tolerant(&expected.narrow(0, before, rows))).abs();
            assert!(
                gap.numel() == 0 || gap.max().double_value(&[]) < 0.04,
                "{gap:?}"
            );
        }
        (&output * weights.narrow(0, before, rows))
            .sum(Kind::Float)
            .backward();
        (&expected * weights).sum(Kind::Float).backward();
        if kind == Kind::Float {
            assert_close("input", &mine.grad(), &all.grad().narrow(0, before, rows));
        }
    }
    for ((name, found), (_, expected)) in own.named_buffers().into_iter().zip(whole.named_buffers())
    {
        assert_close(&name, found.tensor(), expected.tensor());
    }
    for ((name, found), (_, expected)) in own
        .named_parameters()
        .into_iter()
        .zip(whole.named_parameters())
    {
        // Each rank has its own rows' part of the gradient; data parallelism adds them up.
        let sum: Tensor = accelerator.reduce(
            found.tensor().grad(),
            accelerate::collectives::Reduction::Sum,
        )?;
        if kind == Kind::Float {
            assert_close(&name, &sum, &expected.tensor().grad());
        }
    }
    // Evaluation is every rank's own matter.
    own.train(false);
    whole.train(false);
    if rank.index() == 0 && kind == Kind::Float {
        let image = filled(&[1, CHANNELS, 2, 3], 9, 0.0);
        assert_close("evaluated", &own.call(&image)?, &whole.call(&image)?);
    }
    Ok(())
}

#[test]
fn uneven_batches_are_one_batch() {
    ranks(&[1, 2, 3], |rank| {
        same_as_one_process(rank, BatchNormOptions::default(), false, Kind::Float)
    });
}

#[test]
fn a_rank_may_have_nothing() {
    ranks(&[2, 3], |rank| {
        same_as_one_process(rank, BatchNormOptions::default(), true, Kind::Float)
    });
}

#[test]
fn every_setting_is_kept() {
    ranks(&[2], |rank| {
        let plain = BatchNormOptions::default();
        for options in [
            BatchNormOptions {
                affine: false,
                ..plain
            },
            BatchNormOptions {
                bias: false,
                ..plain
            },
            BatchNormOptions {
                momentum: None,
                eps: 1e-2,
                ..plain
            },
            BatchNormOptions {
                track_running_stats: false,
                ..plain
            },
        ] {
            same_as_one_process(rank, options, false, Kind::Float)?;
        }
        same_as_one_process(rank, plain, false, Kind::BFloat16)
    });
}

#[derive(Debug, Module)]
struct Small {
    conv: Conv2d,
    norm: BatchNorm2d,
    state: ModuleState,
}

impl Forward for Small {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, images: Tensor) -> Result<Tensor> {
        self.norm.call(self.conv.call(images)?)
    }
}

fn small() -> Result<Small> {
    let conv = Conv2d::new(
        2,
        CHANNELS,
        [2, 2],
        Conv2dOptions::default(),
        &Factory::default(),
    )?;
    for (salt, parameter) in (70..).zip(conv.parameters()) {
        let values = filled(&parameter.shape(), salt, 0.0);
        accelerate::tch::no_grad(|| parameter.tensor().shallow_clone().f_copy_(&values))?;
    }
    Ok(Small {
        conv,
        norm: layer(BatchNormOptions::default())?,
        state: ModuleState::default(),
    })
}

#[test]
fn under_data_parallelism_gradients_are_those_of_the_whole_batch() {
    ranks(&[2, 3], |rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let (own, whole) = (small()?, small()?);
        convert_sync_batchnorm(&own, accelerator.state().process_group());
        let own = accelerator.prepare(own)?;
        let world = rank.world() as i64;
        let images = filled(&[2 * world, 2, 4, 4], 3, 0.5);
        let weights = filled(&[2 * world, CHANNELS, 3, 3], 4, 0.0);
        let mine = 2 * rank.index() as i64;
        for _ in 0..2 {
            let output = own.call(images.narrow(0, mine, 2))?;
            let loss = (output * weights.narrow(0, mine, 2)).mean(Kind::Float);
            accelerator.backward(&loss)?;
            (whole.call(&images)? * &weights)
                .mean(Kind::Float)
                .backward();
        }
        for ((name, found), (_, expected)) in
            own.named_parameters().iter().zip(whole.named_parameters())
        {
            assert_close(name, &found.tensor().grad(), &expected.tensor().grad());
        }
        Ok(())
    });
}

#[test]
fn one_value_over_all_ranks_is_refused_by_all() {
    ranks(&[2], |rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let own = layer(BatchNormOptions::default())?;
        convert_sync_batchnorm(&own, accelerator.state().process_group());
        let rows = rank.index() as i64;
        let error = own
            .call(filled(&[rows, CHANNELS, 1, 1], 1, 0.0))
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("more than one value of each channel"),
            "{error}"
        );
        Ok(())
    });
}
