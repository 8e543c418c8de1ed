use std::ops::Deref;
use std::path::Path;
use std::rc::Rc;

use accelerate_formats::Weights;
use accelerate_plan::env::Environment;
use accelerate_plan::parallel::{Dialect, ParallelPlan, Recompute, Sharded};
use accelerate_torch::storage;
use tch::Device;

use super::Accelerator;
use crate::accumulation::{ModelGradients, Models};
use crate::big_model::{check_trainable, device_map_of};
use crate::checkpoint::{LoadOptions, LoadReport, load_checkpoint_in_model, load_shards};
use crate::nn::{HookId, KeptInputs, Module, checkpoint_module};
use crate::parallel::{DataParallel, ShardedModel, Strategy, innermost_units};
use crate::registry::ModelHandle;
use crate::{Error, Result};

/// A model that is on its device and trains with all ranks.
///
/// Use it as the model that it holds: `model.call(..)`. What was added to it are hooks,
/// which go when it is taken out again.
#[derive(Debug)]
pub struct PreparedModel<M> {
    /// Shared with what computes activations again, which does not keep it alive.
    model: Rc<M>,
    gradients: ModelGradients,
    autocast: Option<HookId>,
    data_parallel: Option<(HookId, Rc<DataParallel>)>,
    sharded: Option<Rc<ShardedModel>>,
    /// Through which the accelerator saves and loads the weights, as long as this exists.
    handle: Option<Rc<ModelHandle>>,
}

impl<M: Module> PreparedModel<M> {
    pub(super) fn for_training(mut model: M, accelerator: &Accelerator) -> Result<Self> {
        let environment = Environment::from_process();
        check_trainable(&model, &accelerator.shared.state, &environment)?;
        let mut prepared = match accelerator.sharding() {
            Some(_) => {
                hollow(&mut model, accelerator.device())?;
                Self::in_precision(model, accelerator)?
            }
            None => Self::for_evaluation(model, accelerator)?,
        };
        let shared = &accelerator.shared;
        let alone = DataParallel::leaves_alone(&*prepared.model, accelerator.device());
        if let Some(plan) = accelerator.sharding() {
            let sharded = ShardedModel::new(&*prepared.model, &shared.state, plan)?;
            if let Some(scaler) = accelerator.scaler() {
                // Any model in shards knows the ranks; this one may go before others do.
                let shared = Rc::downgrade(shared);
                scaler.share_by(move |found| {
                    let models = shared.upgrade().map(|shared| shared.registry.sharded());
                    match models.as_deref() {
                        Some([shards, ..]) => shards.share_overflow(found),
                        _ => Ok(()),
                    }
                });
            }
            let strategy = Strategy::Sharded(Rc::clone(&sharded));
            prepared.gradients = ModelGradients::new(&*prepared.model, Some(strategy));
            prepared.sharded = Some(sharded);
        } else if shared.state.process_group().is_some() && !alone {
            check_copies(accelerator)?;
            let kwargs = match accelerator.parallel_plan() {
                Some(plan) if plan.dialect == Dialect::DeepSpeed => {
                    let ranks = accelerator.num_processes();
                    shared
                        .ddp
                        .clone()
                        .averaged_by(plan.reduction.average, ranks)
                }
                _ => shared.ddp.clone(),
            };
            let hook = DataParallel::new(&*prepared.model, &shared.state, kwargs)?;
            let id = prepared.model.add_hook(Rc::<DataParallel>::clone(&hook))?;
            prepared.gradients =
                ModelGradients::new(&*prepared.model, Some(Strategy::Data(Rc::clone(&hook))));
            prepared.data_parallel = Some((id, hook));
        }
        prepared.recompute_units(accelerator.parallel_plan())?;
        let handle = Rc::new(ModelHandle::new(
            &*prepared.model,
            prepared.gradients.clone(),
        ));
        shared.registry.models.add(Rc::downgrade(&handle));
        if let Some(recording) = shared.gradient_state.progress().recording() {
            recording.add_model(&handle);
        }
        prepared.handle = Some(handle);
        Ok(prepared)
    }

    /// As [`for_evaluation`](Self::for_evaluation), in shards where parameters are.
    pub(super) fn for_evaluation_alone(mut model: M, accelerator: &Accelerator) -> Result<Self> {
        let plan = accelerator.sharding();
        let Some(plan) = plan.filter(|plan| plan.sharded == Sharded::Parameters) else {
            return Self::for_evaluation(model, accelerator);
        };
        hollow(&mut model, accelerator.device())?;
        let mut prepared = Self::in_precision(model, accelerator)?;
        let state = &accelerator.shared.state;
        prepared.sharded = Some(ShardedModel::for_evaluation(&*prepared.model, state, plan)?);
        Ok(prepared)
    }

    pub(super) fn for_evaluation(model: M, accelerator: &Accelerator) -> Result<Self> {
        // What a device map has spread stays where it is.
        if accelerator.shared.device_placement && device_map_of(&model).is_none() {
            model.to_device(accelerator.device())?;
        }
        Self::in_precision(model, accelerator)
    }

    /// The model where it lies: one that is cut goes to the device unit by unit.
    fn in_precision(model: M, accelerator: &Accelerator) -> Result<Self> {
        // Before data parallelism, which then sees outputs as they leave the model.
        let autocast = match accelerator.precision().hook() {
            Some(hook) => Some(model.add_hook(Rc::new(hook))?),
            None => None,
        };
        Ok(Self {
            gradients: ModelGradients::new(&model, None),
            model: Rc::new(model),
            autocast,
            data_parallel: None,
            sharded: None,
            handle: None,
        })
    }

