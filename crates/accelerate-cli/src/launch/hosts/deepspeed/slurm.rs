//! The command `srun`.

use std::ffi::OsString;

use accelerate_plan::env::Environment;

use super::{Job, MultinodeLauncher, evenly};
use crate::launch::hosts::{HostsError, Result, words};

/// Starts the ranks as the tasks of one SLURM step, equally many on each machine.
///
/// With a hostfile its hosts are asked for by name; without one SLURM chooses. `srun` has no
/// `--include`, and no list of hosts with slots: what the filters leave is a list of names. Each task
/// is told its rank in the names that programs for PyTorch look for. Without an address, the
/// processes meet on the first machine of the step.
pub(super) fn arguments(
    job: &Job<'_>,
    environment: &Environment,
    notes: &mut Vec<String>,
) -> Result<Vec<OsString>> {
    let pool = &job.hosts.pool;
    let request = job.request;
    let (total, machines, per_machine) = match request.hostfile {
        Some(_) => {
            pool.check_first_slots(MultinodeLauncher::Slurm)?;
            (
                pool.total(),
                pool.len(),
                pool.per_host(MultinodeLauncher::Slurm)?,
            )
        }
        None => {
            let total = request.num_processes.ok_or(HostsError::NoProcessCount)?;
            let machines = request.num_machines.get();
            (total.get(), machines, evenly(total.get(), machines)?)
        }
    };
    let mut command: Vec<String> = vec!["-n".to_owned(), total.to_string()];
    if request.hostfile.is_some() {
        command.extend(["--nodelist".to_owned(), pool.names()]);
    }
    command.extend(["--nodes".to_owned(), machines.to_string()]);
    command.extend(["--ntasks-per-node".to_owned(), per_machine.to_string()]);
    if !request.cpu {
        command.extend(["--gpus-per-node".to_owned(), per_machine.to_string()]);
    }
    command.push(export(job, environment, notes));
    let task = rank_of_task(total, per_machine);
    command.extend(["sh".to_owned(), "-c".to_owned(), task, "rank".to_owned()]);
    let command = command.into_iter().map(OsString::from);
    Ok(command.chain(words(request.program)).collect())
}

/// `srun` ends a value at a comma. What it inherits needs no naming: only the rest is lost.
fn export(job: &Job<'_>, environment: &Environment, notes: &mut Vec<String>) -> String {
    let mut list = "--export=ALL".to_owned();
    for (name, value) in job.exports.iter() {
        if !value.contains(',') {
            list += &format!(",{name}={value}");
            continue;
        }
        let is_told = job.request.overlay.get(name) == Some(value);
        let is_inherited = environment
            .iter()
            .any(|(known, text)| known == name && text == value);
        if !is_told && !is_inherited {
            notes.push(format!(
                "`{name}` is not passed on to other machines: `srun` takes no comma in a value; \
                 export it before this command"
            ));
        }
    }
    list
}

fn rank_of_task(total: usize, per_machine: usize) -> String {
    format!(
        "export RANK=\"${{SLURM_PROCID:?is not set by srun}}\" \
         LOCAL_RANK=\"${{SLURM_LOCALID:?is not set by srun}}\" WORLD_SIZE={total} \
         LOCAL_WORLD_SIZE={per_machine} \
         MASTER_ADDR=\"${{MASTER_ADDR:-$(scontrol show hostnames \"$SLURM_STEP_NODELIST\" | head -n \
         1)}}\" && exec \"$@\""
    )
}
