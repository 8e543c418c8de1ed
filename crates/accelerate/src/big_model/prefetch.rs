//! How weights are brought before they are needed.

/// How weights that are not where they are computed with are brought there before they are needed.
///
/// A block is an item of a list of modules, such as one layer of a language model, or a module by
/// itself outside of such lists. While one block computes, those after it are on their way on a
/// thread: from disk into memory, in the type that is wanted, and to the device. At first the order
/// of the tree is taken for that of execution; what is executed after what is learned as it happens.
///
/// Of blocks on disk at most [`blocks`](Self::blocks) and the one that computes are held in memory
/// for this, apart from those that [stay](AfterUse).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prefetch {
    /// How many blocks are on their way or waiting at a time; 0 brings each weight when it is needed.
    pub blocks: usize,
    /// What becomes of the pages of a file when its block has computed.
    pub after_use: AfterUse,
}

impl Default for Prefetch {
    fn default() -> Self {
        Self {
            blocks: 2,
            after_use: AfterUse::Auto,
        }
    }
}

impl Prefetch {
    /// Nothing is brought before it is needed.
    #[must_use]
    pub fn off() -> Self {
        Self {
            blocks: 0,
            ..Self::default()
        }
    }

    /// Chooses how many blocks are on their way at a time.
    #[must_use]
    pub fn with_blocks(self, blocks: usize) -> Self {
        Self { blocks, ..self }
    }

    /// Chooses what becomes of pages of files.
    #[must_use]
    pub fn with_after_use(self, after_use: AfterUse) -> Self {
        Self { after_use, ..self }
    }
}

/// What becomes of the pages of a file in memory when the block that they belong to has computed.
///
/// The weights of a model are read in turn. Where they do not all fit into memory, the system would
/// throw each page out just before it is needed again; so some blocks stay, as many as fit, and the
/// others go at once and leave them alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterUse {
    /// As many blocks stay as fit into what memory is available to this process, limits of its
    /// control group included, when the model is dispatched.
    #[default]
    Auto,
    /// All stay, as long as the system lets them.
    Keep,
    /// None stay.
    Drop,
    /// Blocks of so many bytes together stay.
    KeepBytes(u64),
}
