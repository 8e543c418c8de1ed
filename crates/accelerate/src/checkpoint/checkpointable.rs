//! What a program adds to its checkpoints.

use accelerate_formats::Value;

use crate::Result;

/// Something of the program's own that belongs to its checkpoints.
///
/// ```
/// use accelerate::checkpoint::{Checkpointable, Value};
///
/// #[derive(Default)]
/// struct BestAccuracy(f64);
///
/// impl Checkpointable for BestAccuracy {
///     fn state_dict(&self) -> accelerate::Result<Value> {
///         Ok(self.0.into())
///     }
///
///     fn load_state_dict(&mut self, state: &Value) -> accelerate::Result<()> {
///         self.0 = state.as_f64().unwrap_or_default();
///         Ok(())
///     }
/// }
/// ```
///
/// # Source
/// The `state_dict` and `load_state_dict` that `Accelerator.register_for_checkpointing` asks for.
pub trait Checkpointable {
    /// What is to be saved.
    ///
    /// # Errors
    /// Those of reading it.
    fn state_dict(&self) -> Result<Value>;

    /// Goes on from what was saved.
    ///
    /// # Errors
    /// [`Error::StateMismatch`](crate::Error::StateMismatch) if it is something else.
    fn load_state_dict(&mut self, state: &Value) -> Result<()>;
}
