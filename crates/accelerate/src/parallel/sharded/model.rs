//! A model that is trained in shards.

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use accelerate_plan::env::{self, Environment};
use accelerate_plan::parallel::{
    AfterForward, Cast, FloatType, InputCast, ParallelPlan, Precision, Quantised, Sharded as What,
};
use accelerate_torch::{ProcessGroup, ReduceOp, autograd, memory, storage};
use tch::{Device, Kind, Tensor};

use super::engine::{Engine, ROOT};
use super::flat::{Flat, FlatOptions, Kinds, has_values};
use super::groups::Groups;
use super::hooks::{Casts, UnitHook};
use super::support;
use super::unit::{Timing, Unit, divisors};
use super::units::{UnitPlan, units};
use crate::collectives::{Call, Site};
use crate::nn::{Module, require_values};
use crate::parallel::ddp::agreement;
use crate::state::PartialState;
use crate::{Error, Result};

/// A model of which each rank keeps a part: its optimizer state, gradients and, between uses, its
/// parameters.
///
/// The modules that the plan's wrap policy names are units; the root takes what is in none. A unit's
/// parameters are gathered into one storage before its module computes, dropped after, gathered
/// again for its backward pass, and its gradients are reduced and scattered as soon as all of them
/// are there, while the next ones are computed. Between steps each parameter's tensor is the vector
/// of what this rank keeps of it, and so is its gradient: what updates every number by itself needs
/// to know nothing of it.
///
/// A parameter that takes no part in a pass counts as one whose gradient is zero. So does all that the
/// loss of one rank has nothing to do with while that of another has.
///
/// What has been gathered is used again as long as nobody changed it, where the plan keeps parameters
/// whole: in evaluation and between accumulated batches nothing is sent. So a change in place of a
/// parameter is one that every rank makes.
///
/// # Source
/// `torch.distributed.fsdp.FullyShardedDataParallel` with `use_orig_params`, and the stages of
/// DeepSpeed's ZeRO. Differs: storages are divided into shards at multiples of 64 elements, so that
/// an optimizer computes the same bits as on the whole parameter.
pub struct ShardedModel {
    pub(super) engine: Arc<Engine>,
    pub(super) state: PartialState,
    /// The class of the model.
    pub(super) class: &'static str,
    plan: ParallelPlan,
}

impl ShardedModel {
    /// Cuts `module` into shards as the plan says, with rank 0's values.
    ///
    /// Memory is needed for one unit at a time besides what is there: a model in CPU memory goes to the
    /// device unit by unit. Ranks other than 0 may bring a
    /// model whose parameters have no memory; where rank 0 does too, values are loaded before the first
    /// forward pass.
    ///
    /// # Collective
    /// Every rank of the job calls this with the same model and plan.
    ///
    /// # Errors
    /// [`Error::Argument`] for a process by itself, or a plan that asks for what this version cannot
    /// do; [`Error::Sharding`] for a class to wrap that the model does not have;
    /// [`Error::NothingToTrain`], [`Error::ModelsDiffer`] and [`Error::OnMeta`].
    pub fn new(module: &dyn Module, state: &PartialState, plan: &ParallelPlan) -> Result<Rc<Self>> {
        if module.parameters().iter().all(|one| !one.requires_grad()) {
            return Err(Error::NothingToTrain {
                class: module.class_name(),
            });
        }
        Self::for_evaluation(module, state, plan)
    }

