//! What a model says about itself.

use crate::Result;
use crate::nn::Forward;
use crate::tree::Tree;

/// A model that runs in steps, one after another, so that it can be cut between any two of them.
///
/// A pass is [`begin`](Self::begin), then [`advance`](Self::advance) for every step in order, then
/// [`finish`](Self::finish), and gives what [`Forward::forward`] gives, to the last bit. Only steps
/// compute with parameters and buffers: the ranks that begin and finish have those of their own
/// steps and no others. Steps call modules through [`Forward::call`], so their hooks run; those of
/// modules around the steps, such as the root, do not.
///
/// ```
/// use accelerate::nn::{Embedding, Factory, Forward, Linear, Module, ModuleState};
/// use accelerate::parallel::{Pipelined, PipelineStep};
/// use accelerate::tch::Tensor;
///
/// #[derive(Module)]
/// struct Words {
///     embedding: Embedding,
///     layers: Vec<Linear>,
///     state: ModuleState,
/// }
///
/// impl Forward for Words {
///     type Input = Tensor;
///     type Output = Tensor;
///
///     fn forward(&self, ids: Tensor) -> accelerate::Result<Tensor> {
///         let hidden = self.embedding.call(ids)?;
///         self.layers.iter().try_fold(hidden, |hidden, layer| layer.call(hidden))
///     }
/// }
///
/// impl Pipelined for Words {
///     type Carried = Tensor;
///
///     fn steps(&self) -> Vec<PipelineStep> {
///         let layers = (0..self.layers.len()).map(|layer| PipelineStep::new(format!("layers.{layer}")));
///         [PipelineStep::new("embedding")].into_iter().chain(layers).collect()
///     }
///
///     fn begin(&self, ids: Tensor) -> accelerate::Result<Tensor> {
///         Ok(ids)
///     }
///
///     fn advance(&self, step: usize, hidden: Tensor) -> accelerate::Result<Tensor> {
///         match step.checked_sub(1) {
///             None => self.embedding.call(hidden),
///             Some(layer) => self.layers[layer].call(hidden),
///         }
///     }
///
///     fn finish(&self, hidden: Tensor) -> accelerate::Result<Tensor> {
///         Ok(hidden)
///     }
/// }
///
/// let factory = Factory::default();
/// let model = Words {
///     embedding: Embedding::new(10, 4, &factory)?,
///     layers: vec![Linear::new(4, 4, &factory)?, Linear::new(4, 2, &factory)?],
///     state: ModuleState::default(),
/// };
/// let ids = Tensor::from_slice(&[3i64, 1]);
/// let mut carried = model.begin(ids.shallow_clone())?;
/// for step in 0..model.steps().len() {
///     carried = model.advance(step, carried)?;
/// }
/// assert_eq!(model.finish(carried)?, model.call(ids)?);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// What `torch.distributed.pipelining` finds by tracing. Differs: a model says it, so it can run
/// whatever Rust can.
pub trait Pipelined: Forward {
    /// What one step hands to the next, and one rank to the next: a tree that
    /// [travels](Tree::pack).
    type Carried: Tree;

    /// The steps in the order in which they run. Every parameter and buffer belongs to at least one.
    fn steps(&self) -> Vec<PipelineStep>;

    /// What the first step works on. Computes without parameters and buffers.
    ///
    /// # Errors
    /// An input that the model does not take.
    fn begin(&self, input: Self::Input) -> Result<Self::Carried>;

    /// Runs the step with this number.
    ///
    /// # Errors
    /// What the step reports.
    fn advance(&self, step: usize, carried: Self::Carried) -> Result<Self::Carried>;

    /// The output, from what the last step made. Computes without parameters and buffers.
    ///
    /// # Errors
    /// What the operations inside report.
    fn finish(&self, carried: Self::Carried) -> Result<Self::Output>;
}

/// One step of a [`Pipelined`] model: its name, by which the model is cut before it, and the modules
/// that it computes with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineStep {
    name: String,
    others: Vec<String>,
}

impl PipelineStep {
    /// The step that runs the module of this dotted name.
    pub fn new(module: impl Into<String>) -> Self {
        Self {
            name: module.into(),
            others: Vec::new(),
        }
    }

    /// The same step, which computes with this module, parameter or buffer as well.
    #[must_use]
    pub fn with(mut self, member: impl Into<String>) -> Self {
        self.others.push(member.into());
        self
    }

    /// The name of the step.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dotted names of what it computes with.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        [self.name.as_str()]
            .into_iter()
            .chain(self.others.iter().map(String::as_str))
    }

    /// Whether it computes with the tensor of this name.
    pub(super) fn holds(&self, tensor: &str) -> bool {
        self.members().any(|member| is_at_or_below(tensor, member))
    }
}

/// Whether a dotted name is that of a module, or of something in it.
pub(super) fn is_at_or_below(name: &str, module: &str) -> bool {
    module.is_empty()
        || name
            .strip_prefix(module)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
