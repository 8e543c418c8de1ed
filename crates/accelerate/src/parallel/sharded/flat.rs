//! Parameters in one storage, of which each rank keeps a shard.

use accelerate_plan::parallel::Quantised;
use accelerate_torch::profiler::ProfileRange;
use accelerate_torch::{Work, storage};
use tch::{Device, Kind, Tensor};

use super::blockwise::Blockwise;
use super::gradients::{Divisors, Gradients};
use super::groups::Groups;
use super::layout::{Layout, Slice};
use super::offload::{Home, Homes};
use super::pool::Pool;
use super::second::Second;
use super::wire::{GradientWire, WeightWire};
use crate::Result;

/// The types of one storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds {
    /// What is kept and updated.
    pub(super) master: Kind,
    /// What is gathered and computed with.
    pub(super) compute: Kind,
    /// In which gradients are added up.
    pub(super) reduce: Kind,
}

/// Parameters of one unit that are of one type, all trained or all frozen.
///
/// A parameter's tensor is the model's and the optimizer's own, and looks at one of two places:
/// while the unit computes at its place in `whole`, else at this rank's slice of it in `shard`, a
/// vector. `whole` has memory only for the time of its use. A tensor that autograd saved looks at
/// the same storage and sees it refilled.
pub(super) struct Flat {
    pub(super) members: Vec<Member>,
    pub(super) layout: Layout,
    pub(super) kinds: Kinds,
    /// `[shard]`, in the master type, wherever its home is.
    pub(super) shard: Tensor,
    pub(super) homes: Homes,
    /// `[shard]`, in the compute type: a copy to be gathered, where one is kept.
    computed: Option<Tensor>,
    /// What was counted of changes when that was copied.
    computed_at: Option<i64>,
    /// `[whole]`, in the compute type.
    whole: Tensor,
    /// This rank's part of `whole`.
    own: Tensor,
    presence: Presence,
    /// All values in the master type, while somebody looks at them.
    pub(super) summoned: Option<Tensor>,
    /// Whether `whole` keeps its memory between steps.
    keeps_memory: bool,
    /// Whether `whole` keeps its values as long as nobody changes the shard.
    keeps_values: bool,
    /// What was counted of changes when the values in `whole` were gathered; none where they are not
    /// to be used again.
    gathered_at: Option<i64>,
    /// How parameters travel, where that is not as they are.
    wire: Option<WeightWire>,
    /// From which the backward pass gathers, where there is such.
    second: Option<Second>,
    /// None of frozen parameters.
    pub(super) gradients: Option<Gradients>,
}

/// One parameter.
pub(super) struct Member {
    /// The tensor that model and optimizer hold.
    pub(super) parameter: Tensor,
    pub(super) shape: Vec<i64>,
    /// Its place in the whole.
    view: Tensor,
    /// What this rank keeps of it, as a view of the shard.
    pub(super) slice: Tensor,
    /// Where that lies.
    pub(super) range: Slice,
}

impl Member {
    /// How many numbers the whole has.
    pub(super) fn len(&self) -> u64 {
        self.shape.iter().map(|&size| size.unsigned_abs()).product()
    }
}

/// What parameters look at.
enum Presence {
    /// Their slices.
    Sharded,
    /// Their slices, while the whole is on its way.
    Gathering(Work),
    /// The whole.
    Whole,
}