    /// Lets the module with this dotted name compute its activations again in the backward pass, rather
    /// than keep them; see [`checkpoint_module`]. A plan that asks for it does so for its units.
    ///
    /// # Errors
    /// As [`checkpoint_module`].
    pub fn checkpoint_activations(&self, name: &str, inputs: KeptInputs) -> Result<HookId> {
        checkpoint_module(&self.model, name, inputs)
    }

    fn recompute_units(&self, plan: Option<&ParallelPlan>) -> Result<()> {
        let (plan, inputs) = match plan.map(|plan| (plan, plan.recompute)) {
            Some((plan, Recompute::Units)) => (plan, KeptInputs::OnDevice),
            Some((plan, Recompute::UnitsOffloaded)) => (plan, KeptInputs::InCpuMemory),
            Some((_, Recompute::Nothing)) | None => return Ok(()),
        };
        let units = innermost_units(&*self.model, plan)?;
        if units.is_empty() {
            tracing::warn!(
                "activation checkpointing is asked for, but the whole model is one unit, which keeps \
                 its activations: name the classes of its layers to wrap"
            );
        }
        for name in units {
            self.checkpoint_activations(&name, inputs)?;
        }
        Ok(())
    }

    /// The shards of the model, where each rank keeps only a part of it.
    #[must_use]
    pub fn sharded(&self) -> Option<&ShardedModel> {
        self.sharded.as_deref()
    }

    /// What averages gradients over ranks; none for a process by itself or a sharded model.
    #[must_use]
    pub fn data_parallel(&self) -> Option<&DataParallel> {
        self.data_parallel.as_ref().map(|(_, hook)| &**hook)
    }

    /// Loads the weights of a checkpoint: of a file, an index or a folder. Of a model in shards each
    /// rank reads what it keeps, and no more of mapped files.
    ///
    /// A model that was built without memory ([`init_empty_weights`](crate::nn::init_empty_weights))
    /// and prepared in shards gets its values here; its optimizer is made of the parameters that the
    /// prepared model has.
    ///
    /// # Errors
    /// As [`load_checkpoint_in_model`].
    pub fn load_checkpoint(
        &self,
        checkpoint: impl AsRef<Path>,
        options: &LoadOptions<'_>,
    ) -> Result<LoadReport> {
        match &self.sharded {
            Some(sharded) => {
                load_shards(&*self.model, sharded, &Weights::open(checkpoint)?, options)
            }
            None => load_checkpoint_in_model(&*self.model, checkpoint, options),
        }
    }

    /// Runs `run` with the model while all of its parameters are whole on every rank; see
    /// [`ShardedModel::with_whole_parameters`]. A model that is whole anyway is as it is.
    ///
    /// # Collective
    /// Every rank calls this.
    ///
    /// # Errors
    /// Those of `run`, and of the exchange.
    pub fn with_whole_parameters<T>(
        &self,
        keep_changes: bool,
        run: impl FnOnce(&M) -> Result<T>,
    ) -> Result<T> {
        match &self.sharded {
            Some(sharded) => sharded.with_whole_parameters(keep_changes, || run(&self.model)),
            None => run(&self.model),
        }
    }

    /// The model as it was before, still trained. One in shards stays so, and computes so.
    #[must_use]
    pub fn into_inner(self) -> M {
        if let (Some(id), Some(state)) = (self.autocast, self.model.state()) {
            state.remove_hook(id);
        }
        self.into_inner_in_precision()
    }

    /// The model without what trains it in parallel, but still cast and with converted outputs.
    pub(super) fn into_inner_in_precision(self) -> M {
        if let (Some((id, _)), Some(state)) = (&self.data_parallel, self.model.state()) {
            state.remove_hook(*id);
        }
        // Others hold it weakly, but for the time of a backward pass that computes it again.
        Rc::try_unwrap(self.model)
            .unwrap_or_else(|_| unreachable!("a model is taken out of its own backward pass"))
    }
}

/// Whether the ranks are copies of each other, where nothing is in shards.
fn check_copies(accelerator: &Accelerator) -> Result<()> {
    let Some(mesh) = accelerator.parallel_plan().map(|plan| plan.mesh) else {
        return Ok(());
    };
    if mesh.data_parallel() == mesh.world_size() {
        return Ok(());
    }
    Err(Error::Argument {
        operation: "prepare",
        expected: "ranks that only hold copies or shards of a model".to_owned(),
        found: format!("a plan for {mesh}; layers and sequences are not cut by this version"),
    })
}

/// Gives parameters on the meta device a place on `device`, but no memory yet: each rank will have
/// some for its part.
fn hollow(model: &mut dyn Module, device: Device) -> Result<()> {
    let mut empty = Vec::new();
    for (name, parameter) in model.named_parameters() {
        if parameter.is_meta()? {
            empty.push(name);
        }
    }
    if empty.is_empty() {
        return Ok(());
    }
    model.materialize(device)?;
    for name in empty {
        storage::release(model.get_parameter(&name)?.tensor())?;
    }
    Ok(())
}

impl<M> Models for PreparedModel<M> {
    fn each(&self, visit: &mut dyn FnMut(&ModelGradients)) {
        visit(&self.gradients);
    }
}

impl<M> Deref for PreparedModel<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.model
    }
}
