//! Parameters as they were before they were cut: to be looked at, changed, saved and loaded.

use std::collections::HashMap;

use accelerate_torch::{ProcessGroup, autograd, storage};
use tch::Tensor;

use super::engine::{Engine, ROOT, State};
use super::flat::{Flat, length, part};
use super::groups::Groups;
use super::model::ShardedModel;
use crate::checkpoint::StateDict;
use crate::collectives::Site;
use crate::nn::{Module, all_state};
use crate::{Error, Result};

impl ShardedModel {
    /// Runs `run` while every parameter is whole on every rank, in the type in which it is kept.
    ///
    /// With `keep_changes`, what `run` made of them stays, where it was successful: each rank keeps
    /// its own part, so all must make the same of them.
    ///
    /// # Collective
    /// Every rank calls this. Inside, the model computes without further exchange.
    ///
    /// # Errors
    /// Those of `run`; [`Error::Argument`] inside of another such call or of a backward pass, and for a
    /// backward pass inside of this, whose gradients would have no shard to go to.
    ///
    /// # Source
    /// `FullyShardedDataParallel.summon_full_params`.
    pub fn with_whole_parameters<T>(
        &self,
        keep_changes: bool,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let site = Site::Model(self.class);
        let mut summoned = self
            .state
            .counted("whole parameters", site, |_| Summoned::new(&self.engine))?;
        let value = run()?;
        summoned.keep_changes = keep_changes;
        summoned.end()?;
        Ok(value)
    }

    /// The weights by name as they were before they were cut, on the ranks that `keeps` them; others
    /// get none, and need memory for no more than one storage.
    ///
    /// # Collective
    /// Every rank calls this.
    pub(crate) fn whole_state(&self, module: &dyn Module, keeps: bool) -> Result<StateDict> {
        let site = Site::Model(self.class);
        let whole = self
            .state
            .counted("whole weights", site, |_| self.engine.whole_values(keeps))?;
        if !keeps {
            return Ok(StateDict::new());
        }
        all_state(module)
            .into_iter()
            .map(
                |(name, tensor)| match whole.get(&storage::identity(tensor)) {
                    Some(whole) => Ok((name, whole.shallow_clone())),
                    None => Ok((name, tensor.f_detach()?)),
                },
            )
            .collect()
    }

    /// Whole weights in the types in which they are computed with. What is one tensor stays one.
    pub(crate) fn as_computed(&self, weights: StateDict) -> Result<StateDict> {
        let mut cast: HashMap<usize, Tensor> = HashMap::new();
        let weights = weights.into_iter().map(|(name, tensor)| {
            let own = storage::identity(&tensor);
            let known = cast.get(&own).map(Tensor::shallow_clone);
            let computed = match known {
                Some(known) => known,
                None => tensor.f_to_kind(self.compute_kind(tensor.f_kind()?))?,
            };
            cast.insert(own, computed.shallow_clone());
            Ok((name, computed))
        });
        weights.collect()
    }

    /// Hands out every parameter's whole value in the type in which it is kept, with the identity of
    /// its tensor. Memory is needed for one storage at a time; what `visit` keeps of a value keeps the
    /// whole storage.
    ///
    /// # Collective
    /// Every rank calls this. An error of `visit` leaves other ranks waiting: let it fail for nothing
    /// that is not the same on all.
    pub(crate) fn visit_whole(&self, visit: impl FnMut(usize, Tensor) -> Result<()>) -> Result<()> {
        let site = Site::Model(self.class);
        self.state
            .counted("whole weights", site, |_| self.engine.visit_whole(visit))
    }

    /// This rank's place among those that hold one copy of the model, and how many these are.
    pub(crate) fn place(&self) -> (usize, usize) {
        let groups = &self.engine.groups;
        (groups.rank(), groups.shards())
    }

    /// Whether this is what trains `module`.
    pub(crate) fn holds(&self, module: &dyn Module) -> bool {
        let wanted: Vec<usize> = module
            .parameters()
            .into_iter()
            .map(|parameter| parameter.identity())
            .collect();
        let state = self.engine.lock();
        let mut members = state.members();
        members.any(|member| wanted.contains(&storage::identity(&member.parameter)))
    }