impl Flat {
    /// Takes rank 0's values of the parameters, and keeps this rank's part of them.
    ///
    /// # Collective
    /// Every rank calls this with the same parameters.
    pub(super) fn new(
        parameters: Vec<Tensor>,
        kinds: Kinds,
        groups: &Groups,
        options: FlatOptions,
    ) -> Result<Self> {
        let lengths = parameters.iter().map(Tensor::numel);
        let layout = Layout::new(lengths, groups.shards());
        let device = parameters.first().map_or(Device::Cpu, Tensor::device);
        let homes = options.homes;
        let shard = first_shard(
            &parameters,
            &layout,
            kinds.master,
            groups,
            &homes.parameters,
        )?;
        let whole = Tensor::f_empty([length(layout.whole())], (kinds.compute, device))?;
        let own = part(&whole, groups.rank() * layout.shard(), layout.shard())?;
        let computed = match &homes.computed {
            Some(home) => Some(home.room(layout.shard(), kinds.compute, device)?),
            None => None,
        };
        let slices: Vec<_> = layout.slices(groups.rank()).collect();
        let mut members = Vec::with_capacity(parameters.len());
        let places = layout.places().iter().zip(&slices);
        for (parameter, (place, slice)) in parameters.into_iter().zip(places) {
            let shape = parameter.size();
            members.push(Member {
                view: part(&whole, place.start, place.length)?.f_view(&shape[..])?,
                slice: part(&shard, slice.in_shard, slice.length)?,
                parameter,
                shape,
                range: *slice,
            });
        }
        let has_any = layout.whole() > 0;
        let code = |asked, kind| Blockwise::of(asked, kind).filter(|_| has_any);
        let gradients = match options.divisors {
            Some(divisors) => {
                let wire = match code(options.gradients, kinds.reduce) {
                    Some(code) => Some(GradientWire::new(code, &layout, groups, device)?),
                    None => None,
                };
                let place = (device, &homes.gradients);
                Some(Gradients::new(
                    &members, &layout, kinds, divisors, place, groups, wire,
                )?)
            }
            None => None,
        };
        let wire = match code(options.weights, kinds.compute) {
            Some(code) => Some(WeightWire::new(code, &layout, groups.shards(), device)?),
            None => None,
        };
        let second = match groups.node.as_ref().filter(|_| options.has_second) {
            Some(node) => Some(Second::new(&layout, kinds.compute, node, device)?),
            None => None,
        };
        storage::release(&whole)?;
        let mut flat = Self {
            members,
            layout,
            kinds,
            shard,
            homes,
            computed,
            computed_at: None,
            whole,
            own,
            presence: Presence::Sharded,
            summoned: None,
            keeps_memory: options.keeps_memory,
            keeps_values: options.keeps_values,
            gathered_at: None,
            wire,
            second,
            gradients,
        };
        flat.show_slices()?;
        Ok(flat)
    }

    /// Starts to make the parameters whole, unless they are or will be. Nothing is sent where the whole
    /// still has the values of the shards.
    ///
    /// # Collective
    /// The ranks that hold one copy call this in one order for all storages.
    pub(super) fn start_gather(&mut self, groups: &Groups, pool: &mut Pool) -> Result<()> {
        if !matches!(self.presence, Presence::Sharded) || self.layout.whole() == 0 {
            return Ok(());
        }
        let changes = self.changes()?;
        if self.gathered_at == Some(changes) {
            self.show_whole()?;
            self.presence = Presence::Whole;
            return Ok(());
        }
        let _range = ProfileRange::while_recording(|| "gather parameters".to_owned())?;
        pool.fill(&self.whole, bytes(self.layout.whole(), self.kinds.compute))?;
        self.gathered_at = None;
        let work = self.start_exchange(changes, groups, pool)?;
        self.gathered_at = Some(changes).filter(|_| self.keeps_values);
        self.presence = Presence::Gathering(work);
        Ok(())
    }

    /// Starts to bring the parts of all ranks into the whole, from where the nearest copy of them is.
    fn start_exchange(&mut self, changes: i64, groups: &Groups, pool: &mut Pool) -> Result<Work> {
        let second = self.second.as_ref().filter(|second| second.is_filled());
        if let Some((second, node)) = second.zip(groups.node.as_ref()) {
            return second.start_gather(&self.whole, node);
        }
        if let Some(wire) = &mut self.wire {
            // As precise as it is kept, also where that is elsewhere.
            let shard = self.shard.f_to_device(self.whole.device())?;
            let work = wire.start(&shard, &groups.gather, pool)?;
            self.homes.parameters.forget(&self.shard)?;
            return Ok(work);
        }
        let sent = match self.is_sent_from_home() {
            // Copied into its place while it is sent.
            true => &self.shard,
            false => {
                tch::no_grad(|| self.fetch(changes))?;
                &self.own
            }
        };
        Ok(groups.gather.exchange_all_gather_async(&self.whole, sent)?)
    }

    /// Whether the shard is as it is to be sent: in memory of the device that computes, in the type that
    /// is computed with.
    fn is_sent_from_home(&self) -> bool {
        let is_alike = self.kinds.master == self.kinds.compute;
        let is_here = self.homes.parameters.is_at(self.device(), &self.shard);
        is_alike && is_here && self.computed.is_none()
    }

    /// Counts what was changed in place of what this rank keeps, by whomever and wherever it is.
    fn changes(&self) -> Result<i64> {
        let mut count = self.shard.f_internal_version()?;
        for member in &self.members {
            count = count.wrapping_add(member.parameter.f_internal_version()?);
        }
        Ok(count)
    }

    /// Puts this rank's part into the whole, from wherever it is.
    fn fetch(&mut self, changes: i64) -> Result<()> {
        let (Some(home), Some(computed)) = (&self.homes.computed, &mut self.computed) else {
            self.own.f_copy_(&self.shard)?;
            return self.homes.parameters.forget(&self.shard);
        };
        if self.computed_at != Some(changes) {
            computed.f_copy_(&self.shard)?;
            self.homes.parameters.forget(&self.shard)?;
            self.computed_at = Some(changes);
        }
        self.own.f_copy_(computed)?;
        home.forget(computed)
    }

