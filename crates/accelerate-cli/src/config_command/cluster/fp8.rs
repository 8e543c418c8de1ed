//! The libraries that compute with eight bits.

use accelerate_plan::config::Value;

use crate::config_command::{
    ask::{Ask, question},
    error::Result,
    record::Section,
};

const BACKENDS: [&str; 3] = ["ao", "te", "msamp"];
const FORMATS: [&str; 3] = ["HYBRID", "E4M3", "E5M2"];
const ALGORITHMS: [&str; 2] = ["max", "most_recent"];
const LEVELS: [&str; 2] = ["O1", "O2"];

pub(super) fn interview(ask: &mut dyn Ask) -> Result<Section> {
    let q = question(
        "Which library computes in fp8?",
        "torchao, Transformer Engine or MS-AMP",
    );
    let backend = ask.choice(q, &BACKENDS, 0)?;
    let mut section = Section::default();
    section.set("backend", backend.to_ascii_uppercase());
    let package = match backend {
        "te" => {
            transformer_engine(ask, &mut section)?;
            "transformer_engine"
        }
        "msamp" => {
            let q = question(
                "Which optimization level?",
                "O2 keeps optimizer states in fp8 too",
            );
            section.set("optimization_level", ask.choice(q, &LEVELS, 1)?);
            "msamp"
        }
        _ => {
            torchao(ask, &mut section)?;
            "torchao"
        }
    };
    ask.remark(&format!(
        "the Python package `{package}` must be installed where the program runs"
    ));
    Ok(section)
}

fn torchao(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    let q = question(
        "Gather the shards of FSDP2 in fp8?",
        "moves a quarter of the bytes",
    );
    section.set("enable_fsdp_float8_all_gather", ask.yes_no(q, true)?);
    let q = question(
        "Pad the inner dimension of weight matrices?",
        "fp8 products need sizes in steps of 16; padding may cost memory",
    );
    section.set("pad_inner_dim", ask.yes_no(q, true)?);
    Ok(())
}

fn transformer_engine(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    let q = question(
        "Use fp8 in evaluation too?",
        "metrics are usually better without",
    );
    section.set("use_autocast_during_eval", ask.yes_no(q, false)?);
    let q = question(
        "Which margin for the scaling factors?",
        "larger leaves more room above the largest value seen",
    );
    section.set("margin", ask.whole(q, 0..=i64::MAX, Some(0))?);
    let q = question(
        "After how many steps are scaling factors computed again?",
        "1 is every step",
    );
    section.set("interval", ask.whole(q, 1..=i64::MAX, Some(1))?);
    let q = question(
        "In which format are the numbers?",
        "HYBRID is E4M3 forward and E5M2 backward",
    );
    section.set("fp8_format", ask.choice(q, &FORMATS, 0)?);
    let q = question(
        "How many past maxima does a scaling factor look at?",
        "the length of the history",
    );
    let length = ask.whole(q, 1..=i64::MAX, Some(1024))?;
    section.set("amax_history_length", length);
    let q = question(
        "Which of these maxima counts?",
        "the largest, or the last one",
    );
    section.set("amax_compute_algorithm", ask.choice(q, &ALGORITHMS, 0)?);
    section.set("override_linear_precision", higher_precision(ask)?);
    Ok(())
}

/// Whether forward, data-gradient and weight-gradient products keep a higher precision.
fn higher_precision(ask: &mut dyn Ask) -> Result<Value> {
    let q = question(
        "Compute some products of linear layers in higher precision?",
        "asks for each of the three kinds",
    );
    let mut kinds = [false; 3];
    if ask.yes_no(q, false)? {
        let texts = [
            "Higher precision for the forward pass (`fprop`)?",
            "Higher precision for gradients of inputs (`dgrad`)?",
            "Higher precision for gradients of weights (`wgrad`)?",
        ];
        for (kind, text) in kinds.iter_mut().zip(texts) {
            *kind = ask.yes_no(question(text, "`no` computes in fp8"), false)?;
        }
    }
    Ok(Value::List(kinds.map(Value::from).to_vec()))
}
