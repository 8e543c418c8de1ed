//! The kinds of models that there are.

use std::fmt;
use std::path::Path;

use super::ConfigFile;
use crate::Result;

/// A kind of model, by the name that `model_type` of a `config.json` has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelType {
    /// BERT: `bert`.
    Bert,
    /// T5: `t5`.
    T5,
    /// GPT-2: `gpt2`.
    Gpt2,
    /// Llama: `llama`.
    Llama,
    /// Mixtral: `mixtral`.
    Mixtral,
    /// ResNet: `resnet`.
    ResNet,
    /// The vision transformer: `vit`.
    Vit,
}

/// Each kind with its name and how the names of its classes begin.
const TABLE: [(ModelType, &str, &str); 7] = [
    (ModelType::Bert, "bert", "Bert"),
    (ModelType::T5, "t5", "T5"),
    (ModelType::Gpt2, "gpt2", "GPT2"),
    (ModelType::Llama, "llama", "Llama"),
    (ModelType::Mixtral, "mixtral", "Mixtral"),
    (ModelType::ResNet, "resnet", "ResNet"),
    (ModelType::Vit, "vit", "ViT"),
];

impl ModelType {
    /// Every kind, in declaration order.
    pub const ALL: [Self; 7] = [
        Self::Bert,
        Self::T5,
        Self::Gpt2,
        Self::Llama,
        Self::Mixtral,
        Self::ResNet,
        Self::Vit,
    ];

    /// The name in configurations.
    pub const fn as_str(self) -> &'static str {
        // In the order of declaration.
        TABLE[self as usize].1
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The kind that a class such as `BertForMaskedLM` belongs to.
    pub fn of_architecture(class: &str) -> Option<Self> {
        TABLE.into_iter().find_map(|(kind, _, start)| {
            let rest = class.strip_prefix(start)?;
            let own = ["Model", "For", "LMHead", "DoubleHeads", "Encoder"];
            own.iter()
                .any(|next| rest.starts_with(next))
                .then_some(kind)
        })
    }

    /// The kind of model that a folder holds.
    ///
    /// # Errors
    /// As for [`ConfigFile::read`] and [`ConfigFile::kind`].
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        ConfigFile::read(folder)?.kind()
    }

    /// Every kind, those with a name like `name` first.
    pub fn nearest_first(name: &str) -> Vec<Self> {
        let name = name.to_lowercase();
        let mut known = Self::ALL;
        let likeness = |kind: Self| strsim::jaro_winkler(&name, kind.as_str());
        known.sort_by(|a, b| likeness(*b).total_cmp(&likeness(*a)));
        known.to_vec()
    }
}

impl fmt::Display for ModelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_classes_lead_to_the_kind() {
        for (kind, (of_row, name, _)) in ModelType::ALL.into_iter().zip(TABLE) {
            assert_eq!((kind, kind.as_str()), (of_row, name));
            assert_eq!(ModelType::from_name(name), Some(kind));
        }
        for (class, kind) in [
            ("BertForMaskedLM", Some(ModelType::Bert)),
            ("GPT2LMHeadModel", Some(ModelType::Gpt2)),
            ("ViTForImageClassification", Some(ModelType::Vit)),
            ("T5EncoderModel", Some(ModelType::T5)),
            ("BertweetModel", None),
            ("ViTMAEModel", None),
            ("RobertaModel", None),
        ] {
            assert_eq!(ModelType::of_architecture(class), kind, "{class}");
        }
    }

    #[test]
    fn the_nearest_kind_comes_first() {
        assert_eq!(ModelType::nearest_first("distilbert").len(), 7);
        assert_eq!(ModelType::nearest_first("GPT_2")[0], ModelType::Gpt2);
        assert_eq!(ModelType::nearest_first("llamma")[0], ModelType::Llama);
        assert_eq!(ModelType::nearest_first("roberta")[0], ModelType::Bert);
    }
}
