//! Activations that are computed again, with and without shards.

use std::cell::Cell;
use std::rc::Rc;

use accelerate::nn::{Dropout, Factory, Forward, Linear, Module, ModuleState};
use accelerate::optim::{AdamW, AdamWConfig, Optimizer};
use accelerate::{Accelerator, Result};
use accelerate_plan::parallel::{Mesh, ParallelPlan, Recompute, Sharded};
use accelerate_testkit::{Rank, ranks};
use tch::{Device, Kind, Tensor};

use crate::job::{Setup, by_class, compare, count, plan, trained};

const WIDTH: i64 = 24;

#[derive(Debug, Module)]
struct Block {
    first: Linear,
    dropout: Dropout,
    second: Linear,
    #[module(skip)]
    calls: Rc<Cell<usize>>,
    state: ModuleState,
}

impl Forward for Block {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.calls.set(self.calls.get() + 1);
        let hidden = self
            .dropout
            .call(self.first.call(&input)?.f_gelu("none")?)?;
        Ok(input.f_add(&self.second.call(hidden)?)?)
    }
}

#[derive(Debug, Module)]
struct Model {
    blocks: Vec<Block>,
    state: ModuleState,
}

impl Forward for Model {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        let mut blocks = self.blocks.iter();
        blocks.try_fold(input, |hidden, block| block.call(hidden))
    }
}

fn model(calls: &Rc<Cell<usize>>) -> Result<Model> {
    tch::manual_seed(5);
    let factory = Factory::default();
    let block = || -> Result<Block> {
        Ok(Block {
            first: Linear::new(WIDTH, 50, &factory)?,
            dropout: Dropout::new(0.3)?,
            second: Linear::new(50, WIDTH, &factory)?,
            calls: Rc::clone(calls),
            state: ModuleState::default(),
        })
    };
    Ok(Model {
        blocks: vec![block()?, block()?, block()?],
        state: ModuleState::default(),
    })
}

/// Losses, the weights that came of them, and how many times a block was computed.
fn with_dropout(rank: Rank, plan: ParallelPlan) -> Result<(Vec<Tensor>, usize)> {
    let accelerator = Accelerator::builder()
        .cpu(true)
        .parallel_plan(plan)
        .build()?;
    let calls = Rc::default();
    let model = model(&calls)?;
    let parameters = model.parameters().into_iter();
    let parameters: Vec<Tensor> = parameters
        .map(|parameter| parameter.tensor().shallow_clone())
        .collect();
    let optimizer = AdamW::new(parameters, AdamWConfig::default())?;
    let (model, mut optimizer) = accelerator.prepare((model, optimizer))?;
    tch::manual_seed(100 + rank.index() as i64);
    let mut found = Vec::new();
    for _ in 0..4 {
        let input = Tensor::f_randn([6, WIDTH], (Kind::Float, Device::Cpu))?;
        let loss = model.call(input)?.f_square()?.f_mean(Kind::Float)?;
        accelerator.backward(&loss)?;
        optimizer.step()?;
        optimizer.zero_grad()?;
        found.push(loss.f_detach()?);
    }
    let calls = calls.get();
    let weights = model.with_whole_parameters(false, |model| {
        let own = model.parameters().into_iter();
        own.map(|one| Ok(one.tensor().f_detach_copy()?)).collect()
    });
    found.append(&mut weights?);
    Ok((found, calls))
}

#[test]
fn units_compute_their_activations_again_with_the_same_random_numbers() {
    ranks(&[1, 2], |rank| -> Result<()> {
        let whole = ParallelPlan::replicated(count(rank.world()));
        let mut plans = vec![whole];
        if rank.world() > 1 {
            plans.push(plan(rank, Sharded::Gradients, by_class()));
            plans.push(plan(rank, Sharded::Parameters, by_class()));
        }
        for mut plan in plans {
            plan.wrap = by_class();
            let (expected, once) = with_dropout(rank, plan.clone())?;
            for recompute in [Recompute::Units, Recompute::UnitsOffloaded] {
                plan.recompute = recompute;
                let (found, calls) = with_dropout(rank, plan.clone())?;
                assert_eq!(expected, found, "{:?} {recompute:?}", plan.sharded);
                assert_eq!(calls, 2 * once, "{:?}", plan.sharded);
            }
        }
        Ok(())
    });
}

#[test]
fn frozen_tied_and_accumulated_gradients_are_the_same() {
    ranks(&[2], |rank| -> Result<()> {
        for (frozen, tied, accumulation) in [(false, true, 1), (true, false, 1), (true, true, 2)] {
            let setup = Setup {
                steps: 4,
                frozen,
                tied,
                accumulation,
                ..Setup::default()
            };
            let mut by_plan = plan(rank, Sharded::Parameters, by_class());
            let expected = trained(rank, &setup.by(by_plan.clone()))?;
            by_plan.recompute = Recompute::Units;
            let found = trained(rank, &setup.by(by_plan))?;
            compare(&expected, &found, None, "computed again");
        }
        let mut mesh = ParallelPlan::new(Mesh::replicated(count(2)), Sharded::Nothing);
        mesh.wrap = by_class();
        mesh.recompute = Recompute::Units;
        let setup = Setup {
            steps: 4,
            ..Setup::default()
        };
        let expected = trained(rank, &setup)?;
        compare(&expected, &trained(rank, &setup.by(mesh))?, None, "copies");
        Ok(())
    });
}
