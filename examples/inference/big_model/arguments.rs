use std::path::PathBuf;

use accelerate::big_model::{AfterUse, MapChoice, MaxMemory, Mode, Prefetch};
use clap::{Parser, ValueEnum};
use tch::Kind;

/// Generates text with a model that may be larger than memory.
#[derive(Debug, Clone, Parser)]
#[command(args_override_self = true)]
pub(crate) struct Arguments {
    /// Folder with `config.json` and weights; with `tokenizer.json` prompts are text.
    #[arg(long)]
    pub(crate) model: PathBuf,
    /// What is continued: text, or for a folder without a tokenizer ids of tokens, `1,2,3`.
    #[arg(long, default_value = "1")]
    pub(crate) prompt: String,
    /// Tokens added to the prompt.
    #[arg(long = "max_new_tokens", default_value = "20")]
    pub(crate) max_new_tokens: u32,
    /// `auto`, `balanced`, `balanced_low_0`, `sequential`, or a JSON file with a map such as
    /// `{"transformer.h": "disk", "": "cpu"}`.
    #[arg(long = "device_map", default_value = "auto")]
    pub(crate) device_map: String,
    /// What each place may hold, such as `0=10GB,cpu=1GB`; what the machine has without it.
    #[arg(long = "max_memory")]
    pub(crate) max_memory: Option<MaxMemory>,
    /// Folder for weights on disk that cannot stay in the files of the model.
    #[arg(long = "offload_folder")]
    pub(crate) offload_folder: Option<PathBuf>,
    /// Bring each weight only when it is needed.
    #[arg(long = "no_prefetch")]
    pub(crate) no_prefetch: bool,
    /// How many blocks are on their way at a time.
    #[arg(long = "prefetch_blocks", default_value = "2")]
    pub(crate) prefetch_blocks: usize,
    /// What becomes of pages of files when their block has computed.
    #[arg(long = "after_use", value_enum, default_value = "auto")]
    pub(crate) after_use: After,
    /// The type of the weights; that of the files without it.
    #[arg(long, value_enum)]
    pub(crate) dtype: Option<Dtype>,
    /// Say why each part is where it is.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Print one line of JSON with times, memory and ids of tokens, and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum After {
    Auto,
    Keep,
    Drop,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Dtype {
    Float32,
    Float16,
    Bfloat16,
}

impl Dtype {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Float32 => Kind::Float,
            Self::Float16 => Kind::Half,
            Self::Bfloat16 => Kind::BFloat16,
        }
    }
}

impl Arguments {
    pub(crate) fn map_choice(&self) -> Result<MapChoice, Box<dyn std::error::Error>> {
        let error = match self.device_map.parse::<Mode>() {
            Ok(mode) => return Ok(MapChoice::Mode(mode)),
            Err(error) => error,
        };
        let path = PathBuf::from(&self.device_map);
        if !path.exists() {
            return Err(format!("{error}; or a JSON file, and there is none of that name").into());
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("cannot read the map `{}`: {error}", path.display()))?;
        let map = serde_json::from_str(&text)
            .map_err(|error| format!("`{}` holds no device map: {error}", path.display()))?;
        Ok(MapChoice::Map(map))
    }

    pub(crate) fn prefetch(&self) -> Prefetch {
        let after_use = match self.after_use {
            After::Auto => AfterUse::Auto,
            After::Keep => AfterUse::Keep,
            After::Drop => AfterUse::Drop,
        };
        let blocks = if self.no_prefetch {
            0
        } else {
            self.prefetch_blocks
        };
        Prefetch::default()
            .with_blocks(blocks)
            .with_after_use(after_use)
    }
}
