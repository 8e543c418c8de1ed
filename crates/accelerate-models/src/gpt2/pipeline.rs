//! GPT-2 as a row of steps.

use accelerate::Result;
use accelerate::parallel::{PipelineStep, Pipelined};

use super::GPT2LMHeadModel;
use crate::decoder::{CarriedStates, CausalLmInput, CausalLmOutput, DecoderStage, decoder_steps};

impl Pipelined for GPT2LMHeadModel {
    type Carried = CarriedStates;

    fn steps(&self) -> Vec<PipelineStep> {
        let embeddings = PipelineStep::new("transformer.wte").with("transformer.wpe");
        let layers = ("transformer.h", self.transformer.h.len());
        decoder_steps(embeddings, layers, "transformer.ln_f", "lm_head")
    }

    fn begin(&self, input: CausalLmInput) -> Result<CarriedStates> {
        CarriedStates::begin(&input, self.transformer.reach())
    }

    fn advance(&self, step: usize, mut carried: CarriedStates) -> Result<CarriedStates> {
        let model = &self.transformer;
        match DecoderStage::of(step, model.h.len()) {
            DecoderStage::Embed => {
                let positions = carried.take_positions()?;
                carried.hidden = model.embed(&carried.hidden, positions)?;
                Ok(carried)
            }
            DecoderStage::Layer(layer) => carried.through(&model.h[layer]),
            DecoderStage::Norm => carried.normed(&model.ln_f),
            DecoderStage::Head => carried.scored(&self.lm_head),
        }
    }

    fn finish(&self, carried: CarriedStates) -> Result<CausalLmOutput> {
        Ok(carried.finish())
    }
}
