//! What the accelerator says of itself.

use std::fmt;

use super::Accelerator;

/// What the job is, one line for each thing, and DeepSpeed's config if there is one.
///
/// # Source
/// `AcceleratorState.__repr__`.
impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let (own, kind) = (state.distributed_type(), self.distributed_type());
        let text = state.to_string();
        let text = text.replacen(&own.to_string(), &kind.to_string(), 1);
        let precision = self.mixed_precision();
        writeln!(f, "{text}\nMixed precision type: {precision}")?;
        match self.deepspeed_config() {
            Some(config) => writeln!(f, "ds_config: {config}"),
            None => Ok(()),
        }
    }
}
