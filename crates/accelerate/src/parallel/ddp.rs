//! Data parallelism: every rank has the whole model and a part of the batch.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::rc::Rc;

use accelerate_torch::{
    FIRST_BUCKET_BYTES, MIB, ProcessGroup, Reducer, ReducerOptions, autograd, verify_parameters,
};
use tch::{Kind, Tensor};

use crate::nn::{Hook, Module};
use crate::tree::{Tree, leaves};
use crate::{Error, Result};

/// Into how large a buffer parameters are packed when rank 0 sends them.
const BROADCAST_BYTES: usize = 250 * MIB;

/// How gradients travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CommHook {
    /// As they are.
    #[default]
    No,
    /// As float16.
    Fp16,
    /// As bfloat16.
    Bf16,
}

/// The settings of data parallelism.
///
/// # Source
/// `accelerate.DistributedDataParallelKwargs`, as far as this version can do it. The
/// bucket size is an integer, as PyTorch's is in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistributedDataParallelKwargs {
    /// Whether buffers are copied from rank 0 before each forward pass that synchronises.
    pub broadcast_buffers: bool,
    /// The size of a bucket of gradients in MiB; `None` is 25, with a small first bucket.
    pub bucket_cap_mb: Option<NonZeroUsize>,
    /// Whether parameters that take no part in a forward pass are allowed and looked for.
    pub find_unused_parameters: bool,
    /// Whether gradients are views of the buckets, which saves memory and a copy.
    pub gradient_as_bucket_view: bool,
    /// How gradients travel.
    pub comm_hook: CommHook,
}

impl Default for DistributedDataParallelKwargs {
    fn default() -> Self {
        Self {
            broadcast_buffers: true,
            bucket_cap_mb: None,
            find_unused_parameters: false,
            gradient_as_bucket_view: false,
            comm_hook: CommHook::No,
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
            static_graph: false,
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
    group: ProcessGroup,
    kwargs: DistributedDataParallelKwargs,
    buffers: Vec<Tensor>,
    /// Off inside `no_sync`: gradients stay local.
    sync_gradients: Cell<bool>,
    /// Whether the last forward pass was one that synchronised.
    synced_before: Cell<bool>,
}

impl DataParallel {
    /// Makes `module` equal to rank 0's and ready to train with the group.
    ///
    /// # Collective
    /// Every rank calls this with the same model.
    ///
    /// # Errors
    /// If no parameter requires a gradient, parameters differ over ranks in number, shape
    /// or kind, or lie on different devices.
    pub fn new(
        module: &dyn Module,
        group: &ProcessGroup,
        kwargs: DistributedDataParallelKwargs,
    ) -> Result<Rc<Self>> {
        let parameters: Vec<(String, Tensor)> = module
            .named_parameters()
            .into_iter()
            .map(|(name, parameter)| (name, parameter.tensor().shallow_clone()))
            .collect();
        let trained = trained(module, &parameters)?;
        let tensors: Vec<Tensor> = trained.iter().map(|(_, t)| t.shallow_clone()).collect();
        verify_parameters(group, &tensors)?;
        let buffers: Vec<Tensor> = module
            .named_buffers()
            .into_iter()
            .map(|(_, buffer)| buffer.tensor().shallow_clone())
            .collect();
        send_from_rank_0(group, parameters.iter().map(|(_, t)| t), &kwargs, &buffers)?;
        let mut reducer = Reducer::new(group, &trained, &kwargs.reducer_options())?;
        match kwargs.comm_hook {
            CommHook::No => {}
            CommHook::Fp16 => reducer.compress(Kind::Half)?,
            CommHook::Bf16 => reducer.compress(Kind::BFloat16)?,
        }
        Ok(Rc::new(Self {
            reducer,
            group: group.clone(),
            kwargs,
            buffers,
            sync_gradients: Cell::new(true),
            synced_before: Cell::new(true),
        }))
    }

    /// Turns the exchange of gradients on or off for the passes that follow; answers what it was.
    pub fn set_sync_gradients(&self, sync: bool) -> bool {
        self.sync_gradients.replace(sync)
    }

    /// Whether the next backward pass exchanges gradients.
    #[must_use]
    pub fn syncs_gradients(&self) -> bool {
        self.sync_gradients.get()
    }

    /// Copies rank 0's buffers, where the last pass may have changed them.
    fn sync_buffers(&self) -> Result<()> {
        if self.kwargs.broadcast_buffers && self.synced_before.get() && !self.buffers.is_empty() {
            self.group
                .broadcast_coalesced(&self.buffers, BROADCAST_BYTES, 0)?;
        }
        Ok(())
    }
}

impl Hook for DataParallel {
    fn before_forward(&self, _module: &dyn Module, _input: &mut dyn Tree) -> Result<()> {
        if autograd::is_enabled() {
            if self.sync_gradients.get() {
                self.reducer.prepare_for_forward()?;
            }
            self.reducer.rebuild_buckets()?;
        }
        self.sync_buffers()
    }

    fn after_forward(&self, _module: &dyn Module, output: &mut dyn Tree) -> Result<()> {
        if !(autograd::is_enabled() && self.sync_gradients.get()) {
            self.synced_before.set(false);
            return Ok(());
        }
        self.synced_before.set(true);
        if !self.kwargs.find_unused_parameters {
            return Ok(self.reducer.prepare_for_backward(&[])?);
        }
        self.reducer.prepare_for_backward(&leaves(output)?)?;
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

fn send_from_rank_0<'a>(
    group: &ProcessGroup,
    parameters: impl Iterator<Item = &'a Tensor>,
    kwargs: &DistributedDataParallelKwargs,
    buffers: &[Tensor],
) -> Result<()> {
    let mut states: Vec<Tensor> = parameters.map(Tensor::f_detach).collect::<Result<_, _>>()?;
    if kwargs.broadcast_buffers {
        states.extend(buffers.iter().map(Tensor::shallow_clone));
    }
    Ok(group.broadcast_coalesced(&states, BROADCAST_BYTES, 0)?)
}
