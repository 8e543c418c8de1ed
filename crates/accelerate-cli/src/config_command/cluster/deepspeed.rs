//! DeepSpeed: its own JSON file, or the settings that the questionnaire knows.

use super::job::{Job, Machine};
use crate::config_command::{
    ask::{Ask, Expected, question},
    error::{ConfigCommandError, Result},
    record::Section,
};

/// Where the settings of DeepSpeed are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settings {
    /// In a JSON file of DeepSpeed, which then says everything, the precision too.
    OwnFile,
    /// In the file that is being made.
    Here,
}

const STAGES: [&str; 4] = ["0", "1", "2", "3"];
const USUAL_STAGE: usize = 2;
const DEVICES: [&str; 3] = ["none", "cpu", "nvme"];
const LAUNCHERS: [&str; 7] = [
    "pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm",
];

/// Returns where the settings are, or `None` without DeepSpeed.
pub(super) fn interview(
    ask: &mut dyn Ask,
    job: &Job,
    record: &mut Section,
) -> Result<Option<Settings>> {
    let possible = job.machine.has_accelerators() || job.machine == Machine::Alone;
    if !possible || job.on_mps() {
        return Ok(None);
    }
    let q = question(
        "Use DeepSpeed?",
        "shards optimizer states, gradients and parameters (ZeRO)",
    );
    if !ask.yes_no(q, false)? {
        return Ok(None);
    }
    if job.machine == Machine::MultiNeuron {
        return Err(ConfigCommandError::NotOnNeuron {
            strategy: "DeepSpeed",
        });
    }
    ask.remark("the Python package `deepspeed` must be installed where the program runs");
    let mut section = Section::default();
    let settings = settings(ask, &mut section)?;
    models(ask, &mut section)?;
    if job.num_machines > 1 {
        launcher(ask, &mut section)?;
    }
    record.set_section("deepspeed_config", section);
    Ok(Some(settings))
}

fn settings(ask: &mut dyn Ask, section: &mut Section) -> Result<Settings> {
    let q = question(
        "Is there a JSON file for DeepSpeed?",
        "`yes` takes all settings from that file",
    );
    if ask.yes_no(q, false)? {
        let q = question(
            "Where is the JSON file of DeepSpeed?",
            "the path as the program will see it",
        );
        section.set("deepspeed_config_file", ask.text(q, Some("none"))?);
        return Ok(Settings::OwnFile);
    }
    zero(ask, section)?;
    Ok(Settings::Here)
}

fn zero(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    let q = question(
        "Which stage of ZeRO?",
        "1 shards optimizer states, 2 also gradients, 3 also parameters",
    );
    let stage = ask.menu(q, &STAGES, USUAL_STAGE)?;
    section.set("zero_stage", i64::try_from(stage).unwrap_or_default());
    if stage >= 2 {
        offload(ask, section)?;
    }
    let q = question(
        "Over how many steps are gradients accumulated?",
        "the number that the program uses as well",
    );
    let steps = ask.whole(q, 1..=i64::MAX, Some(1))?;
    section.set("gradient_accumulation_steps", steps);
    let q = question(
        "Clip gradients?",
        "limits the norm of the gradients at every step",
    );
    if ask.yes_no(q, false)? {
        let q = question("At which norm are gradients clipped?", "1.0 is usual");
        section.set("gradient_clipping", ask.number(q, 1.0)?);
    }
    if stage == 3 {
        let q = question(
            "Save the weights in 16 bits?",
            "stage 3 then gathers the shards into one file",
        );
        section.set("zero3_save_16bit_model", ask.yes_no(q, false)?);
    }
    Ok(())
}

fn offload(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    let q = question(
        "Where do optimizer states go?",
        "`none` keeps them on the GPU",
    );
    let optimizer = ask.choice(q, &DEVICES, 0)?;
    section.set("offload_optimizer_device", optimizer);
    let q = question("Where do parameters go?", "`none` keeps them on the GPU");
    let param = ask.choice(q, &DEVICES, 0)?;
    section.set("offload_param_device", param);
    if param == "nvme" {
        let q = question(
            "Which folder takes the parameters?",
            "on an NVMe disk of every machine",
        );
        section.set("offload_param_nvme_path", ask.text(q, Some("/nvme"))?);
    }
    if optimizer == "nvme" {
        let q = question(
            "Which folder takes the optimizer states?",
            "on an NVMe disk of every machine",
        );
        section.set("offload_optimizer_nvme_path", ask.text(q, Some("/nvme"))?);
    }
    Ok(())
}

fn models(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    let q = question(
        "Build large models in shards (`deepspeed.zero.Init`)?",
        "for stage 3 and models that fit into no single device",
    );
    let in_shards = ask.yes_no(q, false)?;
    section.set("zero3_init_flag", in_shards);
    if in_shards {
        ask.remark("the Python package `transformers` must be installed where the program runs");
    }
    let q = question(
        "Does the model hold a mixture of experts?",
        "its layers are then kept whole",
    );
    if ask.yes_no(q, false)? {
        let q = question(
            "Which classes are the layers with experts?",
            "comma-separated, case-sensitive, such as `MixtralSparseMoeBlock`",
        );
        section.set("deepspeed_moe_layer_cls_names", ask.text(q, None)?);
    }
    Ok(())
}

fn launcher(ask: &mut dyn Ask, section: &mut Section) -> Result<()> {
    let q = question(
        "Which launcher starts the processes on the machines?",
        "`standard` needs `accelerate launch` on each of them",
    );
    let launcher = ask.choice(q, &LAUNCHERS, 0)?;
    section.set("deepspeed_multinode_launcher", launcher);
    if launcher == "standard" {
        return Ok(());
    }
    let q = question(
        "Where is the hostfile of DeepSpeed?",
        "one line per machine: its name, then `slots=` and the number of its GPUs",
    );
    let path = ask.line(q, &Expected::TextOrNothing, None)?;
    section.set("deepspeed_hostfile", path);
    let q = question(
        "Leave out some of the machines or GPUs?",
        "all others of the hostfile are used",
    );
    if ask.yes_no(q, false)? {
        let q = question(
            "Which ones are left out?",
            "such as `worker-1@worker-2:0,2`: all of worker-1, two GPUs of worker-2",
        );
        section.set("deepspeed_exclusion_filter", ask.text(q, None)?);
    }
    let q = question(
        "Use only some of the machines or GPUs?",
        "none but those are used",
    );
    if ask.yes_no(q, false)? {
        let q = question(
            "Which ones are used?",
            "such as `worker-1@worker-2:0,2`: all of worker-1, two GPUs of worker-2",
        );
        section.set("deepspeed_inclusion_filter", ask.text(q, None)?);
    }
    Ok(())
}
