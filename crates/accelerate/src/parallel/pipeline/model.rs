//! The schedule.

use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use accelerate_formats::Weights;
use accelerate_torch::ProcessGroup;
use tch::Device;

use super::wire::{self, Arrival, Inbox, Outbox};
use super::{PipelineOptions, PipelineStep, Pipelined, chunks, failure, split, stage};
use crate::checkpoint::{LoadReport, together};
use crate::collectives::{Operation, Watch, gather_object};
use crate::nn::IntoInput;
use crate::state::PartialState;
use crate::tree::{Parcel, Tree};
use crate::{Error, Result};

const OPERATION: &str = "PipelinedModel::call";

/// How many parts of a batch wait while another is computed, besides the one that comes in.
const WAITING: usize = 1;

/// A model for inference that is cut into stages, of which each rank holds and runs one.
///
/// A batch goes through in parts: while a rank computes one, the next comes in from the rank before
/// and the last goes out to the rank behind. A rank is through with a batch when the next rank has
/// all of it, so the first ranks begin the next batch while the last ones finish this one. Nothing
/// records gradients.
///
/// ```
/// use accelerate::Accelerator;
/// use accelerate::nn::{Activation, ActivationFunction, Factory, Linear, Sequential};
/// use accelerate::parallel::PipelineOptions;
/// use accelerate::tch::{Device, Kind, Tensor};
///
/// let factory = Factory::default();
/// let model = Sequential::new()
///     .with(Linear::new(4, 8, &factory)?)
///     .with(Activation::new(ActivationFunction::Relu))
///     .with(Linear::new(8, 2, &factory)?);
/// let accelerator = Accelerator::builder().cpu(true).build()?;
/// let model = accelerator.prepare_pipeline(model, &PipelineOptions::default())?;
/// let output = model.call(Tensor::f_zeros([3, 4], (Kind::Float, Device::Cpu))?)?;
/// if accelerator.is_last_process() {
///     assert_eq!(output.map(|output| output.size()), Some(vec![3, 2]));
/// }
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # After a failure
/// Where a step fails on one rank, or a rank ends, every rank that takes part gets an error that
/// names it, now or in its next call, and the pipeline does not run any more.
///
/// # Source
/// `prepare_pippy`. Differs: parts may differ by a row instead of being filled up; outputs of any
/// structure reach all ranks; nothing is traced.
pub struct PipelinedModel<M> {
    model: M,
    state: PartialState,
    steps: Vec<PipelineStep>,
    /// The steps of each rank.
    stages: Vec<Range<usize>>,
    ties: Vec<Vec<String>>,
    num_chunks: usize,
    gather_output: bool,
    line: RefCell<Line>,
}

/// What a rank has to do with others.
enum Line {
    /// There are no others.
    Alone,
    Open(Links),
    /// This rank failed.
    Broken(usize),
}

/// The ways to both neighbours. Neighbouring ways belong to different groups, because a group is
/// used by one thread at a time.
struct Links {
    previous: Option<Inbox>,
    next: Option<Outbox>,
    /// All ranks, for outputs.
    all: ProcessGroup,
    /// Also where this rank sends nothing over it: closed at once, it would be gone while others still
    /// connect to it.
    _odd: ProcessGroup,
}

impl<M: Pipelined> PipelinedModel<M> {
    /// Cuts a model and keeps this rank's stage, on the device of `state`.
    ///
    /// The model is put into evaluation mode. What other stages compute with loses its memory. A
    /// model [without memory](crate::nn::init_empty_weights) can be cut too; its stage is read with
    /// [`load`](Self::load).
    ///
    /// # Collective
    /// Every rank calls this with the same model and options.
    ///
    /// # Errors
    /// [`Error::NoSuchMember`] for a split point or class that is not there; [`Error::Argument`] for
    /// a model that cannot be cut into as many stages as there are processes;
    /// [`Error::ModelsDiffer`] where ranks cut differently.
    pub fn new(state: &PartialState, model: M, options: &PipelineOptions) -> Result<Self> {
        model.train(false);
        let world = state.num_processes();
        let steps = model.steps();
        let stages = split::cut(model.as_module(), &steps, world, options);
        let stages = together(state, stages)?;
        require_same(state, &steps, &stages)?;
        let ties = model.tied_parameters();
        let line = match state.process_group() {
            None => Line::Alone,
            Some(group) => Line::Open(Links::new(group, state.device())?),
        };
        let mut pipeline = Self {
            model,
            state: state.clone(),
            steps,
            stages,
            ties,
            num_chunks: options.num_chunks.map_or(world, usize::from),
            gather_output: options.gather_output,
            line: RefCell::new(line),
        };
        let own = pipeline.own_steps().to_vec();
        let is_own = |name: &str| own.iter().any(|step| step.holds(name));
        stage::keep_only(pipeline.model.as_module_mut(), &is_own, state.device())?;
        Ok(pipeline)
    }

