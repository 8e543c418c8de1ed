//! A model of a task, of whichever kind the folder holds.
//!
//! ```
//! use accelerate::nn::Factory;
//! use accelerate_models::AutoModelForSequenceClassification;
//!
//! let error = AutoModelForSequenceClassification::from_folder("nowhere", &Factory::default());
//! assert!(error.unwrap_err().to_string().contains("config.json"));
//! ```

use accelerate::Result;
use tch::Tensor;

use crate::bert::{
    BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification, BertInput,
    MaskedLMOutput, SequenceClassifierOutput, TokenClassifierOutput,
};
use crate::generation::{DecoderStep, EncoderStates, GenerationProfile, GenerativeModel};
use crate::gpt2::GPT2LMHeadModel;
use crate::llama::LlamaForCausalLM;
use crate::mixtral::MixtralForCausalLM;
use crate::t5::{Seq2SeqLMOutput, T5ForConditionalGeneration, T5Input};

crate::auto_model! {
    /// A model that classifies texts.
    pub enum AutoModelForSequenceClassification for "sequence classification",
        forward(BertInput => SequenceClassifierOutput)
    {
        /// BERT.
        Bert(BertForSequenceClassification),
    }
}

crate::auto_model! {
    /// A model that classifies each token of a text.
    pub enum AutoModelForTokenClassification for "token classification",
        forward(BertInput => TokenClassifierOutput)
    {
        /// BERT.
        Bert(BertForTokenClassification),
    }
}

crate::auto_model! {
    /// A model that predicts masked tokens.
    pub enum AutoModelForMaskedLM for "masked language modelling",
        forward(BertInput => MaskedLMOutput)
    {
        /// BERT.
        Bert(BertForMaskedLM),
    }
}

crate::auto_model! {
    /// A model that reads a text and writes another.
    pub enum AutoModelForSeq2SeqLM for "sequence to sequence",
        forward(T5Input => Seq2SeqLMOutput)
    {
        /// T5.
        T5(T5ForConditionalGeneration),
    }
}

impl GenerativeModel for AutoModelForSeq2SeqLM {
    fn generation_profile(&self) -> GenerationProfile {
        match self {
            Self::T5(model) => model.generation_profile(),
        }
    }

    fn encode(&self, input_ids: &Tensor, attention_mask: Option<&Tensor>) -> Result<EncoderStates> {
        match self {
            Self::T5(model) => model.encode(input_ids, attention_mask),
        }
    }

    fn next_token_logits(&self, step: &DecoderStep<'_>) -> Result<Tensor> {
        match self {
            Self::T5(model) => model.next_token_logits(step),
        }
    }
}

crate::auto_model! {
    /// A model that predicts the next token and so continues texts.
    pub enum AutoModelForCausalLM for "text generation" {
        /// GPT-2.
        Gpt2(GPT2LMHeadModel),
        /// Llama.
        Llama(LlamaForCausalLM),
        /// Mixtral.
        Mixtral(MixtralForCausalLM),
    }
}

impl AutoModelForCausalLM {
    fn generative(&self) -> &dyn GenerativeModel {
        match self {
            Self::Gpt2(model) => model,
            Self::Llama(model) => model,
            Self::Mixtral(model) => model,
        }
    }
}

impl GenerativeModel for AutoModelForCausalLM {
    fn generation_profile(&self) -> GenerationProfile {
        self.generative().generation_profile()
    }

    fn next_token_logits(&self, step: &DecoderStep<'_>) -> Result<Tensor> {
        self.generative().next_token_logits(step)
    }
}