    /// Begins to read from disk what will be gathered, if it is there.
    pub(super) fn read_ahead(&self) -> Result<()> {
        if !matches!(self.presence, Presence::Sharded) {
            return Ok(());
        }
        let changes = Some(self.changes()?);
        let is_in_second = self.second.as_ref().is_some_and(Second::is_filled);
        if is_in_second || self.gathered_at == changes {
            return Ok(());
        }
        match (&self.homes.computed, &self.computed) {
            (Some(home), Some(computed)) if self.computed_at == changes => {
                home.read_ahead(computed)
            }
            _ => self.homes.parameters.read_ahead(&self.shard),
        }
    }

    /// Where the unit computes, wherever the shard is.
    pub(super) fn device(&self) -> Device {
        self.whole.device()
    }

    /// Waits for what [`start_gather`](Self::start_gather) began; the parameters are whole then.
    pub(super) fn finish_gather(&mut self, pool: &mut Pool) -> Result<()> {
        match std::mem::replace(&mut self.presence, Presence::Sharded) {
            Presence::Gathering(work) => {
                let _range = ProfileRange::while_recording(|| "gather parameters".to_owned())?;
                let gathered_at = self.gathered_at.take();
                work.wait()?;
                if let Some(wire) = self.wire.as_mut().filter(|wire| wire.is_under_way()) {
                    wire.finish(&self.whole, pool)?;
                }
                self.gathered_at = gathered_at;
                self.show_whole()?;
                self.presence = Presence::Whole;
            }
            other => self.presence = other,
        }
        Ok(())
    }

    /// Lets the parameters look at their slices, and gives the memory of the whole back, unless its
    /// values are to be used again.
    pub(super) fn release(&mut self, pool: &mut Pool) -> Result<()> {
        match std::mem::replace(&mut self.presence, Presence::Sharded) {
            Presence::Sharded => return Ok(()),
            Presence::Gathering(work) => {
                let gathered_at = self.gathered_at.take();
                work.wait()?;
                match self.wire.as_mut().filter(|wire| wire.is_under_way()) {
                    Some(wire) => wire.drop_room(pool)?,
                    None => self.gathered_at = gathered_at,
                }
            }
            Presence::Whole => self.show_slices()?,
        }
        if !self.keeps_memory && self.gathered_at.is_none() {
            pool.drain(&self.whole)?;
        }
        Ok(())
    }

    /// As [`release`](Self::release) behind a forward pass: keeps what the backward pass gathers from.
    pub(super) fn release_to_second(&mut self, groups: &Groups, pool: &mut Pool) -> Result<()> {
        if let (Presence::Whole, Some(second), Some(node)) =
            (&self.presence, &mut self.second, &groups.node)
            && !second.is_filled()
        {
            second.keep(&self.whole, node, pool)?;
        }
        self.release(pool)
    }

    /// Lets no gather begin from the second shards any more.
    pub(super) fn forget_second(&mut self, pool: &mut Pool) -> Result<()> {
        match &mut self.second {
            Some(second) => second.forget(pool),
            None => Ok(()),
        }
    }

    /// What was gathered or copied is not to be used again: the shard is about to change, or has.
    pub(super) fn forget_whole(&mut self, pool: &mut Pool) -> Result<()> {
        self.gathered_at = None;
        self.computed_at = None;
        if !self.keeps_memory && matches!(self.presence, Presence::Sharded) {
            pool.drain(&self.whole)?;
        }
        Ok(())
    }

    /// Drops the whole parameters, which are done with, and starts to add their gradients up.
    ///
    /// # Collective
    /// The ranks that hold one copy call this in one order for all storages.
    pub(super) fn start_reduction(&mut self, groups: &Groups, pool: &mut Pool) -> Result<()> {
        let _range = ProfileRange::while_recording(|| "reduce gradients".to_owned())?;
        if let Some(gradients) = &mut self.gradients {
            gradients.prepare_start();
        }
        self.release(pool)?;
        match &mut self.gradients {
            Some(gradients) => gradients.start(&self.members, groups, pool),
            None => Ok(()),
        }
    }

    /// Waits for what [`start_reduction`](Self::start_reduction) began.
    ///
    /// # Collective
    /// Where there are several copies, the ranks that hold one shard call this in one order.
    pub(super) fn finish_reduction(&mut self, groups: &Groups, pool: &mut Pool) -> Result<()> {
        match &mut self.gradients {
            Some(gradients) => gradients.finish(groups, pool),
            None => Ok(()),
        }
    }

