//! Data parallelism: every rank has the whole model and a part of the batch.

pub(super) mod agreement;
mod average;
mod compression;
mod join;
mod order;
mod passes;
pub(super) mod unused;

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;

use accelerate_torch::{FIRST_BUCKET_BYTES, MIB, ProcessGroup, Reducer, ReducerOptions, autograd};
use tch::{Device, Tensor};

use super::comm_hook::{self, CommHook, CommWrapper, SharedMemory};
use crate::collectives::{Call, Site};
use crate::nn::{Hook, Module};
use crate::state::PartialState;
use crate::tree::{Tree, leaves};
use crate::{Error, Result};

pub use unused::{Gradients, UnusedReport};

/// Into how large a buffer parameters are packed when rank 0 sends them.
const BROADCAST_BYTES: usize = 250 * MIB;

/// The settings of data parallelism.
///
/// # Source
/// `accelerate.DistributedDataParallelKwargs`. Differs: the bucket size is an integer, as
/// PyTorch's is in effect; `comm_state_option` is a part of the hook that it is for; there
/// is no `dim`, which PyTorch does not use.
#[derive(Debug, Clone, PartialEq)]
pub struct DistributedDataParallelKwargs {
    /// Whether buffers are copied from rank 0 before each forward pass that synchronises.
    pub broadcast_buffers: bool,
    /// The size of a bucket of gradients in MiB; `None` is 25, with a small first bucket.
    pub bucket_cap_mb: Option<NonZeroUsize>,
    /// Whether parameters that take no part in a forward pass are allowed and looked for.
    pub find_unused_parameters: bool,
    /// Whether gradients are views of the buckets, which saves memory and a copy.
    pub gradient_as_bucket_view: bool,
    /// Whether every step has the same graph, unused parameters included: they are then
    /// found once, and a parameter may get its gradient in several parts.
    pub static_graph: bool,
    /// Changes nothing; kept because configurations have it.
    pub check_reduction: bool,
    /// How gradients travel.
    pub comm_hook: CommHook,
    /// In which precision `comm_hook` works and sends.
    pub comm_wrapper: CommWrapper,
}

impl Default for DistributedDataParallelKwargs {
    fn default() -> Self {
        Self {
            broadcast_buffers: true,
            bucket_cap_mb: None,
            find_unused_parameters: false,
            gradient_as_bucket_view: false,
            static_graph: false,
            check_reduction: false,
            comm_hook: CommHook::No,
            comm_wrapper: CommWrapper::No,
        }
    }
}

impl DistributedDataParallelKwargs {
    fn reducer_options(&self) -> ReducerOptions {
        let cap = self.bucket_cap_mb.map(|cap| cap.get() * MIB);
        ReducerOptions {
            bucket_bytes: cap.unwrap_or(25 * MIB),
            first_bucket_bytes: cap.unwrap_or(FIRST_BUCKET_BYTES),
            find_unused_parameters: self.find_unused_parameters,
            gradient_as_bucket_view: self.gradient_as_bucket_view,
            static_graph: self.static_graph,
        }
    }
}

/// Data parallelism for one model: a hook on its root.
///
/// Around each forward pass it tells the reducer what comes, so that the backward pass
/// averages gradients over the ranks while it runs.
///
/// # Source
/// `torch.nn.parallel.DistributedDataParallel`.
#[derive(Debug)]
pub struct DataParallel {
    reducer: Reducer,
    state: PartialState,
    group: ProcessGroup,
    /// The class of the model.
    class: &'static str,
    kwargs: DistributedDataParallelKwargs,
    /// All parameters, also those that are not trained.
    parameters: Vec<Tensor>,
    /// Those that are trained.
    trained: Vec<Tensor>,
    buffers: Vec<Tensor>,
    /// What PowerSGD remembers.
    compression: Option<SharedMemory>,
    /// Off inside `no_sync`: gradients stay local.
    sync_gradients: Cell<bool>,
    /// Whether the last forward pass was one that synchronised.
    synced_before: Cell<bool>,
    /// Gradients stay local, whatever `sync_gradients` says.
    held: Cell<bool>,
    /// Whether the next backward pass is one that exchanges gradients.
    awaits_backward: Cell<bool>,
    /// What this model does inside a join of uneven inputs.
    join: Cell<join::Role>,
    /// In which order gradients came first.
    order: RefCell<order::Order>,
}