    /// As [`new`](Self::new), of a model that need not have anything to train.
    ///
    /// # Collective
    /// Every rank of the job calls this with the same model and plan.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn for_evaluation(
        module: &dyn Module,
        state: &PartialState,
        plan: &ParallelPlan,
    ) -> Result<Rc<Self>> {
        support::check(plan, state.device())?;
        let site = Site::Model(module.class_name());
        state.counted("prepare", site, |call| {
            Self::prepare(module, state, plan, call)
        })
    }

    fn prepare(
        module: &dyn Module,
        state: &PartialState,
        plan: &ParallelPlan,
        call: Call,
    ) -> Result<Rc<Self>> {
        let group = state.process_group().ok_or_else(|| Error::Argument {
            operation: "sharding",
            expected: "a job of several processes".to_owned(),
            found: "a process by itself".to_owned(),
        })?;
        require_values(module, "sharding")?;
        let wanted = units(module, plan)?;
        let device = state.device();
        if let Some(first) = module.parameters().first() {
            // From where it lies, ranks tell each other what they brought.
            first.to_device(device)?;
        }
        same_model(group, module, call)?;
        let groups = Groups::new(group, plan.mesh, node_size(plan, group, state.device())?)?;
        let is_empty = is_empty_on_rank_0(module, group)?;
        let names: Vec<String> = wanted.iter().map(|unit| unit.name.clone()).collect();
        bring_what_stays_whole(module, &wanted, device)?;
        let mut made = Vec::with_capacity(wanted.len());
        for unit in wanted {
            made.push(make_unit(unit, plan, &groups, device)?);
        }
        // What was whole will not come again.
        let _gave = memory::give_back_freed_memory();
        broadcast_buffers(module, group)?;
        if let Cast::To(float) = plan.precision.buffers {
            cast_buffers(module, kind(float))?;
        }
        let engine = Engine::new(made, groups, Timing::of(plan))?;
        for (unit, name) in names.iter().enumerate() {
            let casts = casts(&plan.precision, unit == ROOT);
            let hook = UnitHook::new(&engine, unit, module.class_name(), state, casts);
            let _stays = module.get_submodule(name)?.add_hook(Rc::new(hook))?;
        }
        engine.lock().is_empty = is_empty;
        Ok(Rc::new(Self {
            engine,
            state: state.clone(),
            class: module.class_name(),
            plan: plan.clone(),
        }))
    }

    /// The plan that is carried out.
    #[must_use]
    pub fn plan(&self) -> &ParallelPlan {
        &self.plan
    }

    /// The dotted names of the modules that are units; the root's is empty.
    #[must_use]
    pub fn units(&self) -> Vec<String> {
        let state = self.engine.lock();
        state.units.iter().map(|unit| unit.name.clone()).collect()
    }

    /// Turns the reduction of gradients on or off for the backward passes that follow; answers what
    /// it was. While it is off, whole gradients are added up on each rank, unless the plan adds shards up.
    pub fn set_sync_gradients(&self, sync: bool) -> bool {
        self.engine.set_syncs(sync)
    }

    /// Whether the next backward pass reduces gradients.
    #[must_use]
    pub fn syncs_gradients(&self) -> bool {
        self.engine.syncs()
    }

    /// Sets a flag on every rank that is set on any: each sees only a part of the gradients.
    pub(crate) fn share_overflow(&self, found: &Tensor) -> Result<()> {
        let site = Site::Model(self.class);
        self.state.counted("overflow", site, |_| {
            Ok(self.engine.groups.gather.all_reduce(found, ReduceOp::Max)?)
        })
    }

    /// The type in which a trained parameter is computed with that is kept in another.
    pub(crate) fn compute_kind(&self, kept: Kind) -> Kind {
        kinds(&self.plan.precision, kept, true).compute
    }

    /// Values were loaded into a model that may have had none.
    pub(crate) fn note_values(&self) -> Result<()> {
        self.engine.lock().is_empty = false;
        self.engine.rest()
    }

    /// Leaves nothing but shards, with their gradients, as an optimizer has to find them: a forward
    /// pass that no backward pass followed may have left units whole.
    pub(crate) fn rest(&self) -> Result<()> {
        self.engine.rest()
    }

    pub(crate) fn join_backward(&self) -> Result<()> {
        self.engine.join_backward()
    }

    pub(crate) fn is_agreed(&self) -> Result<bool> {
        self.engine.is_agreed()
    }

    pub(crate) fn finish_backward(&self) -> Result<()> {
        self.engine.finish_backward()
    }

    pub(crate) fn abandon_backward(&self) {
        self.engine.abandon_backward();
    }
}