    /// Gives this rank's stage memory and reads it from a file, of which other parts are not read.
    ///
    /// `rename` gives the name in the model of a tensor in the file; `None` passes it over.
    ///
    /// # Errors
    /// [`Error::WeightsDoNotFit`] if a tensor of the stage is missing or has another shape.
    pub fn load(
        &mut self,
        weights: &Weights,
        rename: &dyn Fn(&str) -> Option<String>,
    ) -> Result<LoadReport> {
        let own = self.own_steps().to_vec();
        let is_own = |name: &str| own.iter().any(|step| step.holds(name));
        let (model, device) = (self.model.as_module_mut(), self.state.device());
        stage::load(model, &is_own, &self.ties, weights, rename, device)
    }

    /// Runs a batch; the last rank gets the output, or all of them where
    /// [`gather_output`](PipelineOptions::gather_output) is on.
    ///
    /// The first rank gives the input; what others give is not used.
    ///
    /// # Shapes
    /// The tensors of the input have a row for each sample, or one for all; so have those of the
    /// output.
    ///
    /// # Collective
    /// Every rank calls this, or [`call_without_input`](Self::call_without_input).
    ///
    /// # Errors
    /// [`Error::PipelineStep`] on the rank where a step fails, [`Error::OtherRankFailed`] on the
    /// others; [`Error::CollectiveIncomplete`] if a rank is gone; [`Error::PipelineBroken`] after
    /// any of them.
    #[track_caller]
    pub fn call(&self, input: impl IntoInput<M::Input>) -> Result<Option<M::Output>> {
        self.run(Some(input.into_input()))
    }

    /// As [`call`](Self::call), for a rank that has no input.
    ///
    /// # Errors
    /// As [`call`](Self::call); [`Error::Argument`] on the first rank.
    #[track_caller]
    pub fn call_without_input(&self) -> Result<Option<M::Output>> {
        self.run(None)
    }

    /// The names of the steps before which the model is cut.
    pub fn split_points(&self) -> Vec<&str> {
        let begins = self.stages.iter().skip(1).map(|stage| stage.start);
        begins
            .filter_map(|step| self.steps.get(step))
            .map(PipelineStep::name)
            .collect()
    }

    /// The steps that this rank runs.
    pub fn own_steps(&self) -> &[PipelineStep] {
        self.steps.get(self.stage()).unwrap_or_default()
    }

    /// The model, of which this rank's stage has memory.
    pub fn model(&self) -> &M {
        &self.model
    }

    fn stage(&self) -> Range<usize> {
        let own = self.stages.get(self.state.process_index());
        own.cloned().unwrap_or(0..0)
    }

    #[track_caller]
    fn run(&self, input: Option<M::Input>) -> Result<Option<M::Output>> {
        let mut line = self.line.try_borrow_mut().map_err(|_| Error::Argument {
            operation: OPERATION,
            expected: "a pipeline that is not running".to_owned(),
            found: "a call of it from one of its own steps".to_owned(),
        })?;
        let links = match &mut *line {
            Line::Alone => return self.run_alone(input).map(Some),
            Line::Broken(rank) => return Err(Error::PipelineBroken { rank: *rank }),
            Line::Open(links) => links,
        };
        let Some(watch) = Watch::begin(&self.state, &Operation::new(OPERATION))? else {
            return self.run_alone(input).map(Some);
        };
        match tch::no_grad(|| self.pass(links, input)) {
            Ok(output) => Ok(output),
            Err(error) => {
                let (error, rank) = self.explain(links, &watch, error);
                break_off(mem::replace(&mut *line, Line::Broken(rank)));
                Err(error)
            }
        }
    }

