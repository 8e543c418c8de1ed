//! What takes random numbers is in `tests/sharded/recompute.rs`, where no other test draws some.

use std::cell::Cell;

use accelerate_testkit::formula;

use super::*;
use crate::nn::{Factory, Linear};
use crate::precision::{AutocastHook, AutocastKwargs};

/// Two layers that count their calls.
#[derive(Debug, Module)]
struct Block {
    first: Linear,
    second: Linear,
    #[module(skip)]
    calls: Cell<usize>,
    state: ModuleState,
}

impl Forward for Block {
    type Input = (Tensor, Option<Tensor>, f64);
    type Output = (Tensor, Option<Tensor>);

    fn forward(&self, (hidden, mask, scale): Self::Input) -> Result<Self::Output> {
        self.calls.set(self.calls.get() + 1);
        let inner = self.first.call(&hidden)?.f_tanh()?;
        let mut out = self.second.call(inner)?.f_mul_scalar(scale)?;
        if let Some(mask) = &mask {
            out = out.f_mul(mask)?;
        }
        Ok((out.f_add(&hidden)?, mask))
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
        let mut passed = (
            input.shallow_clone(),
            Some(input.f_gt(0.0)?.f_to_kind(Kind::Float)?),
        );
        for block in &self.blocks {
            passed = block.call((passed.0, passed.1, 0.5))?;
        }
        Ok(passed.0)
    }
}

fn model() -> Result<Rc<Model>> {
    let factory = Factory::default();
    let block = || -> Result<Block> {
        Ok(Block {
            first: Linear::new(6, 10, &factory)?,
            second: Linear::new(10, 6, &factory)?,
            calls: Cell::new(0),
            state: ModuleState::default(),
        })
    };
    let model = Rc::new(Model {
        blocks: vec![block()?, block()?],
        state: ModuleState::default(),
    });
    for (salt, parameter) in (1..).zip(model.parameters()) {
        let values = Tensor::from_slice(&formula(parameter.numel(), salt, 0.0, 0.5));
        let values = values.f_view(parameter.shape().as_slice())?;
        let mut tensor = parameter.tensor().shallow_clone();
        tch::no_grad(|| tensor.f_copy_(&values))?;
    }
    Ok(model)
}

/// The loss and all gradients.
fn trained(model: &Model) -> Result<(Tensor, Vec<Tensor>)> {
    let input = Tensor::from_slice(&formula(4 * 6, 99, 0.0, 1.0)).f_view([4, 6])?;
    let loss = model.call(input)?.f_square()?.f_mean(Kind::Float)?;
    loss.f_backward()?;
    let gradients = model.parameters().into_iter();
    let gradients = gradients.map(|one| one.tensor().grad()).collect();
    Ok((loss.f_detach()?, gradients))
}

fn checkpointed(model: &Rc<Model>, inputs: KeptInputs) -> Result<()> {
    checkpoint_module(model, "blocks.0", inputs)?;
    checkpoint_module(model, "blocks.1", inputs)?;
    Ok(())
}

#[test]
fn losses_and_gradients_are_the_same() -> Result<()> {
    let expected = trained(&model()?)?;
    for inputs in [KeptInputs::OnDevice, KeptInputs::InCpuMemory] {
        let model = model()?;
        checkpointed(&model, inputs)?;
        assert_eq!(trained(&model)?, expected);
        assert!(model.blocks.iter().all(|block| block.calls.get() == 2));
    }
    Ok(())
}

#[test]
fn autocast_is_the_same_in_the_second_pass() -> Result<()> {
    let with_autocast = || -> Result<Rc<Model>> {
        let model = model()?;
        let kwargs = AutocastKwargs::default();
        let hook = AutocastHook::new(Device::Cpu, Kind::BFloat16, kwargs, true);
        let _stays = model.add_hook(Rc::new(hook))?;
        Ok(model)
    };
    let expected = trained(&with_autocast()?)?;
    let model = with_autocast()?;
    checkpointed(&model, KeptInputs::OnDevice)?;
    assert_eq!(trained(&model)?, expected);
    Ok(())
}

#[test]
fn frozen_parts_have_no_gradient() -> Result<()> {
    let model = model()?;
    checkpointed(&model, KeptInputs::OnDevice)?;
    model.blocks[0].set_requires_grad(false)?;
    model.blocks[1].first.set_requires_grad(false)?;
    let _gradients = trained(&model)?;
    assert!(!model.blocks[1].first.weight.tensor().grad().defined());
    assert!(model.blocks[1].second.weight.tensor().grad().defined());
    // Nothing is to be computed again for a block from which no gradient comes.
    assert_eq!(model.blocks[0].calls.get(), 1);
    Ok(())
}

#[test]
fn a_module_that_cannot_be_found_keeps_its_activations() -> Result<()> {
    let expected = trained(&model()?)?;
    let shared = model()?;
    checkpointed(&shared, KeptInputs::OnDevice)?;
    let own = Rc::try_unwrap(shared).unwrap();
    assert_eq!(trained(&own)?, expected);
    assert_eq!(own.blocks[0].calls.get(), 1);
    Ok(())
}

#[test]
fn what_would_be_wrong_is_refused() -> Result<()> {
    let shared = model()?;
    assert!(checkpoint_module(&shared, "blocks.2", KeptInputs::OnDevice).is_err());
    checkpointed(&shared, KeptInputs::OnDevice)?;
    let weight = shared.blocks[0].first.weight.tensor();
    let _stays = autograd::on_gradient(weight, |_| Ok(None))?;
    let error = trained(&shared).unwrap_err().to_string();
    assert!(error.contains("`first.weight` of a `Block`"), "{error}");
    Ok(())
}

#[test]
fn a_checkpoint_goes_with_its_hook() -> Result<()> {
    let shared = model()?;
    let hook = checkpoint_module(&shared, "blocks.0", KeptInputs::OnDevice)?;
    assert!(is_any_checkpointed());
    let state = shared.blocks[0].state().unwrap();
    assert!(state.remove_hook(hook));
    assert!(!is_any_checkpointed());
    trained(&shared)?;
    assert_eq!(shared.blocks[0].calls.get(), 1);
    Ok(())
}
