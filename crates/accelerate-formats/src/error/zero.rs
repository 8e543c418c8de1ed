//! What can be wrong with a checkpoint of DeepSpeed.

use super::TorchFault;
use super::wording::quoted;

/// Why a checkpoint of DeepSpeed cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZeroFault {
    /// The folder does not say which tag to read.
    #[error(
        "there is no file `latest` in it; name the tag, the folder with the files `*_optim_states.pt`"
    )]
    NoLatest,
    /// The tag is no plain folder name.
    #[error("the tag `{tag}` is no plain folder name")]
    Tag {
        /// The tag.
        tag: String,
    },
    /// The folder of the tag lacks files.
    #[error("there is no file `*{ending}` in it; found {}", quoted(found))]
    NoFiles {
        /// How the files end.
        ending: &'static str,
        /// What is there.
        found: Vec<String>,
    },
    /// A file cannot be read.
    #[error("`{file}` cannot be read")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        #[source]
        source: TorchFault,
    },
    /// The files are not of ZeRO.
    #[error("`{file}` holds no `zero_stage`: this is no checkpoint of ZeRO stage 1, 2 or 3")]
    NotZero {
        /// The file.
        file: String,
    },
    /// An unknown stage.
    #[error("ZeRO stage {found} is not known: expected 1, 2 or 3")]
    Stage {
        /// The stage.
        found: i128,
    },
    /// The model was cut by tensor or pipeline parallelism as well.
    #[error(
        "`{file}` belongs to a model that several ranks shared (tensor parallelism), which is not read"
    )]
    ModelParallel {
        /// One file.
        file: String,
    },
    /// Files of some ranks are missing.
    #[error(
        "{expected} ranks wrote this checkpoint, but {found} files `*{ending}` are there{}",
        lacking(.missing)
    )]
    Ranks {
        /// How many ranks there were.
        expected: usize,
        /// How many files there are.
        found: usize,
        /// How the files end.
        ending: &'static str,
        /// The ranks whose files are not there.
        missing: Vec<usize>,
    },
    /// Files of two checkpoints lie in one folder.
    #[error(
        "`{file}` says {found} where `{first}` says {expected}: these files are not of one checkpoint"
    )]
    Contradiction {
        /// The second file.
        file: String,
        /// What it says.
        found: String,
        /// The first file.
        first: String,
        /// What that one says.
        expected: String,
    },
    /// A part is missing, or of another kind.
    #[error(
        "`{file}` lacks `{what}`, or holds something else there; it is from an unknown version"
    )]
    Lacks {
        /// The file.
        file: String,
        /// The part.
        what: &'static str,
    },
    /// The partitions hold more or fewer numbers than the parameters need.
    #[error(
        "the partitions of group {group} hold {found} numbers, and its parameters need {expected}"
    )]
    Numbers {
        /// The group.
        group: usize,
        /// What the parameters need, with padding.
        expected: usize,
        /// What is there.
        found: usize,
    },
    /// A parameter reaches past the end of the partitions.
    #[error("the partitions end within parameter `{parameter}`")]
    Ends {
        /// The parameter.
        parameter: String,
    },
    /// Two things have one name.
    #[error("`{name}` stands twice in it")]
    Twice {
        /// The name.
        name: String,
    },
}

fn lacking(missing: &[usize]) -> String {
    if missing.is_empty() {
        return "; those of another checkpoint lie among them".to_owned();
    }
    let ranks: Vec<String> = missing.iter().take(8).map(usize::to_string).collect();
    let more = missing.len().saturating_sub(ranks.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("; copy those of rank {}{more} too", ranks.join(", "))
}