    /// Takes a gradient that was saved in the middle of an accumulation, if the parameter is one of
    /// these; whether it was.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] for one that fits neither the parameter nor this rank's part of it.
    pub(crate) fn restore_gradient(
        &self,
        name: &str,
        parameter: &Tensor,
        saved: &Tensor,
    ) -> Result<bool> {
        let wanted = storage::identity(parameter);
        let mut state = self.engine.lock();
        for flat in state.units.iter_mut().flat_map(|unit| &mut unit.flats) {
            let mut members = flat.members.iter();
            let own = members.find(|member| storage::identity(&member.parameter) == wanted);
            let Some(member) = own else { continue };
            let (shape, kept) = (saved.size(), member.slice.size());
            let is_whole = shape == member.shape;
            if !is_whole && shape != kept {
                return Err(Error::StateMismatch {
                    target: "gradients",
                    problems: vec![format!(
                        "`{name}`: expected {:?} or {kept:?}, found {shape:?}",
                        member.shape
                    )],
                });
            }
            let kind = if is_whole {
                flat.kinds.compute
            } else {
                flat.kinds.master
            };
            let mut gradient = Tensor::f_zeros(&shape[..], (kind, parameter.device()))?;
            tch::no_grad(|| gradient.f_copy_(saved))?;
            autograd::set_grad(parameter, Some(&gradient))?;
            if let Some(gradients) = flat.gradients.as_mut().filter(|_| is_whole) {
                gradients.accumulate_from();
            }
            return Ok(true);
        }
        Ok(false)
    }
}

impl ShardedModel {
    /// What this rank keeps of the sum of a parameter's gradients over ranks, while the parameter shows a
    /// whole gradient of this rank that is still to be added to it.
    pub(crate) fn hidden_gradient(&self, parameter: &Tensor) -> Option<Tensor> {
        let wanted = storage::identity(parameter);
        let state = self.engine.lock();
        state
            .units
            .iter()
            .flat_map(|unit| &unit.flats)
            .find_map(|flat| {
                let index = flat.place_of(wanted)?;
                let hidden = flat.gradients.as_ref()?.hidden(index)?;
                Some(hidden.shallow_clone())
            })
    }

    /// Takes what [`hidden_gradient`](Self::hidden_gradient) answered, behind all
    /// [whole gradients](Self::restore_gradient); whether the parameter is one of these.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] for one that does not fit what this rank keeps.
    pub(crate) fn restore_hidden_gradient(
        &self,
        name: &str,
        parameter: &Tensor,
        saved: &Tensor,
    ) -> Result<bool> {
        let wanted = storage::identity(parameter);
        let mut state = self.engine.lock();
        for flat in state.units.iter_mut().flat_map(|unit| &mut unit.flats) {
            let Some(index) = flat.place_of(wanted) else {
                continue;
            };
            let kept = flat.members.get(index).map(|member| member.slice.size());
            let (Some(gradients), Some(kept)) = (&mut flat.gradients, kept) else {
                return Ok(false);
            };
            if saved.size() != kept {
                return Err(Error::StateMismatch {
                    target: "gradients",
                    problems: vec![format!(
                        "`{name}`: expected {kept:?}, found {:?}",
                        saved.size()
                    )],
                });
            }
            gradients.restore_hidden(index, saved)?;
            return Ok(true);
        }
        Ok(false)
    }
}

/// Parameters that are whole until this ends.
struct Summoned<'e> {
    engine: &'e Engine,
    keep_changes: bool,
    is_over: bool,
}

impl<'e> Summoned<'e> {
    fn new(engine: &'e Engine) -> Result<Self> {
        let mut state = engine.lock();
        if state.is_summoned || state.in_backward {
            return Err(Error::Argument {
                operation: "with_whole_parameters",
                expected: "a call outside of another one and of backward passes".to_owned(),
                found: "one inside".to_owned(),
            });
        }
        state.release_all()?;
        state.is_summoned = true;
        let summoned = Self {
            engine,
            keep_changes: false,
            is_over: false,
        };
        let group = &engine.groups.gather;
        let made = state.flats_mut().try_for_each(|flat| flat.summon(group));
        drop(state);
        // On an error this gives back what is there.
        made.map(|()| summoned)
    }

