//! How a model and its optimizer are saved.

use crate::settings::StateDictType;

/// How a sharded model and its optimizer are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateDict {
    /// Whole by rank 0, each rank's shards, or each rank's flat parameters.
    pub kind: StateDictType,
    /// Whether what is gathered for saving lies in CPU memory.
    pub offload_to_cpu: bool,
    /// Whether only rank 0 gets a whole state.
    pub rank0_only: bool,
    /// Whose files and folders.
    pub layout: Layout,
    /// Whether a whole model in 16 bits can be gathered for saving (`zero3_save_16bit_model`).
    pub gathers_16bit_model: bool,
}

/// Whose files and folders a checkpoint has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One file for each model and optimizer.
    Plain,
    /// Those of FSDP: one file, or a folder of a distributed checkpoint.
    Fsdp,
    /// A folder as DeepSpeed writes it.
    DeepSpeed,
}