impl DataParallel {
    /// Makes `module` equal to rank 0's and ready to train with the group.
    ///
    /// # Collective
    /// Every rank of the job calls this with the same model.
    ///
    /// # Errors
    /// [`Error::Argument`] for a process by itself; [`Error::NothingToTrain`] if no parameter requires a gradient,
    /// [`Error::ModelsDiffer`] on every rank if tensors differ over ranks in number, name,
    /// shape or kind; [`Error::Argument`] if parameters lie on different devices, or for
    /// settings of a hook that cannot be.
    pub fn new(
        module: &dyn Module,
        state: &PartialState,
        kwargs: DistributedDataParallelKwargs,
    ) -> Result<Rc<Self>> {
        let site = Site::Model(module.class_name());
        state.counted("prepare", site, |call| {
            Self::prepare(module, state, kwargs, call)
        })
    }

    fn prepare(
        module: &dyn Module,
        state: &PartialState,
        kwargs: DistributedDataParallelKwargs,
        call: Call,
    ) -> Result<Rc<Self>> {
        let group = state.process_group().ok_or_else(|| Error::Argument {
            operation: "data parallelism",
            expected: "a job of several processes".to_owned(),
            found: "a process by itself".to_owned(),
        })?;
        kwargs.comm_hook.validate()?;
        let parameters: Vec<(String, Tensor)> = module
            .named_parameters()
            .into_iter()
            .map(|(name, parameter)| (name, parameter.tensor().shallow_clone()))
            .collect();
        let trained = trained(module, &parameters)?;
        agreement::same_model(group, module, &trained, call)?;
        let buffers: Vec<Tensor> = module
            .named_buffers()
            .into_iter()
            .map(|(_, buffer)| buffer.tensor().shallow_clone())
            .collect();
        let mut reducer = Reducer::new(group, &trained, &kwargs.reducer_options())?;
        let hook = (&kwargs.comm_hook, kwargs.comm_wrapper);
        let compression = comm_hook::install(&mut reducer, group, hook.0, hook.1)?;
        let model = Self {
            reducer,
            state: state.clone(),
            group: group.clone(),
            class: module.class_name(),
            kwargs,
            parameters: tensors(parameters),
            trained: tensors(trained),
            buffers,
            compression,
            sync_gradients: Cell::new(true),
            synced_before: Cell::new(true),
            held: Cell::new(false),
            awaits_backward: Cell::new(false),
            join: Cell::default(),
            order: RefCell::default(),
        };
        model.send_from(0)?;
        Ok(Rc::new(model))
    }

    /// Whether a model stays without data parallelism: on a GPU, one with nothing to train.
    ///
    /// On CPUs such a model is refused by [`new`](Self::new), as in the original.
    #[must_use]
    pub fn leaves_alone(module: &dyn Module, device: Device) -> bool {
        matches!(device, Device::Cuda(_)) && module.parameters().iter().all(|p| !p.requires_grad())
    }

    /// Turns the exchange of gradients on or off for the passes that follow; answers what it was.
    pub fn set_sync_gradients(&self, sync: bool) -> bool {
        self.sync_gradients.replace(sync)
    }

    /// Lets the next backward pass exchange gradients although its forward pass did not expect it.
    ///
    /// # Errors
    /// With `find_unused_parameters`, which needs the outputs of the forward pass.
    pub(crate) fn expect_backward(&self) -> Result<()> {
        if self.kwargs.find_unused_parameters {
            return Err(Error::Argument {
                operation: "trigger_sync_in_backward",
                expected: "a model whose parameters are all used".to_owned(),
                found: "`find_unused_parameters`; synchronise with a forward pass".to_owned(),
            });
        }
        self.pass("forward", |_| {
            self.note_order()?;
            self.reducer.rebuild_buckets()?;
            Ok(self.reducer.prepare_for_backward(&[])?)
        })?;
        self.awaits_backward.set(true);
        Ok(())
    }

    /// Whether the next backward pass exchanges gradients.
    #[must_use]
    pub fn syncs_gradients(&self) -> bool {
        self.sync_gradients.get() && !self.held.get()
    }

    /// Keeps gradients local whatever [`set_sync_gradients`](Self::set_sync_gradients)
    /// says, or ends that; answers what it was.
    pub fn hold_local(&self, hold: bool) -> bool {
        self.held.replace(hold)
    }

    /// The settings.
    #[must_use]
    pub fn kwargs(&self) -> &DistributedDataParallelKwargs {
        &self.kwargs
    }

    /// Whether buffers go from one rank to all before the next forward pass.
    fn sends_buffers(&self) -> bool {
        self.kwargs.broadcast_buffers && self.synced_before.get() && !self.buffers.is_empty()
    }