impl fmt::Debug for ShardedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedModel")
            .field("class", &self.class)
            .field("units", &self.units())
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

/// Checks that all ranks brought the same model.
fn same_model(group: &ProcessGroup, module: &dyn Module, call: Call) -> Result<()> {
    let all: Vec<(String, Tensor)> = module
        .named_parameters()
        .into_iter()
        .map(|(name, parameter)| (name, parameter.tensor().shallow_clone()))
        .collect();
    agreement::same_model(group, module, &all, call)
}

/// Whether rank 0, whose values all ranks take, has parameters without memory.
fn is_empty_on_rank_0(module: &dyn Module, group: &ProcessGroup) -> Result<bool> {
    let mut is_empty = false;
    for parameter in module.parameters() {
        is_empty |= !has_values(parameter.tensor())?;
    }
    let device = module
        .parameters()
        .first()
        .map_or(Device::Cpu, |first| first.tensor().device());
    let flag = Tensor::f_full([1], f64::from(u8::from(is_empty)), (Kind::Float, device))?;
    group.broadcast(&flag, 0)?;
    Ok(flag.f_double_value(&[0])? > 0.0)
}

/// How many ranks of a copy make a machine, where something is exchanged among them: as the plan says, or
/// for gradients that travel as integers as many as rank 0 has on its own, if that divides them.
fn node_size(
    plan: &ParallelPlan,
    group: &ProcessGroup,
    device: Device,
) -> Result<Option<NonZeroUsize>> {
    if let (What::Parameters, AfterForward::ReleaseTo(size)) = (plan.sharded, plan.after_forward) {
        return Ok(Some(size));
    }
    if plan.reduction.gradients == Quantised::No {
        return Ok(None);
    }
    let told = Environment::from_process().get(&env::LOCAL_WORLD_SIZE)?;
    let told = told.map_or(0, |size| i64::try_from(size.get()).unwrap_or(0));
    let size = Tensor::from_slice(&[told]).f_to_device(device)?;
    group.broadcast(&size, 0)?;
    let size = usize::try_from(size.f_int64_value(&[0])?).unwrap_or(0);
    let ranks = plan.mesh.shard.get();
    let is_between = size > 1 && size < ranks && ranks.is_multiple_of(size);
    Ok(NonZeroUsize::new(size).filter(|_| is_between))
}

/// Into how large a buffer buffers are packed when rank 0 sends them.
const BROADCAST_BYTES: usize = 250 << 20;

fn broadcast_buffers(module: &dyn Module, group: &ProcessGroup) -> Result<()> {
    let buffers: Vec<Tensor> = module
        .named_buffers()
        .into_iter()
        .map(|(_, buffer)| buffer.tensor().shallow_clone())
        .collect();
    if buffers.is_empty() {
        return Ok(());
    }
    Ok(group.broadcast_coalesced(&buffers, BROADCAST_BYTES, 0)?)
}

fn cast_buffers(module: &dyn Module, kind: Kind) -> Result<()> {
    for (_, buffer) in module.named_buffers() {
        if float_type(buffer.tensor().f_kind()?).is_some() {
            buffer.to_kind(kind)?;
        }
    }
    Ok(())
}

/// What a unit's module gets and gives in another type.
fn casts(precision: &Precision, is_root: bool) -> Casts {
    let kind_of = |cast: Cast| match cast {
        Cast::AsIs => None,
        Cast::To(float) => Some(kind(float)),
    };
    let casts_inputs = match precision.inputs {
        InputCast::Nobody => false,
        InputCast::Root => is_root,
        InputCast::EveryUnit => true,
    };
    Casts {
        inputs: kind_of(precision.parameters).filter(|_| casts_inputs),
        outputs: kind_of(precision.outputs).filter(|_| is_root),
    }
}

