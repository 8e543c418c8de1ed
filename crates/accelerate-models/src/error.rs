use std::path::PathBuf;

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
    #[error("cannot use the configuration `{}`", path.display())]
    ConfigFormat {
        /// The file.
        path: PathBuf,
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
    /// `tokenizer.json` could not be read.
    #[error("cannot read the tokenizer `{}`; export it again with `tokenizer.save_pretrained`", path.display())]
    TokenizerFile {
        /// The file.
        path: PathBuf,
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
}

/// The result of making a model or its tokenizer.
pub type Result<T, E = Error> = std::result::Result<T, E>;
