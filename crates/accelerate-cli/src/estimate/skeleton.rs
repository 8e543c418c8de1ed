//! From a `config.json` to the modules of the model, without a tensor.
//!
//! One file per family of models. They follow the modules of transformers 5 and of timm, so that a
//! size is the one that the original finds by building the model.

mod bert;
mod decoder;
mod distilbert;
mod gemma;
mod gpt2;
mod gpt_neox;
mod llama;
mod mixtral;
mod opt;
mod phi;
mod resnet;
mod roberta;
mod t5;
pub(crate) mod timm;
mod vit;

use super::{
    config::Config,
    error::{EstimateError, Result},
    largest::{Largest, largest_layer},
    module::{Module, Name},
};

/// A model without tensors.
#[derive(Debug)]
pub(crate) struct Skeleton {
    pub(crate) root: Module,
    /// Classes whose modules belong on one device, so that they count as one layer.
    pub(crate) no_split: Vec<Name>,
}

impl Skeleton {
    pub(crate) fn largest_layer(&self) -> Largest {
        largest_layer(&self.root, &self.no_split)
    }

    /// The elements of all parameters; with `once`, tied ones are not counted again.
    pub(crate) fn parameters(&self, once: bool) -> u64 {
        let mut elements: u64 = 0;
        self.root.visit(&mut |module| {
            let counted = module.parameters.iter().filter(|p| !(once && p.shared));
            elements = counted.fold(elements, |sum, p| sum.saturating_add(p.elements()));
        });
        elements
    }
}

/// What a model has on top of its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    Base,
    Encoder,
    PreTraining,
    CausalLm,
    MaskedLm,
    SequenceToSequence,
    SequenceClassification,
    TokenClassification,
    QuestionAnswering,
    MultipleChoice,
    NextSentence,
    DoubleHeads,
    ImageClassification,
    MaskedImage,
}

impl Head {
    /// The head that a key of `auto_map` stands for.
    fn of_auto_class(key: &str) -> Option<Self> {
        Some(match key.strip_prefix("AutoModelFor")? {
            "PreTraining" => Self::PreTraining,
            "CausalLM" => Self::CausalLm,
            "MaskedLM" => Self::MaskedLm,
            "Seq2SeqLM" => Self::SequenceToSequence,
            "SequenceClassification" => Self::SequenceClassification,
            "TokenClassification" => Self::TokenClassification,
            "QuestionAnswering" => Self::QuestionAnswering,
            "MultipleChoice" => Self::MultipleChoice,
            "NextSentencePrediction" => Self::NextSentence,
            "ImageClassification" => Self::ImageClassification,
            "MaskedImageModeling" => Self::MaskedImage,
            _ => return None,
        })
    }
}

/// Models that share a `model_type`.
struct Family {
    model_type: &'static str,
    /// The classes with their heads; the base comes first.
    classes: &'static [(&'static str, Head)],
    build: fn(&Config, Head) -> Result<Skeleton>,
}

/// The families that are known, in the order in which messages list them.
const FAMILIES: [&Family; 21] = [
    &bert::FAMILY,
    &roberta::ROBERTA,
    &roberta::XLM_ROBERTA,
    &roberta::CAMEMBERT,
    &distilbert::FAMILY,
    &gpt2::FAMILY,
    &gpt_neox::FAMILY,
    &opt::FAMILY,
    &llama::LLAMA,
    &llama::MISTRAL,
    &llama::QWEN2,
    &llama::QWEN3,
    &mixtral::FAMILY,
    &gemma::GEMMA,
    &gemma::GEMMA2,
    &phi::PHI,
    &phi::PHI3,
    &t5::T5,
    &t5::MT5,
    &vit::FAMILY,
    &resnet::FAMILY,
];

/// Which class of a family is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Architecture {
    /// The one that the original builds: the base, or what `auto_map` asks for.
    Base,
    /// The one that `architectures` in the configuration names.
    Config,
    /// A class by its name.
    Class(String),
}

/// Builds the model of a transformers configuration; none if its `model_type` is not known.
///
/// # Errors
/// [`EstimateError::UnknownClass`] for a class that the family does not have,
/// [`EstimateError::ConfigValue`] for values that make no sense, [`EstimateError::TooLarge`].
pub(crate) fn build(config: &Config, architecture: &Architecture) -> Result<Option<Skeleton>> {
    let model_type = config.text("model_type")?;
    let Some(family) = FAMILIES.iter().find(|f| Some(f.model_type) == model_type) else {
        return Ok(None);
    };
    let (class, head) = choose(family, config, architecture)?;
    let mut skeleton = (family.build)(config, head)?;
    skeleton.root.class = class.into();
    if skeleton.root.bytes() == u64::MAX {
        let path = config.path().to_owned();
        return Err(EstimateError::TooLarge { path });
    }
    Ok(Some(skeleton))
}

/// The types of models that [`build`] knows.
pub(crate) fn known_model_types() -> Vec<&'static str> {
    FAMILIES.iter().map(|family| family.model_type).collect()
}

fn choose(
    family: &Family,
    config: &Config,
    architecture: &Architecture,
) -> Result<(&'static str, Head)> {
    let classes = family.classes.iter().copied();
    let wanted = match architecture {
        Architecture::Base => {
            let mut heads = config
                .auto_map()
                .into_iter()
                .filter_map(Head::of_auto_class);
            let asked = heads.next();
            let found = asked.and_then(|asked| classes.clone().find(|(_, head)| *head == asked));
            return Ok(found.unwrap_or(family.classes[0]));
        }
        Architecture::Config => match config.architecture() {
            Some(class) => class,
            None => return Ok(family.classes[0]),
        },
        Architecture::Class(class) => class,
    };
    let found = classes.clone().find(|(class, _)| *class == wanted);
    found.ok_or_else(|| EstimateError::UnknownClass {
        class: wanted.to_owned(),
        model_type: family.model_type,
        known: classes.map(|(class, _)| class).collect(),
    })
}

#[cfg(test)]
mod tests;
