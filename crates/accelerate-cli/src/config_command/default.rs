//! `accelerate config default`: a file that fits this machine.

use std::process::ExitCode;

use accelerate_plan::{
    MixedPrecision,
    config::{Value, json},
};

use super::{
    DefaultArgs, DeviceSummary,
    error::Result,
    record::{self, Section},
    save::Target,
    tell, tell_saved,
};

/// Writes the file unless there is one already.
///
/// # Source
/// `write_basic_config`: the content is JSON whatever the name of the file, and JSON is YAML too.
pub(super) fn run(args: &DefaultArgs, devices: DeviceSummary) -> Result<ExitCode> {
    let target = Target::with_folder(args.config_file.as_deref())?;
    let path = target.path();
    if path.exists() {
        tell(&format!(
            "`{}` exists already and stays as it is: run `accelerate config` to answer questions, \
             or name another file with `--config_file`\n",
            path.display()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let record: Value = basic(args.mixed_precision, devices).into();
    target.write(&json::write(&record))?;
    tell_saved(path);
    Ok(ExitCode::SUCCESS)
}

/// All devices of this machine, or one process on its CPU.
fn basic(precision: MixedPrecision, devices: DeviceSummary) -> Section {
    let mut record = Section::default();
    record.set("distributed_type", devices.distributed_type());
    record.set("mixed_precision", precision.name());
    record.set("use_cpu", devices.count == 0);
    let processes = i64::try_from(devices.count.max(1)).unwrap_or(i64::MAX);
    record.set("num_processes", processes);
    record.fill(record::cluster_defaults());
    record
}

#[cfg(test)]
mod tests {
    use super::{super::DeviceKind, *};

    #[test]
    fn a_machine_without_devices_computes_on_its_cpu() {
        let record: Value = basic(MixedPrecision::Bf16, DeviceSummary::CPU_ONLY).into();
        assert_eq!(
            json::write(&record),
            r#"{
  "compute_environment": "LOCAL_MACHINE",
  "debug": false,
  "distributed_type": "NO",
  "downcast_bf16": false,
  "enable_cpu_affinity": false,
  "machine_rank": 0,
  "main_training_function": "main",
  "mixed_precision": "bf16",
  "num_machines": 1,
  "num_processes": 1,
  "rdzv_backend": "static",
  "same_network": false,
  "tpu_use_cluster": false,
  "tpu_use_sudo": false,
  "use_cpu": true
}
"#
        );
    }

    #[test]
    fn devices_are_used_and_several_of_them_work_together() {
        for (kind, count, expected) in [
            (DeviceKind::Cuda, 1, "NO"),
            (DeviceKind::Cuda, 8, "MULTI_GPU"),
            (DeviceKind::Mlu, 2, "MULTI_MLU"),
            (DeviceKind::Mps, 1, "NO"),
            (DeviceKind::Xpu, 2, "MULTI_XPU"),
            (DeviceKind::Hpu, 2, "MULTI_HPU"),
            (DeviceKind::Npu, 2, "MULTI_NPU"),
            (DeviceKind::Sdaa, 2, "MULTI_SDAA"),
            (DeviceKind::Musa, 2, "MULTI_MUSA"),
            (DeviceKind::Neuron, 2, "MULTI_NEURON"),
        ] {
            let record = basic(MixedPrecision::No, DeviceSummary { kind, count });
            let is =
                |key: &str, value: Value| assert_eq!(record.get(key), Some(&value), "{kind:?}");
            is("distributed_type", expected.into());
            is("num_processes", i64::try_from(count).unwrap().into());
            is("use_cpu", false.into());
        }
    }
}
