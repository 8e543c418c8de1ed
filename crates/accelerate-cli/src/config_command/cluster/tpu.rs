//! TPUs: the function that every core runs, and the pod it may be part of.

use std::path;

use crate::config_command::{
    ask::{Ask, Expected, question},
    error::{ConfigCommandError, Result},
    record::Section,
};

pub(super) fn interview(ask: &mut dyn Ask, record: &mut Section) -> Result<()> {
    let q = question(
        "Which function of the program does every core run?",
        "its name, without brackets",
    );
    record.set("main_training_function", ask.text(q, Some("main"))?);
    let q = question("Is this a TPU pod?", "`yes` for several machines with TPUs");
    let is_pod = ask.yes_no(q, false)?;
    record.set("tpu_use_cluster", is_pod);
    if is_pod {
        pod(ask, record)?;
    }
    Ok(())
}

fn pod(ask: &mut dyn Ask, record: &mut Section) -> Result<()> {
    let q = question("What is the name of the pod?", "as in the cloud console");
    record.set("tpu_name", ask.text(q, None)?);
    let q = question("In which zone is the pod?", "such as `us-central1-a`");
    record.set("tpu_zone", ask.text(q, None)?);
    let q = question(
        "Run programs on the pod with `sudo`?",
        "where the user of the machines lacks the rights",
    );
    record.set("tpu_use_sudo", ask.yes_no(q, false)?);
    let q = question(
        "Run something at the start of each machine?",
        "such as installing what the program needs",
    );
    if ask.yes_no(q, false)? {
        startup(ask, record)?;
    }
    let q = question(
        "Which VM instances, if there is no instance group?",
        "names, comma-separated; an empty line for none",
    );
    record.set_texts("tpu_vm", list(ask, q)?);
    let q = question(
        "Which environment variables does each machine get?",
        "NAME=VALUE, comma-separated; an empty line for none",
    );
    record.set_texts("tpu_env", list(ask, q)?);
    Ok(())
}

fn startup(ask: &mut dyn Ask, record: &mut Section) -> Result<()> {
    let q = question("Is that a shell script?", "`no` asks for single commands");
    if ask.yes_no(q, false)? {
        let q = question("Where is the script?", "a path on this machine");
        let file = absolute(ask.text(q, None)?)?;
        record.set("command_file", file);
        return Ok(());
    }
    let mut commands = Vec::new();
    loop {
        let q = question("Which command?", "one command, as typed into a shell");
        commands.push(ask.text(q, None)?);
        let q = question("One more command?", "they run in this order");
        if !ask.yes_no(q, false)? {
            record.set_texts("commands", commands);
            return Ok(());
        }
    }
}

fn list(
    ask: &mut dyn Ask,
    question: crate::config_command::ask::Question<'_>,
) -> Result<Vec<String>> {
    let line = ask.line(question, &Expected::TextOrNothing, Some(""))?;
    let items = line
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty());
    Ok(items.map(str::to_owned).collect())
}

fn absolute(file: String) -> Result<String> {
    let absolute = path::absolute(&file).map_err(|source| ConfigCommandError::Input { source })?;
    Ok(absolute.into_os_string().into_string().unwrap_or(file))
}
