//! How the processes are divided between kinds of parallelism.

use crate::config_command::{
    ask::{Ask, question},
    error::Result,
    record::Section,
};

const STRATEGIES: [&str; 2] = ["allgather", "alltoall"];

pub(super) fn interview(ask: &mut dyn Ask, record: &mut Section) -> Result<()> {
    let q = question(
        "Combine FSDP with other kinds of parallelism?",
        "the product of the sizes that follow is the number of processes",
    );
    if !ask.yes_no(q, false)? {
        return Ok(());
    }
    let mut section = Section::default();
    let mut size = |key: &str, text: &str, help: &str| -> Result<i64> {
        let size = ask.whole(question(text, help), 1..=i64::MAX, Some(1))?;
        section.set(key, size);
        Ok(size)
    };
    size(
        "parallelism_config_dp_replicate_size",
        "How many replicas of the sharded model?",
        "each works on its own data",
    )?;
    size(
        "parallelism_config_dp_shard_size",
        "Over how many processes does FSDP shard one replica?",
        "1 does not shard",
    )?;
    size(
        "parallelism_config_tp_size",
        "Over how many processes are single layers split (tensor parallelism)?",
        "1 does not split",
    )?;
    let context = size(
        "parallelism_config_cp_size",
        "Over how many processes is a sequence split (context parallelism)?",
        "1 does not split",
    )?;
    if context > 1 {
        let q = question(
            "How do processes exchange the parts of a sequence?",
            "alltoall needs less memory, allgather fewer steps",
        );
        let strategy = ask.choice(q, &STRATEGIES, 0)?;
        section.set("parallelism_config_cp_comm_strategy", strategy);
    }
    record.set_section("parallelism_config", section);
    Ok(())
}
