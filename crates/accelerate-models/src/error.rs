use std::path::PathBuf;

use crate::hub::{FolderFault, HubId, HubIdFault};
use crate::pretrained::ModelType;

/// What can go wrong while a model or its tokenizer is made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A layer, a weights file or a tensor operation reports a failure.
    #[error(transparent)]
    Accelerate(#[from] accelerate::Error),
    /// A file of the model's folder could not be read.
    #[error("cannot read `{}`; a model folder holds {needed}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What has to be in the folder.
        needed: &'static str,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A configuration file does not say what it should.
    #[error("cannot use the configuration `{}`: `{key}` is not as expected", path.display())]
    ConfigFormat {
        /// The file.
        path: PathBuf,
        /// The key; `.` for the file itself.
        key: String,
        /// What is wrong and where.
        #[source]
        source: serde_json::Error,
    },
    /// A configuration contradicts itself or asks for what this model cannot do.
    #[error("cannot build {model} with `{key}`: expected {expected}, found {found}")]
    Config {
        /// The model.
        model: &'static str,
        /// The key in the configuration.
        key: &'static str,
        /// What it accepts.
        expected: String,
        /// What it was given.
        found: String,
    },
    /// A folder holds a kind of model that this library does not have.
    #[error(
        "`{}` describes no known model: expected `model_type` to be one of {}, found {found}",
        path.display(),
        names(known)
    )]
    UnknownModelType {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: String,
        /// The known kinds, those with the most similar names first.
        known: Vec<ModelType>,
    },
    /// A folder holds another kind of model than the one asked for.
    #[error(
        "`{}` describes another model: expected `model_type` `{expected}`, found `{found}`",
        path.display()
    )]
    OtherModelType {
        /// The file.
        path: PathBuf,
        /// The kind that was asked for.
        expected: ModelType,
        /// The kind that the file describes.
        found: ModelType,
    },
    /// A folder holds a model that is not made for a task.
    #[error(
        "`{}` describes a `{found}`, which has no model for {task}; those that have: {}",
        path.display(),
        names(known)
    )]
    Task {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        task: &'static str,
        /// The kind that the file describes.
        found: ModelType,
        /// The kinds that have the task.
        known: Vec<ModelType>,
    },
    /// A configuration holds what JSON cannot.
    #[error("cannot write the configuration of `{class}` as JSON")]
    WriteConfig {
        /// The class of the model.
        class: String,
        /// What cannot be written.
        #[source]
        source: serde_json::Error,
    },
    /// The folder for a model cannot be written.
    #[error("cannot write `{}`; name a folder that can be written", path.display())]
    SaveFolder {
        /// The folder, or the file in it.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// `tokenizer.json` could not be read.
    #[error("cannot read the tokenizer `{}`; export it again with `tokenizer.save_pretrained`", path.display())]
    TokenizerFile {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: tokenizers::Error,
    },
    /// A tokenizer could not be learnt from text.
    #[error("cannot learn a tokenizer of at most {vocab_size} tokens")]
    TokenizerTraining {
        /// How many tokens it may have.
        vocab_size: usize,
        /// Why it failed.
        #[source]
        source: tokenizers::Error,
    },
    /// A text could not be tokenised.
    #[error("cannot tokenise a text of {chars} characters")]
    Tokenise {
        /// The length of the longest text at hand.
        chars: usize,
        /// Why it failed.
        #[source]
        source: tokenizers::Error,
    },
    /// Tokens could not be turned into text.
    #[error("cannot turn {tokens} tokens into text")]
    Detokenise {
        /// How many tokens there are.
        tokens: usize,
        /// Why it failed.
        #[source]
        source: tokenizers::Error,
    },
    /// The length limit leaves no room for text.
    #[error(
        "a sequence of {special} special tokens does not fit into `max_length` {max_length}; raise it"
    )]
    NoRoom {
        /// The limit, in tokens.
        max_length: usize,
        /// How many special tokens each sequence has.
        special: usize,
    },
    /// A text names neither a folder that exists nor a model of the hub.
    #[error(
        "`{value}` names no model: as a folder, {folder}; as a hub id, {hub}; give a folder with \
         `config.json`, `model.safetensors` and `tokenizer.json`, or an id such as `owner/name`"
    )]
    ModelSource {
        /// The text.
        value: String,
        /// Why it is no folder.
        folder: FolderFault,
        /// Why it is no id.
        hub: HubIdFault,
    },
    /// A model is on the hub, and this program is built without the way there.
    #[error(
        "`{id}` is no folder here; to have it fetched from the hub, build with the feature `hub`: \
         `cargo build -p accelerate-examples --features hub`"
    )]
    HubFeature {
        /// The model.
        id: HubId,
    },
    /// A file is not in the cache, and the hub may not be asked.
    #[error("`{file}` of `{id}` is not in the cache `{}`; {remedy}", cache.display())]
    HubNotCached {
        /// The model.
        id: HubId,
        /// The file.
        file: String,
        /// The folder of the cache.
        cache: PathBuf,
        /// Why the hub is not asked, and what to do.
        remedy: &'static str,
    },
    /// The environment does not say where files from the hub are kept.
    #[error("`{id}` has no place on this machine: there is no home folder; set `HF_HOME`")]
    HubNoHome {
        /// The model.
        id: HubId,
    },
    /// The hub does not know the model, its revision or a file of it.
    #[error(
        "{endpoint} has no `{file}` for `{id}`; check the name and the revision: a model holds \
         `config.json`, `tokenizer.json`, and `model.safetensors` or its index"
    )]
    HubNotFound {
        /// The model.
        id: HubId,
        /// The file.
        file: String,
        /// The address of the hub.
        endpoint: String,
    },
    /// The hub does not show the model to this user.
    #[error(
        "{endpoint} does not give `{file}` of `{id}` to this user; check the name, accept the \
         conditions of the model, and set `HF_TOKEN` to a token that may read it"
    )]
    HubAccess {
        /// The model.
        id: HubId,
        /// The file.
        file: String,
        /// The address of the hub.
        endpoint: String,
        /// What the hub says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file did not come from the hub whole.
    #[error(
        "cannot fetch `{file}` of `{id}` from {endpoint}; try again, or give a folder that holds \
         the model"
    )]
    HubFetch {
        /// The model.
        id: HubId,
        /// The file.
        file: String,
        /// The address of the hub.
        endpoint: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The result of making a model or its tokenizer.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn names(kinds: &[ModelType]) -> String {
    let quoted: Vec<String> = kinds.iter().map(|kind| format!("`{kind}`")).collect();
    quoted.join(", ")
}
