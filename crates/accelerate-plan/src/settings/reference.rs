//! The table as a page for readers.

use super::{Flag, KeyEntry, Section, TABLE};

/// The table as a Markdown page, one section for each section of a config file.
pub fn reference_page() -> String {
    let sections = [
        (Section::Top, "Top level of a config file"),
        (Section::FlagOnly, "Flags and variables only"),
        (Section::Fsdp, "`fsdp_config`"),
        (Section::DeepSpeed, "`deepspeed_config`"),
        (Section::MegatronLm, "`megatron_lm_config`"),
        (Section::Parallelism, "`parallelism_config`"),
        (Section::Fp8, "`fp8_config`"),
        (Section::Dynamo, "`dynamo_config`"),
        (Section::Mpirun, "`mpirun_config`"),
        (Section::Ipex, "`ipex_config`"),
        (
            Section::SageMaker,
            "Top level of a config file for SageMaker",
        ),
    ];
    let pages = sections.into_iter().map(|(section, title)| {
        let rows = TABLE
            .iter()
            .map(|key| key.entry())
            .filter(|entry| entry.section == section)
            .map(row);
        let head = "| setting | flag | allowed | default | variable | meaning |\n\
                    | --- | --- | --- | --- | --- | --- |\n";
        format!("\n## {title}\n\n{head}{}", rows.collect::<String>())
    });
    pages.collect()
}

fn row(entry: &KeyEntry) -> String {
    let code = |text: Option<&str>| text.map(|text| format!("`{text}`")).unwrap_or_default();
    let flag = match entry.flag {
        Flag::FileOnly => "",
        Flag::Switch => "switch",
        Flag::OneValue => "value",
        Flag::Repeated => "value, repeated",
    };
    let KeyEntry { name, meaning, .. } = entry;
    let expected = match entry.kind {
        "flag" => "a truth word",
        _ => entry.expected,
    };
    let (default, variable) = (code(entry.default), code(entry.variable));
    let no_effect = entry
        .no_effect
        .map(|why| format!(" No effect here: {why}."));
    let no_effect = no_effect.unwrap_or_default();
    format!("| `{name}` | {flag} | {expected} | {default} | {variable} | {meaning}{no_effect} |\n")
}
