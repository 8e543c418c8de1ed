//! What loading found.

use std::fmt;

use accelerate_formats::Dtype;

/// What a file of weights and a module have in common, and what not.
///
/// The lists keep the order of the file or of the module. As text, it tells everything that
/// does not fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// How many tensors of the file were copied.
    pub loaded: usize,
    /// Names of the module that the file lacks.
    pub missing: Vec<String>,
    /// Names of the file that the module lacks.
    pub unexpected: Vec<String>,
    /// Tensors whose shape or type cannot be copied.
    pub mismatched: Vec<Mismatch>,
    /// Names of the module that the file lacks and may lack; they keep their first values.
    pub newly_initialized: Vec<String>,
    /// Names of the file that the caller chose to ignore.
    pub ignored: Vec<String>,
    /// Names of the file that fit only without a part that a wrapper put into them.
    pub unwrapped: Vec<String>,
}

impl LoadReport {
    /// Whether file and module fit: nothing is missing, unexpected or mismatched.
    pub fn fits(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.mismatched.is_empty()
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        let mut add = |what: &str, items: Vec<String>| {
            if !items.is_empty() {
                parts.push(format!("{} {what}: {}", items.len(), items.join(", ")));
            }
        };
        let quoted = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect();
        add("missing", quoted(&self.missing));
        add("unexpected", quoted(&self.unexpected));
        add(
            "mismatched",
            self.mismatched.iter().map(Mismatch::to_string).collect(),
        );
        if parts.is_empty() {
            return write!(f, "{} tensors fit", self.loaded);
        }
        f.write_str(&parts.join("; "))
    }
}

/// One tensor whose shape or type in the file cannot be copied into the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The name in the module.
    pub name: String,
    /// What the module has.
    pub expected: TensorType,
    /// What the file has.
    pub found: TensorType,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            expected,
            found,
        } = self;
        if expected.shape == found.shape {
            return write!(
                f,
                "`{name}` (expected {}, found {})",
                expected.shown_dtype(),
                found.shown_dtype()
            );
        }
        write!(
            f,
            "`{name}` (expected {:?}, found {:?})",
            expected.shape, found.shape
        )
    }
}

/// The type and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorType {
    /// The type of its elements; none where no file can hold it.
    pub dtype: Option<Dtype>,
    /// The length of each dimension.
    pub shape: Vec<usize>,
}

impl TensorType {
    fn shown_dtype(&self) -> String {
        self.dtype.map_or_else(
            || "a type that files cannot hold".to_owned(),
            |dtype| dtype.to_string(),
        )
    }
}
