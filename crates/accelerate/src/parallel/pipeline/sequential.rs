//! Modules that are a row of steps already.

use tch::Tensor;

use super::{PipelineStep, Pipelined};
use crate::nn::{Forward, IntoInput, Module, Sequential, SequentialOf};
use crate::tree::Tree;
use crate::{Error, Result};

impl<T: Tree + IntoInput<T> + 'static> Pipelined for Sequential<T> {
    type Carried = T;

    fn steps(&self) -> Vec<PipelineStep> {
        children(self)
    }

    fn begin(&self, input: T) -> Result<T> {
        Ok(input)
    }

    fn advance(&self, step: usize, carried: T) -> Result<T> {
        let layer = self.get(step).ok_or_else(|| no_step(step, self.len()))?;
        layer.call(carried)
    }

    fn finish(&self, carried: T) -> Result<T> {
        Ok(carried)
    }
}

impl<M: Forward<Input = Tensor, Output = Tensor>> Pipelined for SequentialOf<M> {
    type Carried = Tensor;

    fn steps(&self) -> Vec<PipelineStep> {
        children(self)
    }

    fn begin(&self, input: Tensor) -> Result<Tensor> {
        Ok(input)
    }

    fn advance(&self, step: usize, carried: Tensor) -> Result<Tensor> {
        let layers = self.layers();
        let layer = layers.get(step);
        let layer = layer.ok_or_else(|| no_step(step, layers.len()))?;
        layer.call(carried)
    }

    fn finish(&self, carried: Tensor) -> Result<Tensor> {
        Ok(carried)
    }
}

/// One step for each module inside.
fn children(module: &dyn Module) -> Vec<PipelineStep> {
    let children = module.named_children().into_iter();
    children.map(|(name, _)| PipelineStep::new(name)).collect()
}

fn no_step(step: usize, steps: usize) -> Error {
    Error::Argument {
        operation: "Pipelined::advance",
        expected: format!("a step within 0..{steps}"),
        found: step.to_string(),
    }
}
