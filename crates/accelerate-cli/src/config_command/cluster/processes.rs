//! How many processes there are, and on which devices.

use super::job::{Job, Machine, Strategy};
use crate::config_command::{
    ask::{Ask, question},
    error::{ConfigCommandError, Result},
    record::Section,
};

/// # Errors
/// [`ConfigCommandError::OneGpu`] for several GPUs of which there is one.
pub(super) fn number(
    ask: &mut dyn Ask,
    job: &Job,
    strategy: Strategy,
    record: &mut Section,
) -> Result<()> {
    let plain = strategy == Strategy::Plain;
    let number = if plain && job.machine == Machine::Alone {
        1
    } else {
        let units = if plain { job.machine.units() } else { "GPUs" };
        let text = format!("How many {units} does the job use?");
        let q = question(&text, "one process each, counted over all machines");
        ask.whole(q, 1..=i64::MAX, Some(1))?
    };
    if plain && job.machine == Machine::MultiGpu && job.num_machines == 1 && number == 1 {
        return Err(ConfigCommandError::OneGpu);
    }
    record.set("num_processes", number);
    Ok(())
}

pub(super) fn device_ids(
    ask: &mut dyn Ask,
    job: &Job,
    strategy: Strategy,
    record: &mut Section,
) -> Result<()> {
    let with_devices = job.machine.has_accelerators() || job.machine == Machine::Alone;
    if !with_devices || strategy != Strategy::Plain || job.use_cpu || job.on_mps() {
        return Ok(());
    }
    let text = format!("Which {} of this machine?", job.devices.kind.plural());
    let q = question(&text, "`all`, or their numbers, comma-separated");
    let ids = ask.text(q, Some("all"))?;
    record.set("gpu_ids", tidy(&ids));
    Ok(())
}

pub(super) fn affinity(
    ask: &mut dyn Ask,
    job: &Job,
    strategy: Strategy,
    record: &mut Section,
) -> Result<()> {
    let possible = matches!(job.machine, Machine::Alone | Machine::MultiGpu);
    if !possible || strategy != Strategy::Plain || job.use_cpu || job.on_mps() {
        return Ok(());
    }
    let q = question(
        "Pin processes to the CPU cores next to their GPU?",
        "NUMA placement, for NVIDIA hardware only",
    );
    record.set("enable_cpu_affinity", ask.yes_no(q, false)?);
    Ok(())
}

/// Ids without spaces and empty places between commas, and `all` in lower case.
fn tidy(ids: &str) -> String {
    if ids.eq_ignore_ascii_case("all") {
        return ids.to_ascii_lowercase();
    }
    let ids = ids.split(',').map(str::trim).filter(|id| !id.is_empty());
    ids.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_tidied() {
        assert_eq!(tidy("All"), "all");
        assert_eq!(tidy(" 0, 2,"), "0,2");
        assert_eq!(tidy("GPU-ab12, MIG-3"), "GPU-ab12,MIG-3");
    }
}
