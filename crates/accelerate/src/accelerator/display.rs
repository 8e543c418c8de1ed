use std::fmt;

use super::Accelerator;

/// What the job is, one line for each thing, and DeepSpeed's config if there is one.
///
/// # Source
/// `AcceleratorState.__repr__`. Differs: no line break at the end.
impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let (own, kind) = (state.distributed_type(), self.distributed_type());
        let text = state.to_string();
        write!(
            f,
            "{}",
            text.replacen(&own.to_string(), &kind.to_string(), 1)
        )?;
        write!(f, "Mixed precision type: {}", self.mixed_precision())?;
        match self.deepspeed_config() {
            Some(config) => write!(f, "\nds_config: {config}"),
            None => Ok(()),
        }
    }
}
