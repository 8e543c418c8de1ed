//! From files of text to blocks of tokens.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use accelerate::Accelerator;
use accelerate_models::TextTokenizer;

use crate::arguments::Arguments;

type BoxError = Box<dyn std::error::Error>;

/// What stands between two texts, and ends one that the model makes up.
pub(crate) const END: &str = "<|endoftext|>";

/// Why there is no text to train on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CorpusError {
    /// A file or folder cannot be read.
    #[error(
        "cannot read `{}`; `cargo xtask setup` fetches the default text, `--data` names another",
        path.display()
    )]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is no text.
    #[error("`{}` is no text in UTF-8: byte {at} cannot be read", path.display())]
    NoText {
        /// The file.
        path: PathBuf,
        /// Where the first wrong byte is.
        at: usize,
    },
    /// A folder has no text.
    #[error("`{}` holds no file that ends in `.txt`", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// There is too little text.
    #[error(
        "expected at least {needed} blocks of {block_size} tokens, found {found}; give more text \
         or a smaller `--block-size`"
    )]
    TooShort {
        /// How many blocks are needed.
        needed: usize,
        /// Tokens in a block.
        block_size: usize,
        /// How many blocks there are.
        found: usize,
    },
    /// A tokenizer lacks what ends a text.
    #[error("the tokenizer in `{}` has no token `{END}`", path.display())]
    NoEnd {
        /// Its folder.
        path: PathBuf,
    },
}

/// The content of every file, those of a folder sorted by name.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Vec<String>, CorpusError> {
    let mut texts = Vec::new();
    for path in paths {
        for file in files(path)? {
            let bytes = fs::read(&file).map_err(|source| CorpusError::Read {
                path: file.clone(),
                source,
            })?;
            let text = String::from_utf8(bytes).map_err(|error| CorpusError::NoText {
                path: file,
                at: error.utf8_error().valid_up_to(),
            })?;
            texts.push(text);
        }
    }
    Ok(texts)
}

fn files(path: &Path) -> Result<Vec<PathBuf>, CorpusError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |source| CorpusError::Read {
        path: path.to_owned(),
        source,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|end| end == "txt") {
            found.push(file);
        }
    }
    if found.is_empty() {
        return Err(CorpusError::Empty {
            path: path.to_owned(),
        });
    }
    found.sort();
    Ok(found)
}

/// The tokenizer of the folder that the arguments name, or one that is learnt from the texts: by
/// the main process, for all of them.
pub(crate) fn tokenizer(
    texts: &[String],
    arguments: &Arguments,
    accelerator: &Accelerator,
) -> Result<(TextTokenizer, i64), BoxError> {
    let folder = arguments.tokenizer.clone();
    let tokenizer = match &folder {
        Some(folder) => TextTokenizer::from_folder(folder)?,
        None => learnt(texts, arguments, accelerator)?,
    };
    let end = tokenizer.token_id(END).ok_or_else(|| CorpusError::NoEnd {
        path: folder.unwrap_or_default(),
    })?;
    Ok((tokenizer, end))
}

fn learnt(
    texts: &[String],
    arguments: &Arguments,
    accelerator: &Accelerator,
) -> Result<TextTokenizer, BoxError> {
    // A failure of the main process goes round as text, so that no rank waits for it.
    let mut json: Vec<Result<String, String>> = vec![Ok(String::new())];
    if accelerator.is_main_process() {
        let lines = texts.iter().flat_map(|text| text.split_inclusive('\n'));
        let vocab_size = arguments.vocab_size.get();
        let learnt = TextTokenizer::train_byte_level_bpe(lines, vocab_size, &[END])
            .and_then(|tokenizer| tokenizer.to_json());
        json = vec![learnt.map_err(|error| chain(&error))];
    }
    accelerator.broadcast_object_list(&mut json, 0)?;
    let json = json
        .pop()
        .unwrap_or_else(|| Err("nothing came".to_owned()))?;
    Ok(TextTokenizer::from_json(&json)?)
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}

/// Blocks of tokens, for training and held out.
#[derive(Debug)]
pub(crate) struct Blocks {
    pub(crate) training: Vec<Vec<i64>>,
    pub(crate) held_out: Vec<Vec<i64>>,
}

/// All texts in a row, cut into blocks without padding; what is left at the end is not used.
pub(crate) fn pack(
    texts: &[String],
    tokenizer: &TextTokenizer,
    end: i64,
    arguments: &Arguments,
) -> Result<Blocks, BoxError> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut tokens = Vec::new();
    for encoding in tokenizer.encode_each(&texts, usize::MAX)? {
        tokens.extend(encoding.ids);
        tokens.push(end);
    }
    let block_size = arguments.block_size.get();
    let every = arguments.hold_out_every.get();
    let (mut training, mut held_out) = (Vec::new(), Vec::new());
    for (number, block) in tokens.chunks_exact(block_size).enumerate() {
        // The last of each group, spread evenly over the text.
        let part = if number % every == every - 1 {
            &mut held_out
        } else {
            &mut training
        };
        part.push(block.to_vec());
    }
    if training.is_empty() || held_out.is_empty() {
        return Err(CorpusError::TooShort {
            needed: every.max(2),
            block_size,
            found: training.len() + held_out.len(),
        }
        .into());
    }
    Ok(Blocks { training, held_out })
}
