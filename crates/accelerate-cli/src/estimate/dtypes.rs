//! The types in which a model can be loaded, and what the rows of the table hold.

use accelerate_plan::{device_map::ElementType, size_text::Size};
use clap::ValueEnum;
use serde::Serialize;

/// A type to load a model in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub(crate) enum LoadDtype {
    Float32,
    Float16,
    Bfloat16,
    Float8,
    Int8,
    Int4,
}

impl LoadDtype {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Float8 => "float8",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }

    /// The type as device maps know it.
    pub(crate) const fn element(self) -> ElementType {
        match self {
            Self::Float32 => ElementType::Float32,
            Self::Float16 => ElementType::Float16,
            Self::Bfloat16 => ElementType::BFloat16,
            Self::Float8 => ElementType::Float8,
            Self::Int8 => ElementType::Int8,
            Self::Int4 => ElementType::Int4,
        }
    }

    /// Bytes of a number that is computed with: smaller types than of 16 bits are for storing.
    pub(crate) const fn computed_bytes(self) -> u64 {
        match self {
            Self::Float32 => 4,
            _ => 2,
        }
    }

    /// How many values of this type fit into the place of one float32.
    pub(crate) const fn per_float32(self) -> u64 {
        match self {
            Self::Float32 => 1,
            Self::Float16 | Self::Bfloat16 => 2,
            Self::Float8 | Self::Int8 => 4,
            Self::Int4 => 8,
        }
    }

    /// The part of a size in float32 that is left in this type.
    pub(crate) fn of_float32(self, bytes: u64) -> Size {
        match self {
            Self::Float32 => Size::Whole(bytes),
            _ => Size::Divided(bytes as f64 / self.per_float32() as f64),
        }
    }

    /// The largest part of training with Adam, of a model with so many bytes in float32.
    ///
    /// In float32 that is the step: weights, gradients and two states of the optimizer. With mixed
    /// precision it is the two states, in float32. For whole numbers it is four times the size of
    /// the loaded model, as the guide of the original has it.
    pub(crate) fn training(self, bytes: u64) -> Size {
        match self {
            Self::Float32 => Size::Whole(bytes.saturating_mul(4)),
            Self::Float16 | Self::Bfloat16 | Self::Float8 => Size::Whole(bytes.saturating_mul(2)),
            Self::Int8 | Self::Int4 => {
                Size::Divided(bytes as f64 / self.per_float32() as f64 * 4.0)
            }
        }
    }
}

/// One row of the first table. Sizes in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) dtype: &'static str,
    #[serde(rename = "largest_layer_bytes")]
    pub(crate) largest: Size,
    #[serde(rename = "total_bytes")]
    pub(crate) total: Size,
    /// None where such a model cannot be trained as it is.
    #[serde(rename = "training_bytes")]
    pub(crate) training: Option<Size>,
}

/// The row of a model that is so large in float32.
pub(crate) fn row(dtype: LoadDtype, total: u64, largest: u64) -> Row {
    Row {
        dtype: dtype.name(),
        largest: dtype.of_float32(largest),
        total: dtype.of_float32(total),
        training: Some(dtype.training(total)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(dtype: LoadDtype, total: u64, largest: u64) -> [String; 3] {
        let row = row(dtype, total, largest);
        [row.largest, row.total, row.training.unwrap()].map(|size| size.to_string())
    }

    #[test]
    fn bert_base_cased_has_the_rows_of_the_guide() {
        let bert = |dtype| texts(dtype, 433_249_280, 90_669_056);
        assert_eq!(
            bert(LoadDtype::Float32),
            ["86.47 MB", "413.18 MB", "1.61 GB"]
        );
        let half = ["43.23 MB", "206.59 MB", "826.36 MB"];
        assert_eq!(bert(LoadDtype::Float16), half);
        assert_eq!(bert(LoadDtype::Bfloat16), half);
        assert_eq!(
            bert(LoadDtype::Int8),
            ["21.62 MB", "103.29 MB", "413.18 MB"]
        );
        assert_eq!(
            bert(LoadDtype::Float8),
            ["21.62 MB", "103.29 MB", "826.36 MB"]
        );
        assert_eq!(bert(LoadDtype::Int4), ["10.81 MB", "51.65 MB", "206.59 MB"]);
    }

    #[test]
    fn resnet50_has_the_rows_of_the_guide() {
        let resnet = |dtype| texts(dtype, 102_441_032, 9_437_184);
        assert_eq!(
            resnet(LoadDtype::Float32),
            ["9.0 MB", "97.7 MB", "390.78 MB"]
        );
        assert_eq!(
            resnet(LoadDtype::Float16),
            ["4.5 MB", "48.85 MB", "195.39 MB"]
        );
        assert_eq!(resnet(LoadDtype::Int8), ["2.25 MB", "24.42 MB", "97.7 MB"]);
        assert_eq!(resnet(LoadDtype::Int4), ["1.12 MB", "12.21 MB", "48.85 MB"]);
    }
}