    /// The whole batch at once, on a process by itself.
    fn run_alone(&self, input: Option<M::Input>) -> Result<M::Output> {
        let mut input = input.ok_or_else(no_input)?;
        input.visit_mut(&mut |tensor| {
            *tensor = tensor.f_to_device(self.state.device())?;
            Ok(())
        })?;
        tch::no_grad(|| self.model.call(Whole(input)))
    }

    /// One batch through this rank.
    fn pass(&self, links: &mut Links, input: Option<M::Input>) -> Result<Option<M::Output>> {
        let Links {
            previous,
            next,
            all,
            ..
        } = links;
        let outputs = match previous {
            None => self.lead(input, next)?,
            Some(inbox) => self.follow(inbox, next, all)?,
        };
        let output = match next {
            Some(next) => {
                next.flush()?;
                None
            }
            None => Some(chunks::join(outputs)?),
        };
        match self.gather_output {
            true => wire::share(all, self.state.device(), output).map(Some),
            false => Ok(output),
        }
    }

    /// The first rank: cuts the batch, and passes on each part when it is computed.
    fn lead(&self, input: Option<M::Input>, next: &mut Option<Outbox>) -> Result<Vec<M::Output>> {
        let mut batch = Parcel::default();
        input.ok_or_else(no_input)?.pack(&mut batch)?;
        let parts = chunks::cut(batch, self.num_chunks)?;
        let (count, mut outputs) = (parts.len(), Vec::new());
        for (mut part, number) in parts.into_iter().zip(1..) {
            for tensor in part.tensors_mut() {
                *tensor = tensor.f_to_device(self.state.device())?;
            }
            let carried = self.model.begin(M::Input::unpack(&mut part)?)?;
            outputs.extend(self.work(carried, number == count, next)?);
        }
        Ok(outputs)
    }

    /// Other ranks: a thread receives while this one computes.
    fn follow(
        &self,
        inbox: &mut Inbox,
        next: &mut Option<Outbox>,
        all: &ProcessGroup,
    ) -> Result<Vec<M::Output>> {
        let (to, arrivals) = mpsc::sync_channel(WAITING);
        thread::scope(|scope| {
            thread::Builder::new()
                .name("pipeline".to_owned())
                .spawn_scoped(scope, move || inbox.receive_batch(&to))
                .map_err(|source| Error::ThreadStart {
                    purpose: "receives from the rank before",
                    source,
                })?;
            let outputs = self.take_all(arrivals, next);
            if let Err(error) = &outputs
                && is_own(error)
            {
                // Before the rest of the batch is received, so that others need not wait for that.
                failure::note(all, all.name(), self.state.process_index());
            }
            outputs
        })
    }

    fn take_all(
        &self,
        arrivals: Receiver<Result<Arrival>>,
        next: &mut Option<Outbox>,
    ) -> Result<Vec<M::Output>> {
        let mut outputs = Vec::new();
        // There is no more behind the last part, and behind an error.
        for arrival in arrivals {
            let Arrival { mut part, last } = arrival?;
            for tensor in part.tensors_mut() {
                *tensor = tensor.f_to_device(self.state.device())?;
            }
            let carried = M::Carried::unpack(&mut part)?;
            outputs.extend(self.work(carried, last, next)?);
        }
        Ok(outputs)
    }

    /// Runs this rank's steps on a part, and sends what came of it on. An output where there is no
    /// rank behind.
    fn work(
        &self,
        mut carried: M::Carried,
        last: bool,
        next: &mut Option<Outbox>,
    ) -> Result<Option<M::Output>> {
        for step in self.stage() {
            carried = self.model.advance(step, carried).map_err(|source| {
                let name = self.steps.get(step).map_or("", PipelineStep::name);
                Error::PipelineStep {
                    step: name.to_owned(),
                    rank: self.state.process_index(),
                    source: Box::new(source),
                }
            })?;
        }
        let Some(next) = next else {
            return self.model.finish(carried).map(Some);
        };
        let mut part = Parcel::default();
        carried.pack(&mut part)?;
        next.send(part, last)?;
        Ok(None)
    }