    /// Lets a whole parameter keep the gradient of its slice, if there is one: until a backward pass
    /// begins, it may be dropped.
    fn show_whole(&mut self) -> Result<()> {
        for member in &self.members {
            storage::alias(&member.parameter, &member.view)?;
        }
        Ok(())
    }

    /// Lets the parameters look at other tensors of their shapes.
    pub(super) fn show(&mut self, others: &[Tensor]) -> Result<()> {
        self.hide_gradients()?;
        for (member, other) in self.members.iter().zip(others) {
            storage::alias(&member.parameter, other)?;
        }
        Ok(())
    }

    /// Takes the gradients of slices from whole parameters, to which a backward pass is about to give
    /// whole ones.
    pub(super) fn begin_gradients(&mut self) -> Result<()> {
        match self.presence {
            Presence::Whole => self.hide_gradients(),
            _ => Ok(()),
        }
    }

    /// Leaves a backward pass that failed: parameters look at their slices again, with the gradients
    /// of these, so that nothing of the pass is left once gradients are dropped.
    pub(super) fn abandon(&mut self, pool: &mut Pool) -> Result<()> {
        if matches!(self.presence, Presence::Whole) {
            self.release(pool)?;
        }
        match &mut self.gradients {
            Some(gradients) => gradients.show(&self.members),
            None => Ok(()),
        }
    }

    /// Whether parameters have whole gradients that are still to be added up over ranks.
    pub(super) fn has_whole_gradients(&self) -> Result<bool> {
        match &self.gradients {
            Some(gradients) => gradients.has_whole(&self.members),
            None => Ok(false),
        }
    }

    pub(super) fn hide_gradients(&mut self) -> Result<()> {
        match &mut self.gradients {
            Some(gradients) => gradients.hide(&self.members),
            None => Ok(()),
        }
    }

    /// Lets the parameters look at their slices, with the gradients that belong to these.
    pub(super) fn show_slices(&mut self) -> Result<()> {
        for member in &self.members {
            storage::alias(&member.parameter, &member.slice)?;
        }
        match &mut self.gradients {
            Some(gradients) => gradients.show(&self.members),
            None => Ok(()),
        }
    }
}

/// How a [`Flat`] is made.
#[derive(Debug)]
pub(super) struct FlatOptions {
    /// What gradients are divided by; none for frozen parameters.
    pub(super) divisors: Option<Divisors>,
    /// Whether the whole keeps its memory between steps.
    pub(super) keeps_memory: bool,
    /// Whether the whole keeps its values as long as nobody changes the shard.
    pub(super) keeps_values: bool,
    /// How parameters travel.
    pub(super) weights: Quantised,
    /// How gradients travel.
    pub(super) gradients: Quantised,
    /// Whether the backward pass gathers from second shards on one machine.
    pub(super) has_second: bool,
    /// Where shards are.
    pub(super) homes: Homes,
}

/// This rank's part of rank 0's parameters.
fn first_shard(
    parameters: &[Tensor],
    layout: &Layout,
    kind: Kind,
    groups: &Groups,
    home: &Home,
) -> Result<Tensor> {
    let device = parameters.first().map_or(Device::Cpu, Tensor::device);
    let whole = Tensor::f_zeros([length(layout.whole())], (kind, device))?;
    tch::no_grad(|| -> Result<()> {
        for (parameter, place) in parameters.iter().zip(layout.places()) {
            if !has_values(parameter)? {
                continue;
            }
            let mut room = part(&whole, place.start, place.length)?;
            room.f_copy_(&parameter.f_detach()?.f_reshape([-1])?)?;
        }
        Ok(())
    })?;
    if layout.whole() > 0 {
        groups.all.broadcast(&whole, 0)?;
    }
    let own = part(&whole, groups.rank() * layout.shard(), layout.shard())?;
    let mut shard = home.room(layout.shard(), kind, device)?;
    shard.f_copy_(&own)?;
    home.write_back(&shard)?;
    Ok(shard)
}

/// Whether a parameter has memory; one of a model that was built without has none.
pub(super) fn has_values(parameter: &Tensor) -> Result<bool> {
    Ok(parameter.numel() == 0 || storage::storage_bytes(parameter)? > 0)
}

/// A part of a vector, as a view.
pub(super) fn part(vector: &Tensor, start: usize, count: usize) -> Result<Tensor> {
    Ok(vector.f_narrow(0, length(start), length(count))?)
}

/// A number of elements as libtorch takes it.
pub(super) fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The size of so many elements in bytes.
pub(super) fn bytes(count: usize, kind: Kind) -> usize {
    count * kind.elt_size_in_bytes()
}