    fn end(mut self) -> Result<()> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        let mut state = self.engine.lock();
        state.is_summoned = false;
        state.is_empty &= !self.keep_changes;
        let (keep, rank) = (self.keep_changes, self.engine.groups.rank());
        state
            .flats_mut()
            .try_for_each(|flat| flat.dismiss(keep, rank))
    }
}

impl Drop for Summoned<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            tracing::warn!(%error, "parameters could not be cut into shards again");
        }
    }
}

impl Engine {
    /// Every parameter's whole value by the identity of its tensor, where it is kept.
    fn whole_values(&self, keeps: bool) -> Result<HashMap<usize, Tensor>> {
        let mut found = HashMap::new();
        self.visit_whole(|parameter, whole| {
            if keeps {
                found.insert(parameter, whole);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Hands out every parameter's whole value, of one storage after another, with the identity of its
    /// tensor.
    fn visit_whole(&self, mut visit: impl FnMut(usize, Tensor) -> Result<()>) -> Result<()> {
        let state = self.lock();
        for flat in state.units.iter().flat_map(|unit| &unit.flats) {
            let whole = flat.gathered(&flat.shard, &self.groups)?;
            for (member, view) in flat.members.iter().zip(flat.cut(&whole)?) {
                visit(storage::identity(&member.parameter), view)?;
            }
        }
        Ok(())
    }
}

impl State {
    pub(super) fn members(&self) -> impl Iterator<Item = &super::flat::Member> {
        let flats = self.units.iter().flat_map(|unit| &unit.flats);
        flats.flat_map(|flat| &flat.members)
    }

    fn flats_mut(&mut self) -> impl Iterator<Item = &mut Flat> {
        self.units.iter_mut().flat_map(|unit| &mut unit.flats)
    }

    pub(super) fn release_all(&mut self) -> Result<()> {
        for unit in ROOT..self.units.len() {
            self.release(unit)?;
        }
        Ok(())
    }
}

impl Flat {
    /// The shards of all ranks that are laid out as this one's, one behind the other.
    ///
    /// # Collective
    /// The ranks that hold one copy call this.
    pub(super) fn gathered(&self, shard: &Tensor, groups: &Groups) -> Result<Tensor> {
        let whole = self.room(shard)?;
        if self.layout.whole() > 0 {
            let work = groups.gather.exchange_all_gather_async(&whole, shard)?;
            work.wait()?;
        }
        Ok(whole)
    }

    /// The place of a parameter among these, by its tensor's identity.
    fn place_of(&self, wanted: usize) -> Option<usize> {
        let mut members = self.members.iter();
        members.position(|member| storage::identity(&member.parameter) == wanted)
    }

    fn room(&self, shard: &Tensor) -> Result<Tensor> {
        let options = (shard.f_kind()?, shard.device());
        Ok(Tensor::f_empty([length(self.layout.whole())], options)?)
    }

    /// The parameters in a whole that is laid out as this one's.
    pub(super) fn cut(&self, whole: &Tensor) -> Result<Vec<Tensor>> {
        let places = self.members.iter().zip(self.layout.places());
        let views = places.map(|(member, place)| {
            let flat = part(whole, place.start, place.length)?;
            Ok(flat.f_view(&member.shape[..])?)
        });
        views.collect()
    }

    fn summon(&mut self, group: &ProcessGroup) -> Result<()> {
        let whole = self.room(&self.shard)?;
        if self.layout.whole() > 0 {
            group
                .exchange_all_gather_async(&whole, &self.shard)?
                .wait()?;
        }
        let views = self.cut(&whole)?;
        self.show(&views)?;
        self.summoned = Some(whole);
        Ok(())
    }

    fn dismiss(&mut self, keep_changes: bool, rank: usize) -> Result<()> {
        let Some(whole) = self.summoned.take() else {
            return Ok(());
        };
        if keep_changes {
            let own = part(&whole, rank * self.layout.shard(), self.layout.shard())?;
            tch::no_grad(|| self.shard.f_copy_(&own))?;
        }
        if let Some(gradients) = &self.gradients {
            gradients.drop_foreign(&self.members)?;
        }
        self.show_slices()
    }
}
