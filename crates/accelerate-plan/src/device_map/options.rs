//! What a device map depends on, besides the model.

use indexmap::IndexMap;

use super::{ElementType, MaxMemory};

/// What a device map depends on, besides the model.
///
/// ```
/// use accelerate_plan::device_map::{ElementType, InferOptions};
///
/// let options = InferOptions {
///     no_split_module_classes: vec!["LlamaDecoderLayer".to_owned()],
///     dtype: Some(ElementType::BFloat16),
///     ..InferOptions::with_limits("0=10GB,cpu=30GB".parse()?)
/// };
/// # let _ = options;
/// # Ok::<(), accelerate_plan::device_map::DeviceMapError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferOptions {
    /// What each place may hold.
    pub max_memory: MaxMemory,
    /// Classes whose modules stay in one place, such as blocks with a connection around them.
    pub no_split_module_classes: Vec<String>,
    /// The type that the model is loaded in, if that is not its own. It never makes a tensor larger,
    /// and tensors of whole numbers keep their type.
    pub dtype: Option<ElementType>,
    /// Tensors by their dotted name that are loaded in a type of their own.
    pub special_dtypes: IndexMap<String, ElementType>,
    /// Whether a module whose parts are all in one place becomes one entry.
    pub clean_result: bool,
    /// Whether buffers of parts that are not on an accelerator stay with them, and come to it only
    /// when they are needed. If not, they are always there.
    pub offload_buffers: bool,
    /// Whether a smaller part further on is looked for when the next one does not fit a place that
    /// is still empty.
    pub fallback_allocation: bool,
}

impl InferOptions {
    /// These limits, and for everything else what the original does.
    pub fn with_limits(max_memory: MaxMemory) -> Self {
        Self {
            max_memory,
            no_split_module_classes: Vec::new(),
            dtype: None,
            special_dtypes: IndexMap::new(),
            clean_result: true,
            offload_buffers: false,
            fallback_allocation: false,
        }
    }
}
