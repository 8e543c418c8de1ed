//! Which machines take part and how they find each other.

use super::job::Machine;
use crate::config_command::{
    ask::{Ask, question},
    error::Result,
    record::Section,
};

/// Above this number of machines the rank is typed instead of chosen from a menu.
const LONGEST_MENU: i64 = 32;

pub(super) fn kind(ask: &mut dyn Ask) -> Result<Machine> {
    let q = question(
        "Which kind of machine runs the program?",
        "the first one means a single process",
    );
    let options = Machine::ALL.map(Machine::title);
    let place = ask.menu(q, &options, 0)?;
    Ok(Machine::ALL.get(place).copied().unwrap_or(Machine::Alone))
}

/// Returns the number of machines.
pub(super) fn network(ask: &mut dyn Ask, machine: Machine, record: &mut Section) -> Result<i64> {
    if !machine.is_distributed() {
        return Ok(1);
    }
    let q = question(
        "How many machines take part?",
        "more than 1 for training on several nodes",
    );
    let num_machines = ask.whole(q, 1..=i64::MAX, Some(1))?;
    record.set("num_machines", num_machines);
    if num_machines > 1 {
        meeting_point(ask, num_machines, record)?;
    }
    let q = question(
        "Should collective operations be checked while running?",
        "finds processes that disagree instead of waiting for them, but is slower",
    );
    record.set("debug", ask.yes_no(q, false)?);
    Ok(num_machines)
}

fn meeting_point(ask: &mut dyn Ask, num_machines: i64, record: &mut Section) -> Result<()> {
    record.set("machine_rank", machine_rank(ask, num_machines)?);
    let q = question(
        "What is the address of the main machine?",
        "name or IP address of the machine with rank 0, as all others reach it",
    );
    record.set("main_process_ip", ask.text(q, None)?);
    let q = question(
        "Which port of the main machine do the processes meet at?",
        "one that is free there and that firewalls let through, such as 29500",
    );
    record.set("main_process_port", ask.whole(q, 1..=65535, None)?);
    let q = question(
        "Are all machines on the same local network?",
        "`no` for machines in a cloud or on different networks",
    );
    let same_network = ask.yes_no(q, true)?;
    record.set("same_network", same_network);
    if !same_network {
        let q = question(
            "Through which rendezvous backend do the machines meet?",
            "`static` takes the ranks from here, `c10d` lets machines come and go",
        );
        record.set("rdzv_backend", ask.text(q, Some("static"))?);
    }
    Ok(())
}

fn machine_rank(ask: &mut dyn Ask, num_machines: i64) -> Result<i64> {
    let q = question(
        "Which rank has this machine?",
        "0 is the main machine; every machine has its own",
    );
    if num_machines > LONGEST_MENU {
        return ask.whole(q, 0..=num_machines - 1, Some(0));
    }
    let ranks: Vec<String> = (0..num_machines).map(|rank| rank.to_string()).collect();
    let options: Vec<&str> = ranks.iter().map(String::as_str).collect();
    let place = ask.menu(q, &options, 0)?;
    Ok(i64::try_from(place).unwrap_or_default())
}

/// Returns whether the job stays on the CPU.
pub(super) fn use_cpu(ask: &mut dyn Ask, machine: Machine, record: &mut Section) -> Result<bool> {
    let use_cpu = match machine {
        Machine::Alone => {
            let q = question(
                "Stay on the CPU?",
                "`yes` leaves GPUs and other accelerators alone even if there are some",
            );
            ask.yes_no(q, false)?
        }
        machine => machine == Machine::MultiCpu,
    };
    record.set("use_cpu", use_cpu);
    Ok(use_cpu)
}