/// Parameters that can lie in one storage.
type Alike = ((bool, Kind, Device), Vec<Tensor>);

/// Cuts one unit. Only now its parameters go to the device: the whole model may have no room there.
fn make_unit(unit: UnitPlan, plan: &ParallelPlan, groups: &Groups, device: Device) -> Result<Unit> {
    let mut storages: Vec<Alike> = Vec::new();
    for (_, tensor) in unit.parameters {
        bring(&tensor, device)?;
        let key = (tensor.requires_grad(), tensor.f_kind()?, tensor.device());
        match storages.iter_mut().find(|(other, _)| *other == key) {
            Some((_, members)) => members.push(tensor),
            None => storages.push((key, vec![tensor])),
        }
    }
    let mut flats = Vec::with_capacity(storages.len());
    for ((is_trained, loaded, _), members) in storages {
        let kinds = kinds(&plan.precision, loaded, is_trained);
        let options = FlatOptions {
            divisors: is_trained.then(|| divisors(plan, groups.all.size(), kinds.reduce)),
            keeps_memory: plan.sharded == What::OptimizerState,
            keeps_values: plan.sharded < What::Parameters,
            weights: plan.weights,
            gradients: plan.reduction.gradients,
            has_second: matches!(plan.after_forward, AfterForward::ReleaseTo(_)),
        };
        flats.push(Flat::new(members, kinds, groups, options)?);
    }
    Ok(Unit::new(unit.name, flats, plan.keep_up_to))
}

/// Lets buffers, and parameters that are in no unit, lie on the device.
fn bring_what_stays_whole(module: &dyn Module, cut: &[UnitPlan], device: Device) -> Result<()> {
    let cut = cut.iter().flat_map(|unit| &unit.parameters);
    let cut: HashSet<usize> = cut.map(|(_, tensor)| storage::identity(tensor)).collect();
    for parameter in module.parameters() {
        if !cut.contains(&parameter.identity()) {
            parameter.to_device(device)?;
        }
    }
    for (_, buffer) in module.named_buffers() {
        buffer.to_device(device)?;
    }
    Ok(())
}

/// Lets a parameter lie on the device, in every handle on it. A gradient, which is of no step to come,
/// goes.
fn bring(parameter: &Tensor, device: Device) -> Result<()> {
    if parameter.device() == device {
        return Ok(());
    }
    let there = tch::no_grad(|| parameter.f_to_device(device))?;
    autograd::set_grad(parameter, None)?;
    Ok(storage::alias(parameter, &there)?)
}

/// The types of parameters that were loaded in one; what is not one of the three usual
/// floating-point types stays as it is.
fn kinds(precision: &Precision, loaded: Kind, is_trained: bool) -> Kinds {
    let Some(known) = float_type(loaded) else {
        return Kinds {
            master: loaded,
            compute: loaded,
            reduce: loaded,
        };
    };
    let master = match is_trained {
        true => precision.master(known),
        false => known,
    };
    let compute = precision.parameters.of(master);
    let reduce = match precision.reduction {
        Cast::AsIs => compute,
        Cast::To(kind) => kind,
    };
    Kinds {
        master: kind(master),
        compute: kind(compute),
        reduce: kind(reduce),
    }
}

fn float_type(kind: Kind) -> Option<FloatType> {
    match kind {
        Kind::Float => Some(FloatType::Float32),
        Kind::Half => Some(FloatType::Float16),
        Kind::BFloat16 => Some(FloatType::BFloat16),
        _ => None,
    }
}

fn kind(float: FloatType) -> Kind {
    match float {
        FloatType::Float32 => Kind::Float,
        FloatType::Float16 => Kind::Half,
        FloatType::BFloat16 => Kind::BFloat16,
    }
}
