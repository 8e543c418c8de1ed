//! In which lower precision the program computes.

use super::fp8;
use crate::config_command::{
    ask::{Ask, question},
    error::Result,
    record::Section,
};

pub(in crate::config_command) const PRECISIONS: [&str; 4] = ["no", "fp16", "bf16", "fp8"];

/// Returns the precision.
pub(super) fn interview(ask: &mut dyn Ask, record: &mut Section) -> Result<&'static str> {
    let q = question(
        "Compute in lower precision?",
        "bf16 where the device has it, else fp16; fp8 needs a library of its own",
    );
    let precision = ask.choice(q, &PRECISIONS, 0)?;
    record.set("mixed_precision", precision);
    if precision == "fp8" {
        record.set_section("fp8_config", fp8::interview(ask)?);
    }
    Ok(precision)
}
