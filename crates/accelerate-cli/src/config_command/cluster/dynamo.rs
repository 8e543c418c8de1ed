//! Whether and how the program is compiled.

use crate::config_command::{
    ask::{Ask, question},
    error::Result,
    record::Section,
};

/// In the order of the menu, as they are written into the file.
///
/// # Source
/// Differs: the original offers `TORHCHXLA_TRACE_ONCE`, which it then refuses.
const BACKENDS: [&str; 13] = [
    "EAGER",
    "AOT_EAGER",
    "INDUCTOR",
    "AOT_TS_NVFUSER",
    "NVPRIMS_NVFUSER",
    "CUDAGRAPHS",
    "OFI",
    "FX2TRT",
    "ONNXRT",
    "TENSORRT",
    "AOT_TORCHXLA_TRACE_ONCE",
    "TORCHXLA_TRACE_ONCE",
    "TVM",
];

/// The place of `INDUCTOR`.
const USUAL_BACKEND: usize = 2;

const MODES: [&str; 3] = ["default", "reduce-overhead", "max-autotune"];

/// Returns whether the program is compiled.
pub(in crate::config_command) fn interview(
    ask: &mut dyn Ask,
    record: &mut Section,
) -> Result<bool> {
    let q = question(
        "Compile the model with torch dynamo?",
        "`yes` applies torch.compile to the prepared model",
    );
    if !ask.yes_no(q, false)? {
        return Ok(false);
    }
    let mut section = Section::default();
    let q = question(
        "Which backend compiles?",
        "inductor is the one that PyTorch recommends",
    );
    let options = BACKENDS.map(str::to_ascii_lowercase);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let backend = ask.choice(q, &options, USUAL_BACKEND)?;
    section.set("dynamo_backend", backend.to_ascii_uppercase());
    let q = question(
        "Change how torch.compile is called?",
        "`no` keeps its own defaults",
    );
    if ask.yes_no(q, false)? {
        options_of_compile(ask, &mut section)?;
    }
    record.set_section("dynamo_config", section);
    Ok(true)
}

fn options_of_compile(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    let q = question(
        "Which mode of torch.compile?",
        "the later ones compile longer for faster steps",
    );
    section.set("dynamo_mode", ask.choice(q, &MODES, 0)?);
    for (key, q) in [
        (
            "dynamo_use_fullgraph",
            question(
                "Must the whole model become one graph?",
                "`no` allows breaks where Python code cannot be traced",
            ),
        ),
        (
            "dynamo_use_dynamic",
            question(
                "Trace with dynamic shapes?",
                "`yes` avoids compiling again for every new size of a batch",
            ),
        ),
        (
            "dynamo_use_regional_compilation",
            question(
                "Compile region by region?",
                "repeated blocks are compiled once, so compiling takes less time",
            ),
        ),
    ] {
        section.set(key, ask.yes_no(q, false)?);
    }
    Ok(())
}