    /// The error as this rank tells it, and the rank that failed first.
    fn explain(&self, links: &Links, watch: &Watch<'_>, error: Error) -> (Error, usize) {
        let (own, all) = (self.state.process_index(), &links.all);
        if is_own(&error) {
            return (error, failure::note(all, all.name(), own));
        }
        if let Some(rank) = failure::noted(all, all.name()).filter(|&rank| rank != own) {
            return (Error::OtherRankFailed { rank }, rank);
        }
        let error = watch.explain(error);
        let missing = match &error {
            Error::CollectiveIncomplete { report, .. } => {
                let gone = report.others.iter().find(|other| other.is_gone());
                gone.map(|other| other.rank)
                    .or(report.missing.first().copied())
            }
            _ => None,
        };
        let rank = missing.unwrap_or(own);
        (error, failure::note(all, all.name(), rank))
    }
}

impl Links {
    /// # Collective
    /// Every rank of `group` calls this.
    fn new(group: &ProcessGroup, device: Device) -> Result<Self> {
        let (rank, world) = (group.rank(), group.size());
        let ranks: Vec<usize> = (0..world).collect();
        let whole = || -> Result<ProcessGroup> {
            group.subgroup(&ranks)?.ok_or_else(|| Error::Argument {
                operation: "pipeline",
                expected: format!("a group of ranks {ranks:?}"),
                found: format!("none on rank {rank}"),
            })
        };
        let even = whole()?;
        // With two ranks there is one way only.
        let odd = match world {
            0..=2 => even.clone(),
            _ => whole()?,
        };
        let way = |before: usize| match before % 2 {
            0 => even.clone(),
            _ => odd.clone(),
        };
        let previous = rank.checked_sub(1);
        let next = (rank + 1 < world).then_some(rank + 1);
        Ok(Self {
            previous: previous.map(|peer| Inbox::new(way(peer), peer, device)),
            next: next.map(|peer| Outbox::new(way(rank), peer, device)),
            all: even,
            _odd: odd,
        })
    }
}

/// An input as it is.
struct Whole<T>(T);

impl<T> IntoInput<T> for Whole<T> {
    fn into_input(self) -> T {
        self.0
    }
}

/// Closes the connections, on another thread: a group that waits for a stopped rank would block.
fn break_off(line: Line) {
    // Where no thread can be started the line is dropped here.
    let closing = thread::Builder::new().name("pipeline-end".to_owned());
    let _ = closing.spawn(move || drop(line));
}

/// Whether an error is this rank's own, and none of the ways between ranks.
fn is_own(error: &Error) -> bool {
    !matches!(error, Error::Torch(_))
}

fn no_input() -> Error {
    Error::Argument {
        operation: OPERATION,
        expected: "an input on the first rank".to_owned(),
        found: "none".to_owned(),
    }
}

/// Every rank has to cut the same model at the same places.
fn require_same(
    state: &PartialState,
    steps: &[PipelineStep],
    stages: &[Range<usize>],
) -> Result<()> {
    let begins = stages.iter().filter_map(|stage| steps.get(stage.start));
    let names: Vec<&str> = begins.map(PipelineStep::name).collect();
    let own = format!(
        "{} steps in stages from `{}`",
        steps.len(),
        names.join("`, `")
    );
    let all = gather_object(state, vec![own])?;
    let expected = all.first().cloned().unwrap_or_default();
    match all.iter().position(|one| *one != expected) {
        None => Ok(()),
        Some(rank) => Err(Error::ModelsDiffer {
            base: 0,
            rank,
            found: all.get(rank).cloned().unwrap_or_default(),
            expected,
        }),
    }
}

impl<M: Pipelined> fmt::Debug for PipelinedModel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelinedModel")
            .field("class", &self.model.class_name())
            .field("split_points", &self.split_points())
            .field("num_chunks", &self.num_chunks)
            .field("gather_output", &self.gather_output)
            .finish_non_exhaustive()
    }
}