    /// Copies rank 0's buffers, where the last pass may have changed them.
    fn sync_buffers(&self) -> Result<()> {
        if self.sends_buffers() {
            let root = self.root_of_buffers()?;
            self.group
                .broadcast_coalesced(&self.buffers, BROADCAST_BYTES, root)?;
        }
        Ok(())
    }

    /// Copies the model of one rank to all.
    fn send_from(&self, root: usize) -> Result<()> {
        let detached = self.parameters.iter().map(Tensor::f_detach);
        let mut states = detached.collect::<Result<Vec<_>, _>>()?;
        if self.kwargs.broadcast_buffers {
            states.extend(self.buffers.iter().map(Tensor::shallow_clone));
        }
        Ok(self
            .group
            .broadcast_coalesced(&states, BROADCAST_BYTES, root)?)
    }
}

impl Hook for DataParallel {
    fn before_forward(&self, _module: &dyn Module, _input: &mut dyn Tree) -> Result<()> {
        let syncs = autograd::is_enabled() && self.syncs_gradients();
        if !(syncs || self.sends_buffers() || self.is_joined()) {
            return Ok(());
        }
        self.pass("forward", |_| {
            if syncs {
                self.note_order()?;
                self.reducer.prepare_for_forward()?;
            }
            self.say_active()?;
            // Rebuilding is communication: it waits for a pass that communicates anyway, of
            // which ranks that have finished a join are told first.
            if !self.is_joined() {
                if syncs {
                    self.reducer.rebuild_buckets()?;
                }
                return self.sync_buffers();
            }
            self.sync_buffers()?;
            self.say_whether_syncing(syncs)?;
            if syncs {
                self.reducer.rebuild_buckets()?;
            }
            Ok(())
        })
    }

    fn after_forward(&self, _module: &dyn Module, output: &mut dyn Tree) -> Result<()> {
        let syncs = autograd::is_enabled() && self.syncs_gradients();
        self.synced_before.set(syncs);
        if !syncs {
            return Ok(());
        }
        self.awaits_backward.set(true);
        let DistributedDataParallelKwargs {
            find_unused_parameters,
            static_graph,
            ..
        } = self.kwargs;
        if !find_unused_parameters && !static_graph {
            return Ok(self.reducer.prepare_for_backward(&[])?);
        }
        self.reducer.prepare_for_backward(&leaves(output)?)?;
        if static_graph {
            return Ok(());
        }
        output_sink(output)
    }
}

/// Lets an output that the loss does not use still reach the parameters behind it, without a value.
///
/// Otherwise the reducer would wait for their gradients for ever.
fn output_sink(output: &mut dyn Tree) -> Result<()> {
    let tensors = leaves(output)?;
    let differentiable: Vec<&Tensor> = tensors.iter().filter(|t| t.requires_grad()).collect();
    if differentiable.is_empty() {
        return Ok(());
    }
    let passed = autograd::function(
        &differentiable,
        |_, inputs| Ok(inputs.iter().map(Tensor::shallow_clone).collect()),
        |_, gradients| {
            Ok(gradients
                .iter()
                .map(|g| g.as_ref().map(Tensor::shallow_clone))
                .collect())
        },
    )?;
    let mut passed = passed.into_iter();
    output.visit_mut(&mut |leaf| {
        if leaf.requires_grad()
            && let Some(through) = passed.next()
        {
            *leaf = through;
        }
        Ok(())
    })
}

/// The parameters that require a gradient.
fn trained(module: &dyn Module, parameters: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>> {
    let trained: Vec<(String, Tensor)> = parameters
        .iter()
        .filter(|(_, tensor)| tensor.requires_grad())
        .map(|(name, tensor)| (name.clone(), tensor.shallow_clone()))
        .collect();
    match trained.first() {
        None => Err(Error::NothingToTrain {
            class: module.class_name(),
        }),
        Some((first, tensor)) => {
            let device = tensor.device();
            match trained.iter().find(|(_, other)| other.device() != device) {
                None => Ok(trained),
                Some((name, other)) => Err(Error::Argument {
                    operation: "data parallelism",
                    expected: format!("all parameters on {device:?}, where `{first}` is"),
                    found: format!("`{name}` on {:?}", other.device()),
                }),
            }
        }
    }
}

fn tensors(named: Vec<(String, Tensor)>) -> Vec<Tensor> {
    named.into_iter().map(|(_, tensor)| tensor).collect()
}
