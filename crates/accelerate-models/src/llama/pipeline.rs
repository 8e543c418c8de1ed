//! Llama as a row of steps.

use accelerate::Result;
use accelerate::nn::Forward;
use accelerate::parallel::{PipelineStep, Pipelined};

use super::LlamaForCausalLM;
use crate::decoder::{CarriedStates, CausalLmInput, CausalLmOutput, DecoderStage, decoder_steps};

impl Pipelined for LlamaForCausalLM {
    type Carried = CarriedStates;

    fn steps(&self) -> Vec<PipelineStep> {
        let embeddings = PipelineStep::new("model.embed_tokens").with("model.rotary_emb");
        let layers = ("model.layers", self.model.layers.len());
        decoder_steps(embeddings, layers, "model.norm", "lm_head")
    }

    fn begin(&self, input: CausalLmInput) -> Result<CarriedStates> {
        CarriedStates::begin(&input, self.model.reach())
    }

    fn advance(&self, step: usize, mut carried: CarriedStates) -> Result<CarriedStates> {
        let model = &self.model;
        match DecoderStage::of(step, model.layers.len()) {
            DecoderStage::Embed => {
                let positions = carried.take_positions()?;
                carried.hidden = model.embed_tokens.call(carried.hidden)?;
                carried.angles = Some(model.rotary_emb.call((&carried.hidden, &positions))?);
                Ok(carried)
            }
            DecoderStage::Layer(layer) => carried.through(&model.layers[layer]),
            DecoderStage::Norm => carried.normed(&model.norm),
            DecoderStage::Head => carried.scored(&self.lm_head),
        }
    }

    fn finish(&self, carried: CarriedStates) -> Result<CausalLmOutput> {
        Ok(carried.finish())
    }
}
