//! Models with the parameter and class names of their public checkpoints.
//!
//! A model is built from its `config.json` and reads a Hugging Face folder: configuration,
//! safetensors weights and `tokenizer.json`.
//!
//! | module | room for |
//! | --- | --- |
//! | [`pretrained`] | what every model shares: configurations, folders, first values, the kinds of models |
//! | [`hub`] | where a model comes from: a folder or the hub |
//! | [`bert`] | BERT, bare and with heads for language modelling and classification |
//! | [`gpt2`] | GPT-2, bare and with heads for language modelling and classification |
//! | [`llama`] | Llama, bare and with a head for language modelling |
//! | [`mixtral`] | Mixtral, bare and with a head for language modelling |
//! | [`decoder`] | what decoder models share |
//! | [`t5`] | T5, whole and the encoder alone |
//! | [`auto`] | a model of a task, of whichever kind a folder holds |
//! | [`sentence`] | texts as vectors |
//! | [`resnet`] | ResNet, with the names of torchvision, timm and transformers |
//! | [`vit`] | ViT, bare and with a head for classification |
//! | [`image_classification`] | models that classify images, whatever their kind |
//! | [`loss`] | losses that the heads of several models share |
//! | [`generation`] | new tokens from a model |
//! | [`tokenizer`] | text to token ids |
#![forbid(unsafe_code)]

pub mod auto;
pub mod bert;
pub mod decoder;
mod error;
pub mod generation;
pub mod gpt2;
pub mod hub;
pub mod image_classification;
pub mod llama;
pub mod loss;
pub mod mixtral;
pub mod pretrained;
pub mod resnet;
pub mod sentence;
pub mod t5;
mod token_ids;
pub mod tokenizer;
pub mod vit;

pub use auto::{
    AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification, AutoModelForTokenClassification,
};
pub use error::{Error, Result};
pub use hub::{HubId, ModelSource};
pub use pretrained::{PretrainedConfig, PretrainedModel};
pub use tokenizer::{EncodedBatch, Encoding, TextTokenizer};
