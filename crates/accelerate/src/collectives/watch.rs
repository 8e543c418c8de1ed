//! What surrounds every collective: its number, the comparison in debug mode, and the
//! explanation of a failure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::time::Duration;

use accelerate_torch::{Backend, ProcessGroup};
use tch::{Device, Kind, Tensor};

use super::call::{Call, Site};
use super::mismatch::{MismatchReport, RankSide};
use super::{wait, whereabouts, wire};
use crate::state::PartialState;
use crate::tree::{Tree, TreeStructure, data_structure, find_device};
use crate::{Error, Result};

/// How long ranks are awaited in debug mode before a warning says who is missing.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a rank is about to do, as far as all ranks have to do the same.
pub(crate) struct Operation<'a> {
    name: &'static str,
    arguments: String,
    tensors: Option<&'a dyn Tree>,
    shapes: Shapes,
}

#[derive(Clone, Copy, PartialEq)]
enum Shapes {
    /// Every size counts.
    Equal,
    /// Only the number of dimensions counts.
    EqualDims,
}

impl<'a> Operation<'a> {
    /// One without arguments and tensors.
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            arguments: String::new(),
            tensors: None,
            shapes: Shapes::Equal,
        }
    }

    /// With arguments that have to be equal on all ranks.
    pub(crate) fn with_arguments(mut self, arguments: String) -> Self {
        self.arguments = arguments;
        self
    }

    /// With tensors of equal shapes and kinds on all ranks.
    pub(crate) fn with_tensors(mut self, tree: &'a dyn Tree) -> Self {
        self.tensors = Some(tree);
        self
    }

    /// With tensors of equal kinds and numbers of dimensions on all ranks.
    pub(crate) fn with_sizes_of_any(mut self, tree: &'a dyn Tree) -> Self {
        self.shapes = Shapes::EqualDims;
        self.with_tensors(tree)
    }
}

/// One collective under way.
pub(crate) struct Watch<'a> {
    state: &'a PartialState,
    group: &'a ProcessGroup,
    call: Call,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.state.calls().leave(self.call);
    }
}

impl<'a> Watch<'a> {
    /// Counts the call and, in debug mode, compares it with those of all ranks.
    ///
    /// `None` on a process by itself.
    #[track_caller]
    pub(crate) fn begin(
        state: &'a PartialState,
        operation: &Operation<'_>,
    ) -> Result<Option<Self>> {
        let site = Site::Code(Location::caller());
        let Some(group) = state.process_group() else {
            return Ok(None);
        };
        let call = state.calls().enter(operation.name, site);
        let watch = Self { state, group, call };
        if state.debug() {
            watch
                .compare(operation)
                .map_err(|error| watch.explain(error))?;
        }
        Ok(Some(watch))
    }

    /// Does the work; a failure between ranks is explained.
    pub(crate) fn run<R>(&self, work: impl FnOnce(&ProcessGroup) -> Result<R>) -> Result<R> {
        work(self.group).map_err(|error| self.explain(error))
    }

    /// Where small values travel.
    pub(crate) fn device(&self) -> Device {
        wire::device(self.group, self.state)
    }

    /// A failure between ranks with who is missing; other errors as they are.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match error {
            Error::Torch(error) => whereabouts::explain(self.state, Some(self.call), error),
            other => other,
        }
    }

    /// Fails on every rank alike if ranks do not agree.
    fn compare(&self, operation: &Operation<'_>) -> Result<()> {
        whereabouts::post_last(self.group, &self.state.calls().note());
        let device = operation.tensors.map(find_device).transpose()?.flatten();
        let side = self.side(operation, device)?;
        let own = [
            hash(&side.compared(operation.shapes == Shapes::EqualDims)),
            hash(&side.call.site),
        ];
        let all = self.exchange(&own)?;
        // Every rank looks at all of them, so that all fail or none.
        if any_differs(&all, own.len(), 0) {
            let sides = wire::gather_messages(self.group, self.device(), &side.encode()?)?;
            return Err(Error::CollectiveMismatch {
                report: Box::new(MismatchReport::decode(self.group.rank(), &sides)?),
            });
        }
        if any_differs(&all, own.len(), 1) {
            self.state.calls().note_apart(self.call);
        }
        self.right_device(operation, device)
    }

    fn side(&self, operation: &Operation<'_>, device: Option<Device>) -> Result<RankSide> {
        let structure = operation
            .tensors
            .map_or(Ok(TreeStructure::default()), data_structure)?;
        Ok(RankSide {
            call: self.call.record(true),
            arguments: operation.arguments.clone(),
            tensors: structure.tensors,
            device: device.map(|device| kind_of_device(device).to_owned()),
            recent: self.state.calls().recent(),
        })
    }

    /// Two numbers of every rank, one rank after the other.
    fn exchange(&self, own: &[i64; 2]) -> Result<Vec<i64>> {
        let device = self.device();
        let own = Tensor::f_from_slice(own)?.f_to_device(device)?;
        let count = i64::try_from(2 * self.group.size()).unwrap_or(i64::MAX);
        let all = Tensor::f_empty([count], (Kind::Int64, device))?;
        let work = self.group.all_gather_into_tensor_async(&all, &own)?;
        let patience = PATIENCE.min(self.group.timeout() / 2);
        wait::patiently(work, patience, || {
            let report = whereabouts::while_waiting(self.state, self.group, self.call);
            tracing::warn!(
                missing = ?report.missing,
                "still waiting after {} s: {report}",
                patience.as_secs_f64()
            );
        })?;
        Ok(Vec::try_from(&all.f_to_device(Device::Cpu)?)?)
    }

    /// All ranks agree, so all fail here or none.
    fn right_device(&self, operation: &Operation<'_>, found: Option<Device>) -> Result<()> {
        let expected = kind_of_device(self.state.device());
        match found.map(kind_of_device) {
            Some(found) if self.group.backend() == Backend::Nccl && found != expected => {
                Err(Error::Argument {
                    operation: operation.name,
                    expected: format!(
                        "tensors on `{expected}`, where the backend works; move them with `send_to_device`"
                    ),
                    found: format!("tensors on `{found}`"),
                })
            }
            _ => Ok(()),
        }
    }
}

fn any_differs(all: &[i64], width: usize, column: usize) -> bool {
    let first = all.get(column);
    all.chunks(width).any(|row| row.get(column) != first)
}

fn hash(value: &impl Hash) -> i64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish().cast_signed()
}

/// The number of a device differs over ranks, its kind does not.
fn kind_of_device(device: Device) -> &'static str {
    match device {
        Device::Cpu => "cpu",
        Device::Cuda(_) => "cuda",
        Device::Mps => "mps",
        Device::Vulkan => "vulkan",
    }
}
