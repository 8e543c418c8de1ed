//! The names of a checkpoint's files, which are the original's.

use std::path::{Path, PathBuf};

/// A file of the `index`-th thing of its kind: `optimizer.bin`, `optimizer_1.bin`, and so on.
fn of_kind(stem: &str, index: usize, extension: &str) -> String {
    match index {
        0 => format!("{stem}.{extension}"),
        _ => format!("{stem}_{index}.{extension}"),
    }
}

pub(super) fn model(index: usize) -> String {
    of_kind("model", index, "safetensors")
}

/// The model's file in the form that the original wrote before it had safetensors.
pub(super) fn torch_model(index: usize) -> String {
    of_kind("pytorch_model", index, "bin")
}

pub(super) fn optimizer(index: usize) -> String {
    of_kind("optimizer", index, "bin")
}

pub(super) fn scheduler(index: usize) -> String {
    of_kind("scheduler", index, "bin")
}

/// Where a loader stands on one rank, which may read a part of its own; that of rank 0 has the
/// original's name.
pub(super) fn loader(index: usize, rank: usize) -> String {
    match rank {
        0 => of_kind("dl_state_dict", index, "bin"),
        _ => of_kind("dl_state_dict", index, &format!("rank{rank}.bin")),
    }
}

pub(super) const SCALER: &str = "scaler.pt";

pub(super) fn random_states(rank: usize) -> String {
    format!("random_states_{rank}.pkl")
}

/// A rank's gradients in the middle of an accumulation, which the original does not save.
pub(super) fn gradients(rank: usize) -> String {
    format!("gradients_{rank}.bin")
}

/// What communication hooks remember on a rank, which the original does not save.
pub(super) fn comm_hooks(rank: usize) -> String {
    format!("comm_hooks_{rank}.bin")
}

pub(super) fn custom(index: usize) -> String {
    format!("custom_checkpoint_{index}.pkl")
}

/// The model's file in `folder`, in whichever form it is there.
pub(super) fn model_in(folder: &Path, index: usize) -> PathBuf {
    let torch = folder.join(torch_model(index));
    let safetensors = folder.join(model(index));
    if torch.exists() && !safetensors.exists() {
        torch
    } else {
        safetensors
    }
}

/// How many custom objects `folder` holds.
pub(super) fn count_custom(folder: &Path) -> usize {
    (0..)
        .take_while(|&index| folder.join(custom(index)).exists())
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_kind_has_no_number() {
        assert_eq!(
            [model(0), model(1)],
            ["model.safetensors", "model_1.safetensors"]
        );
        assert_eq!(
            [optimizer(0), scheduler(2)],
            ["optimizer.bin", "scheduler_2.bin"]
        );
        assert_eq!(
            [random_states(3), custom(0)],
            ["random_states_3.pkl", "custom_checkpoint_0.pkl"]
        );
        assert_eq!(
            [loader(0, 0), loader(1, 0), loader(0, 2), loader(1, 2)],
            [
                "dl_state_dict.bin",
                "dl_state_dict_1.bin",
                "dl_state_dict.rank2.bin",
                "dl_state_dict_1.rank2.bin"
            ]
        );
    }
}
