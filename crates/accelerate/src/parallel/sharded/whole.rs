//! Parameters as they were before they were cut: to be looked at, changed, saved and loaded.

use std::collections::HashMap;

use accelerate_torch::{ProcessGroup, autograd, storage};
use tch::{Device, Tensor};

use super::engine::{Engine, ROOT, State};
use super::flat::{Flat, bytes, length, part};
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
    /// whole storage, which is on disk where anything of the model is and `keeps` says so.
    ///
    /// # Collective
    /// Every rank calls this. An error of `visit` leaves other ranks waiting: let it fail for nothing
    /// that is not the same on all.
    pub(crate) fn visit_whole(
        &self,
        keeps: bool,
        visit: impl FnMut(usize, Tensor) -> Result<()>,
    ) -> Result<()> {
        let site = Site::Model(self.class);
        self.state.counted("whole weights", site, |_| {
            self.engine.visit_whole(keeps, visit)
        })
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
            // A whole one is where the unit computes.
            let options = match is_whole {
                true => (flat.kinds.compute, flat.device()),
                false => (flat.kinds.master, parameter.device()),
            };
            let mut gradient = Tensor::f_zeros(&shape[..], options)?;
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
            .try_for_each(|flat| flat.dismiss(keep, rank))?;
        // What ranks did with the parameters need not be the same: all gather again.
        state.forget_whole()
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
        self.visit_whole(keeps, |parameter, whole| {
            if keeps {
                found.insert(parameter, whole);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Hands out every parameter's whole value, of one storage after another, with the identity of its
    /// tensor.
    fn visit_whole(
        &self,
        keeps: bool,
        mut visit: impl FnMut(usize, Tensor) -> Result<()>,
    ) -> Result<()> {
        let state = self.lock();
        // A rank that cannot keep what it gets still brings its part to the others.
        let mut done: Result<()> = Ok(());
        for flat in state.units.iter().flat_map(|unit| &unit.flats) {
            let keeps = keeps && done.is_ok();
            let whole = flat.gathered(&flat.shard, &self.groups.gather, keeps)?;
            done = done.and_then(|()| {
                for (member, view) in flat.members.iter().zip(flat.cut(&whole?)?) {
                    visit(storage::identity(&member.parameter), view)?;
                }
                Ok(())
            });
        }
        done
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

    /// Drops everything that is whole.
    pub(super) fn release_all(&mut self) -> Result<()> {
        for unit in ROOT..self.units.len() {
            self.release(unit)?;
        }
        Ok(())
    }
}

impl Flat {
    /// The shards of all ranks that are laid out as this one's, one behind the other, where the unit
    /// computes. What a rank `keeps` is on disk, if anything of the storage is.
    ///
    /// # Collective
    /// The ranks of `group`, which hold one copy, call this.
    ///
    /// # Errors
    /// The inner one is of this rank alone: the others have what it brought.
    pub(super) fn gathered(
        &self,
        shard: &Tensor,
        group: &ProcessGroup,
        keeps: bool,
    ) -> Result<Result<Tensor>> {
        let kind = shard.f_kind()?;
        let spill = self.homes.spill.as_ref();
        let spill = spill.filter(|_| keeps && self.device() == Device::Cpu);
        let count = length(self.layout.whole());
        let in_file = spill.map(|folder| -> Result<Tensor> {
            let bytes = bytes(self.layout.whole(), kind);
            let file = folder.file("whole tensors to be saved", bytes)?;
            Ok(file.tensor(0, kind, &[count])?)
        });
        let (whole, kept) = match in_file.transpose() {
            Ok(Some(whole)) => (whole, Ok(())),
            Ok(None) => (Tensor::f_empty([count], (kind, self.device()))?, Ok(())),
            Err(error) => (Tensor::f_empty([count], (kind, self.device()))?, Err(error)),
        };
        if self.layout.whole() > 0 {
            let own = shard.f_to_device(self.device())?;
            group.exchange_all_gather_async(&whole, &own)?.wait()?;
        }
        let kept = kept.and_then(|()| self.homes.parameters.forget(shard));
        let kept = kept.and_then(|()| match spill {
            Some(folder) => folder.write_back(&[whole.shallow_clone()]),
            None => Ok(()),
        });
        Ok(kept.map(|()| whole))
    }

    /// The place of a parameter among these, by its tensor's identity.
    fn place_of(&self, wanted: usize) -> Option<usize> {
        let mut members = self.members.iter();
        members.position(|member| storage::identity(&member.parameter) == wanted)
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
        let whole = self.gathered(&self.shard, group, false)??;
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
            self.homes.parameters.write_back(&self.shard)?;
        }
        if let Some(gradients) = &self.gradients {
            gradients.drop_foreign(&self.members)?;
        }
        self.show_slices()
    }
}
