//! Where DeepSpeed keeps what does not stay on the device.

use super::Compiler;
use crate::parallel::{DiskTraffic, Offload, ParallelPlan, Part, PlanError, Storage};

type Result<T> = std::result::Result<T, PlanError>;

impl Compiler<'_> {
    pub(super) fn describe_memory(&self, plan: &mut ParallelPlan) -> Result<()> {
        let optimizer = self.storage("zero_optimization.offload_optimizer")?;
        let traffic = DiskTraffic::default();
        let both = self.flag_of("offload_optimizer.pipeline")?;
        plan.offload = Offload {
            parameters: self.storage("zero_optimization.offload_param")?,
            gradients: optimizer.clone(),
            optimizer_state: optimizer,
            optimizer_ratio: self
                .document
                .number(&self.zero("offload_optimizer.ratio"), 1.0)?,
            disk: DiskTraffic {
                sub_group_size: self.whole("sub_group_size", traffic.sub_group_size)?,
                param_buffers: self.whole("offload_param.buffer_count", traffic.param_buffers)?,
                param_buffer_size: self
                    .whole("offload_param.buffer_size", traffic.param_buffer_size)?,
                max_in_cpu: self.whole("offload_param.max_in_cpu", traffic.max_in_cpu)?,
                optimizer_buffers: self
                    .whole("offload_optimizer.buffer_count", traffic.optimizer_buffers)?,
                reads_ahead: both || self.flag_of("offload_optimizer.pipeline_read")?,
                writes_behind: both || self.flag_of("offload_optimizer.pipeline_write")?,
                block_bytes: self.document.whole("aio.block_size", traffic.block_bytes)?,
                queue_depth: self
                    .document
                    .whole("aio.queue_depth", traffic.queue_depth)?,
            },
        };
        let (param, state) = (
            "zero_optimization.offload_param.device",
            "zero_optimization.offload_optimizer.device",
        );
        if plan.offload.parameters != Storage::Device {
            self.note(plan, Part::OffloadParameters, param);
        }
        if plan.offload.optimizer_state != Storage::Device {
            self.note(plan, Part::OffloadGradients, state);
            self.note(plan, Part::OffloadOptimizer, state);
        }
        Ok(())
    }

    fn flag_of(&self, key: &str) -> Result<bool> {
        self.document.flag(&self.zero(key), false)
    }

    fn storage(&self, part: &'static str) -> Result<Storage> {
        let device = format!("{part}.device");
        let path = format!("{part}.nvme_path");
        Ok(match self.document.text(&device)?.as_deref() {
            Some("cpu") => Storage::Cpu {
                is_pinned: self.document.flag(&format!("{part}.pin_memory"), true)?,
            },
            Some("nvme") => match self.document.text(&path)? {
                Some(folder) if folder != "none" && !folder.is_empty() => Storage::Disk {
                    folder: folder.into(),
                },
                _ => return Err(self.no_folder(part, &device)),
            },
            _ => Storage::Device,
        })
    }

    fn no_folder(&self, part: &'static str, device: &str) -> PlanError {
        PlanError::NoFolder {
            what: part,
            origin: self.document.origin(device),
            path_key: match part {
                "zero_optimization.offload_param" => "offload_param_nvme_path",
                _ => "offload_optimizer_nvme_path",
            },
        }
    }
}
