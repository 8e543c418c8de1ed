//! A model and its optimizer as DeepSpeed's folders have them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::rc::Rc;

use accelerate_formats::zero::{ZeroCut, ZeroPartition};
use accelerate_plan::parallel::{Clipping, Sharded};
use accelerate_torch::storage;
use tch::Kind;

use super::states::States;
use crate::Error;
use crate::nn::all_parameters;
use crate::optim::Optimizer;
use crate::parallel::{Kept, ShardedModel};
use crate::registry::ModelHandle;

/// A parameter under the first of its names.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
    /// The identity of its tensor.
    pub(super) identity: usize,
    pub(super) kept: Kept,
}

impl Named {
    /// How many numbers the whole has.
    pub(super) fn len(&self) -> usize {
        self.kept.shape.iter().product()
    }
}

/// A model in shards with the optimizer that trains it and nothing else.
pub(crate) struct Engine {
    pub(super) model: Rc<ModelHandle>,
    pub(super) sharded: Rc<ShardedModel>,
    pub(super) optimizer: Rc<RefCell<dyn Optimizer>>,
    /// The parameters of each group of the optimizer, in its order.
    pub(super) groups: Vec<Vec<Named>>,
    /// The parameters that are in no group.
    pub(super) frozen: Vec<Named>,
    /// Second names of tied parameters, each with the first.
    pub(super) aliases: Vec<(String, String)>,
    pub(super) states: States,
}

/// Why a model and its optimizer are not in such a folder.
pub(super) enum Unfit {
    /// It could not hold them.
    Because(String),
    /// Nobody knows.
    Failed(Error),
}

impl From<Error> for Unfit {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<tch::TchError> for Unfit {
    fn from(error: tch::TchError) -> Self {
        Self::Failed(error.into())
    }
}

fn unfit(reason: impl Into<String>) -> Unfit {
    Unfit::Because(reason.into())
}

impl Engine {
    pub(super) fn new(
        model: &Rc<ModelHandle>,
        optimizer: &Rc<RefCell<dyn Optimizer>>,
    ) -> Result<Self, Unfit> {
        let sharded = model.gradients().sharded();
        let sharded = sharded.filter(|sharded| sharded.saves_as_deepspeed());
        let sharded = sharded.ok_or_else(|| unfit("a model is not in shards"))?;
        let mut kept = sharded.kept();
        let (mut order, mut names, mut aliases) = (Vec::new(), HashMap::new(), Vec::new());
        for (name, parameter) in all_parameters(&**model) {
            let identity = parameter.identity();
            match names.get(&identity) {
                Some(first) => aliases.push((name, String::clone(first))),
                None => {
                    order.push(identity);
                    names.insert(identity, name);
                }
            }
        }
        let mut named = |identity: usize| -> Result<Named, Unfit> {
            let own = names.remove(&identity).zip(kept.remove(&identity));
            let (name, kept) = own.ok_or_else(|| unfit(OTHERS))?;
            Ok(Named {
                name,
                identity,
                kept,
            })
        };
        let trains = optimizer.borrow();
        let mut groups = Vec::new();
        for number in 0..trains.groups().len() {
            let parameters = trains.groups().parameters(number).unwrap_or_default();
            let own = parameters.iter().map(storage::identity);
            let group: Vec<Named> = own.map(&mut named).collect::<Result<_, Unfit>>()?;
            for parameter in &group {
                check_type(parameter)?;
            }
            groups.push(group);
        }
        let trained: Vec<usize> = groups.iter().flatten().map(|one| one.identity).collect();
        order.retain(|identity| !trained.contains(identity));
        let frozen: Vec<Named> = order
            .into_iter()
            .map(&mut named)
            .collect::<Result<_, Unfit>>()?;
        let states = States::of(&*trains, &groups)?;
        Ok(Self {
            model: Rc::clone(model),
            sharded: Rc::clone(sharded),
            optimizer: Rc::clone(optimizer),
            groups,
            frozen,
            aliases,
            states,
        })
    }

    /// The stage of ZeRO.
    pub(super) fn stage(&self) -> u8 {
        match self.sharded.plan().sharded {
            Sharded::Nothing | Sharded::OptimizerState => 1,
            Sharded::Gradients => 2,
            Sharded::Parameters => 3,
        }
    }

    /// This rank's place among those that hold one copy of the model.
    pub(super) fn rank(&self) -> usize {
        self.sharded.place().0
    }

    /// How many ranks hold one copy.
    pub(super) fn ranks(&self) -> NonZeroUsize {
        NonZeroUsize::new(self.sharded.place().1).unwrap_or(NonZeroUsize::MIN)
    }

    /// What this rank keeps of each group in such a folder.
    pub(super) fn partitions(&self) -> Vec<ZeroPartition> {
        let cut = match self.stage() {
            3 => ZeroCut::Parameter,
            _ => ZeroCut::Group,
        };
        let groups = self.groups.iter().map(|group| {
            let lengths: Vec<usize> = group.iter().map(Named::len).collect();
            cut.partition(&lengths, self.ranks(), self.rank())
        });
        groups.collect()
    }

    /// Whether the model computes in bfloat16.
    pub(super) fn is_bf16(&self) -> bool {
        self.sharded.compute_kind(Kind::Float) == Kind::BFloat16
    }

    /// The largest norm of gradients; 0 where they are not clipped.
    pub(super) fn clipping(&self) -> f64 {
        match self.sharded.plan().clipping {
            Clipping::Norm(limit) => limit,
            Clipping::ByProgram | Clipping::Never => 0.0,
        }
    }
}

const OTHERS: &str = "the parameters of a model and those of the optimizer at its place are not the \
                      same, or not all in shards";

/// Such folders have weights in float32.
fn check_type(parameter: &Named) -> Result<(), Unfit> {
    match parameter.kept.values.f_kind()? {
        Kind::Float | Kind::Half | Kind::BFloat16 => Ok(()),
        other => Err(unfit(format!(
            "`{}` is kept in {other:?}, which float32 cannot hold",
            parameter.name
        ))),
    }
}
