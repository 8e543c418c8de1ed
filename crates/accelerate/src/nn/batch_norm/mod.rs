//! Batch normalisation.

mod options;
mod sync;

use tch::{Kind, Tensor};

pub use self::options::BatchNormOptions;
pub use self::sync::{BatchNormSync, convert_sync_batchnorm};

use super::shape_only::{is_shape_only, shape_only};
use super::{
    Buffer, Factory, Forward, Init, Member, MemberMut, Module, ModuleField, ModuleState, Parameter,
    init,
};
use crate::{Error, Result};

/// Normalises each channel over the batch: `y = (x - mean) / √(variance + eps) · weight + bias`.
///
/// In training mode, mean and variance are those of the batch, and running estimates of them are
/// kept in buffers; in evaluation mode the running estimates are used. Initialised with weight 1,
/// bias 0, running mean 0 and running variance 1.
///
/// [`convert_sync_batchnorm`] makes it take its statistics over the batches of a group of ranks.
/// It is then what PyTorch calls `SyncBatchNorm`, and has that class name.
///
/// # Shapes
/// - `weight`, `bias`, `running_mean`, `running_var`: `[channels]`; `num_batches_tracked`: `[]` of
///   int64
/// - input and output: `[batch, channels, ..]` with `N` further dimensions, for [`BatchNorm1d`]
///   also none
///
/// # Collective
/// In training mode, where it is synchronised: every rank of the group calls it, forward and
/// backward, in the same order as its other collectives. Batches may differ in size; one may be
/// empty.
///
/// # Source
/// `torch.nn.BatchNorm1d`, `BatchNorm2d`, `BatchNorm3d` and `SyncBatchNorm`. Differs: the last is
/// a mode of the others, so that a model keeps its types when it is converted, and works on CPUs
/// too; with it an input still has `N` further dimensions.
#[derive(Debug, Clone)]
pub struct BatchNorm<const N: usize> {
    /// The scale of each channel, where the layer is affine.
    pub weight: Option<Parameter>,
    /// The offset of each channel, where there is one.
    pub bias: Option<Parameter>,
    /// The running estimate of the mean, where it is kept.
    pub running_mean: Option<Buffer>,
    /// The running estimate of the variance, where it is kept.
    pub running_var: Option<Buffer>,
    /// How many batches the estimates are made of, where they are kept.
    pub num_batches_tracked: Option<Buffer>,
    channels: i64,
    eps: f64,
    momentum: Option<f64>,
    sync: BatchNormSync,
    state: ModuleState,
}

/// Batch normalisation of `[batch, channels]` or `[batch, channels, length]`.
pub type BatchNorm1d = BatchNorm<1>;
/// Batch normalisation of `[batch, channels, height, width]`.
pub type BatchNorm2d = BatchNorm<2>;
/// Batch normalisation of `[batch, channels, depth, height, width]`.
pub type BatchNorm3d = BatchNorm<3>;

impl<const N: usize> BatchNorm<N> {
    /// A layer for so many channels.
    ///
    /// # Errors
    /// If the number of channels is negative or memory is short.
    pub fn new(channels: i64, options: BatchNormOptions, factory: &Factory) -> Result<Self> {
        let filled = |value: f64| {
            let tensor = factory.empty(&[channels])?;
            init::constant(&tensor, value)?;
            Ok::<_, Error>(tensor)
        };
        let parameter = |wanted: bool, value: f64| {
            let tensor = match factory.init() {
                _ if !wanted => return Ok(None),
                Init::Skip => factory.empty(&[channels])?,
                Init::Layer | Init::Normal { .. } => filled(value)?,
            };
            Parameter::new(tensor).map(Some)
        };
        let tracked = options.track_running_stats;
        let buffer = |value: f64| tracked.then(|| filled(value).map(Buffer::new)).transpose();
        let counter = || Tensor::f_zeros([0i64; 0], (Kind::Int64, factory.device()));
        Ok(Self {
            weight: parameter(options.affine, 1.0)?,
            bias: parameter(options.affine && options.bias, 0.0)?,
            running_mean: buffer(0.0)?,
            running_var: buffer(1.0)?,
            num_batches_tracked: tracked.then(|| counter().map(Buffer::new)).transpose()?,
            channels,
            eps: options.eps,
            momentum: options.momentum,
            sync: BatchNormSync::default(),
            state: ModuleState::default(),
        })
    }

