//! What a model's communication hook remembers, seen from outside.

use tch::{Device, Tensor};

use super::DataParallel;
use crate::Result;
use crate::optim::StateDict;
use crate::parallel::comm_hook::{CompressionStats, Memory};

impl DataParallel {
    /// How much compression saved until now; none without PowerSGD.
    #[must_use]
    pub fn compression_stats(&self) -> Option<CompressionStats> {
        self.compression.as_ref().map(|memory| memory.stats())
    }

    /// Whether the hook remembers something from step to step.
    pub(crate) fn remembers(&self) -> bool {
        self.compression.is_some()
    }

    /// What the hook remembers on this rank, to be saved between steps; none without PowerSGD.
    pub(crate) fn remembered(&self) -> Result<Option<StateDict>> {
        let memory = self.compression.as_ref();
        memory
            .map(|memory| memory.state_dict(&self.bucket_settings()))
            .transpose()
    }

    /// What was saved of a model whose gradients came in `order`; none without PowerSGD. Nothing
    /// changes yet.
    ///
    /// # Errors
    /// [`Error::StateMismatch`](crate::Error::StateMismatch) if it does not fit the hook, or the
    /// buckets are arranged otherwise.
    pub(crate) fn read_remembered(
        &self,
        state: &StateDict,
        order: &[usize],
    ) -> Result<Option<Memory>> {
        let Some(memory) = &self.compression else {
            return Ok(None);
        };
        let device = self.trained.first().map_or(Device::Cpu, Tensor::device);
        let read = memory.read(state, &self.bucket_settings(), device)?;
        if read.is_new() || self.is_arranged_by(order) {
            return Ok(Some(read));
        }
        Err(crate::Error::StateMismatch {
            target: "PowerSGD",
            problems: vec!["its buckets of gradients are arranged otherwise".to_owned()],
        })
    }

    /// Lets the hook go on from what was read, or begin anew.
    pub(crate) fn remember(&self, memory: Option<Memory>) {
        if let Some(shared) = &self.compression {
            shared.replace(memory);
        }
    }

    /// What decides, beside the order of gradients, which buckets there are.
    fn bucket_settings(&self) -> [(&'static str, u64); 3] {
        let kwargs = &self.kwargs;
        let cap = kwargs.bucket_cap_mb.map_or(0, |cap| cap.get() as u64);
        let elements: usize = self.trained.iter().map(Tensor::numel).sum();
        [
            ("bucket_cap_mb", cap),
            ("elements", elements as u64),
            (
                "find_unused_parameters",
                u64::from(kwargs.find_unused_parameters),
            ),
        ]
    }
}
