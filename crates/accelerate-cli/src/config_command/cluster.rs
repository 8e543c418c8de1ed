//! The questions about this machine and those that work with it.
//!
//! Every group of questions has a file and a function of its own, which adds its answers to the
//! record. What later questions depend on is in [`Job`] and [`Strategy`].

mod deepspeed;
pub(super) mod dynamo;
mod fp8;
mod fsdp;
mod job;
mod machines;
mod megatron_lm;
mod mpirun;
mod parallelism;
mod precision;
mod processes;
#[cfg(test)]
mod tests;
mod tpu;

use super::{
    ask::Ask,
    device_summary::DeviceSummary,
    error::Result,
    record::{self, Section},
};
use job::{Job, Machine, Strategy};
pub(super) use precision::PRECISIONS;

/// Asks everything about this machine, in the order of the original.
///
/// # Source
/// The questionnaire of Accelerate 1.15. Differs: whether DeepSpeed, Transformers or a library for
/// FP8 is installed is not checked, only remarked, since this command may run on a login node.
pub(super) fn interview(ask: &mut dyn Ask, devices: DeviceSummary) -> Result<Section> {
    let mut record = always_written();
    let machine = machines::kind(ask)?;
    let num_machines = machines::network(ask, machine, &mut record)?;
    let use_cpu = machines::use_cpu(ask, machine, &mut record)?;
    let job = Job {
        machine,
        num_machines,
        use_cpu,
        devices,
    };
    mpirun::interview(ask, &job, &mut record)?;
    let with_dynamo = dynamo::interview(ask, &mut record)?;
    let strategy = strategy(ask, &job, &mut record)?;
    record.set("distributed_type", job.distributed_type(strategy));
    processes::number(ask, &job, strategy, &mut record)?;
    processes::device_ids(ask, &job, strategy, &mut record)?;
    processes::affinity(ask, &job, strategy, &mut record)?;
    if machine == Machine::Tpu {
        record.set("mixed_precision", "no");
        tpu::interview(ask, &mut record)?;
    } else if strategy != Strategy::DeepSpeed(deepspeed::Settings::OwnFile) {
        let precision = precision::interview(ask, &mut record)?;
        if with_dynamo && precision == "no" && !use_cpu {
            ask.remark("with torch.compile and full precision, TF32 is turned on when launching");
        }
    }
    Ok(record)
}

/// What holds for every machine until an answer says otherwise.
fn always_written() -> Section {
    let mut record = Section::default();
    record.set("same_network", true);
    record.set("downcast_bf16", "no");
    record.set_texts("tpu_env", Vec::new());
    record.fill(record::cluster_defaults());
    record
}

/// Which library shares the work between the processes: the first one that is wanted.
fn strategy(ask: &mut dyn Ask, job: &Job, record: &mut Section) -> Result<Strategy> {
    if let Some(settings) = deepspeed::interview(ask, job, record)? {
        return Ok(Strategy::DeepSpeed(settings));
    }
    if let Some(version) = fsdp::interview(ask, job, record)? {
        if version == fsdp::Version::Two {
            parallelism::interview(ask, record)?;
        }
        return Ok(Strategy::Fsdp);
    }
    if megatron_lm::interview(ask, job, record)? {
        return Ok(Strategy::MegatronLm);
    }
    Ok(Strategy::Plain)
}