    /// Begins the running estimates anew.
    ///
    /// # Errors
    /// If a buffer cannot be written.
    pub fn reset_running_stats(&self) -> Result<()> {
        for (buffer, value) in [
            (&self.running_mean, 0.0),
            (&self.running_var, 1.0),
            (&self.num_batches_tracked, 0.0),
        ] {
            if let Some(buffer) = buffer {
                init::constant(buffer.tensor(), value)?;
            }
        }
        Ok(())
    }

    /// Counts this batch; answers its share in the running estimates.
    fn count_batch(&self) -> Result<f64> {
        let Some(counter) = &self.num_batches_tracked else {
            return Ok(self.momentum.unwrap_or(0.0));
        };
        let count = counter.tensor();
        let _same = tch::no_grad(|| count.shallow_clone().f_add_scalar_(1))?;
        match self.momentum {
            Some(momentum) => Ok(momentum),
            None => Ok(1.0 / count.f_double_value(&[])?),
        }
    }

    fn check_input(&self, input: &Tensor) -> Result<()> {
        let shape = input.size();
        let dimensions = shape.len() == N + 2 || (N == 1 && shape.len() == 2);
        if dimensions && shape.get(1) == Some(&self.channels) {
            return Ok(());
        }
        let rest = ["", ", length", ", height, width", ", depth, height, width"];
        let rest = rest.get(N).copied().unwrap_or(", ..");
        Err(Error::Argument {
            operation: self.class_name(),
            expected: format!("an input of shape [batch, {}{rest}]", self.channels),
            found: format!("{shape:?}"),
        })
    }
}

impl<const N: usize> Module for BatchNorm<N> {
    fn class_name(&self) -> &'static str {
        match N {
            _ if self.sync.is_set() => "SyncBatchNorm",
            1 => "BatchNorm1d",
            2 => "BatchNorm2d",
            3 => "BatchNorm3d",
            _ => "BatchNorm",
        }
    }

    fn state(&self) -> Option<&ModuleState> {
        Some(&self.state)
    }

    fn members<'m>(&'m self, visit: &mut dyn FnMut(&str, Member<'m>)) {
        self.weight.visit("weight", visit);
        self.bias.visit("bias", visit);
        self.running_mean.visit("running_mean", visit);
        self.running_var.visit("running_var", visit);
        self.num_batches_tracked.visit("num_batches_tracked", visit);
    }

    fn members_mut<'m>(&'m mut self, visit: &mut dyn FnMut(&str, MemberMut<'m>)) {
        self.weight.visit_mut("weight", visit);
        self.bias.visit_mut("bias", visit);
        self.running_mean.visit_mut("running_mean", visit);
        self.running_var.visit_mut("running_var", visit);
        self.num_batches_tracked
            .visit_mut("num_batches_tracked", visit);
    }

    fn batch_norm_sync(&self) -> Option<&BatchNormSync> {
        Some(&self.sync)
    }
}

impl<const N: usize> Forward for BatchNorm<N> {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, input: Tensor) -> Result<Tensor> {
        self.check_input(&input)?;
        if is_shape_only(&input)? {
            // As with values: a weight without any is refused where somebody counts on it.
            let _weight = self.weight.as_ref().map(Parameter::dense).transpose()?;
            return shape_only(&input.size(), &input);
        }
        let training = self.state.is_training();
        let of_batch = training || self.running_mean.is_none();
        let share = if training { self.count_batch()? } else { 0.0 };
        let weight = self.weight.as_ref().map(Parameter::dense).transpose()?;
        let bias = self.bias.as_ref().map(Parameter::dense).transpose()?;
        let running_mean = self.running_mean.as_ref().map(Buffer::tensor);
        let running_var = self.running_var.as_ref().map(Buffer::tensor);
        if training && let Some(group) = self.sync.several_ranks() {
            let batch = sync::Batch {
                input,
                group: &group,
                eps: self.eps,
            };
            let running = running_mean.zip(running_var);
            let normalized = batch.normalize(running.map(|running| (running, share)))?;
            return sync::affine(normalized, weight.as_ref(), bias.as_ref());
        }
        let values = input.numel() as i64 / self.channels.max(1);
        if of_batch && values == 1 {
            return Err(one_value(self.class_name(), &input));
        }
        Ok(input.f_batch_norm(
            weight.as_ref(),
            bias.as_ref(),
            running_mean,
            running_var,
            of_batch,
            share,
            self.eps,
            true,
        )?)
    }
}

fn one_value(layer: &'static str, input: &Tensor) -> Error {
    Error::Argument {
        operation: layer,
        expected: "more than one value of each channel when training".to_owned(),
        found: format!("an input of shape {:?}", input.size()),
    }
}
