//! Batch normalisation over the batches of several ranks.

use std::cell::RefCell;
use std::rc::Rc;

use accelerate_torch::{BoxError, ProcessGroup, ReduceOp, autograd};
use tch::{Kind, Tensor};

use super::one_value;
use crate::nn::Module;
use crate::{Error, Result};

/// Over which ranks a batch norm takes its statistics; a clone shares the setting.
#[derive(Debug, Clone, Default)]
pub struct BatchNormSync(Rc<RefCell<Scope>>);

#[derive(Debug, Default)]
enum Scope {
    #[default]
    OwnBatch,
    /// None for a process by itself.
    Group(Option<ProcessGroup>),
}

impl BatchNormSync {
    /// Takes statistics over the ranks of this group; over the own batch where there is none.
    pub fn set(&self, group: Option<&ProcessGroup>) {
        *self.0.borrow_mut() = Scope::Group(group.cloned());
    }

    /// Whether the layer is a synchronised one.
    pub fn is_set(&self) -> bool {
        matches!(*self.0.borrow(), Scope::Group(_))
    }

    /// The group, if there are others in it.
    pub(super) fn several_ranks(&self) -> Option<ProcessGroup> {
        match &*self.0.borrow() {
            Scope::Group(group) => group.clone().filter(|group| group.size() > 1),
            Scope::OwnBatch => None,
        }
    }
}

/// Makes every batch norm in a module take its statistics over the batches of all ranks of a
/// group, in training mode; answers how many there are.
///
/// To be called before the model is prepared. `None` is for a process by itself: then only the
/// class name changes, so that the same program runs anywhere.
///
/// ```
/// use accelerate::Accelerator;
/// use accelerate::nn::{BatchNorm2d, BatchNormOptions, Factory, Module, convert_sync_batchnorm};
///
/// let accelerator = Accelerator::new()?;
/// let layer = BatchNorm2d::new(8, BatchNormOptions::default(), &Factory::default())?;
/// assert_eq!(convert_sync_batchnorm(&layer, accelerator.state().process_group()), 1);
/// assert_eq!(layer.class_name(), "SyncBatchNorm");
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `torch.nn.SyncBatchNorm.convert_sync_batchnorm`. Differs: the layers are changed in place.
pub fn convert_sync_batchnorm(module: &dyn Module, group: Option<&ProcessGroup>) -> usize {
    let modules = module.named_modules();
    let layers = modules
        .iter()
        .filter_map(|(_, module)| module.batch_norm_sync());
    layers.map(|layer| layer.set(group)).count()
}

/// One pass over the batches of a group.
pub(super) struct Batch<'a> {
    pub(super) input: Tensor,
    pub(super) group: &'a ProcessGroup,
    pub(super) eps: f64,
}

/// Running mean and variance, and the share of this batch in them.
type Running<'a> = ((&'a Tensor, &'a Tensor), f64);

/// Mean, variance and number of values of each channel over all ranks, in float64.
struct Statistics {
    mean: Tensor,
    variance: Tensor,
    count: Tensor,
}

impl Batch<'_> {
    /// The input with mean 0 and variance 1 over the group, in float32 where it has less.
    pub(super) fn normalize(&self, running: Option<Running<'_>>) -> Result<Normalized> {
        let kind = self.input.f_kind()?;
        let values = match kind {
            Kind::Half | Kind::BFloat16 => self.input.f_to_kind(Kind::Float)?,
            _ => self.input.shallow_clone(),
        };
        let statistics = tch::no_grad(|| self.statistics(&values))?;
        if let Some(running) = running {
            tch::no_grad(|| statistics.update(running))?;
        }
        Ok(Normalized {
            values: self.apply(&values, &statistics)?,
            kind,
        })
    }

    fn statistics(&self, values: &Tensor) -> Result<Statistics> {
        let own = own_statistics(values)?.f_unsqueeze(0)?;
        let world = i64::try_from(self.group.size()).unwrap_or(i64::MAX);
        let all = own.f_new_empty([world, own.numel() as i64], (Kind::Double, own.device()))?;
        self.group.all_gather_into_tensor(&all, &own)?;
        let channels = values.size().get(1).copied().unwrap_or(0);
        let [means, variances] = [0, 1].map(|part| all.f_narrow(1, part * channels, channels));
        let (means, variances) = (means?, variances?);
        let counts = all.f_narrow(1, 2 * channels, 1)?;
        let count = counts.f_sum(Kind::Double)?;
        // Only a rank with next to nothing asks, as the answer has to come from the device.
        if values.numel() as i64 <= channels && count.f_double_value(&[])? <= 1.0 {
            return Err(one_value("SyncBatchNorm", values));
        }
        let mean_over = |each: &Tensor| -> Result<Tensor> {
            let sum = each
                .f_mul(&counts)?
                .f_sum_dim_intlist(0i64, false, Kind::Double)?;
            Ok(sum.f_div(&count)?)
        };
        let mean = mean_over(&means)?;
        let apart = means.f_sub(&mean)?.f_square()?;
        let variance = mean_over(&variances.f_add(&apart)?)?;
        Ok(Statistics {
            mean,
            variance,
            count,
        })
    }

    /// The operation itself, with a gradient that also goes through mean and variance.
    fn apply(&self, values: &Tensor, statistics: &Statistics) -> Result<Tensor> {
        let kind = values.f_kind()?;
        let mean = statistics.mean.f_to_kind(kind)?;
        let variance = statistics.variance.f_to_kind(kind)?;
        let inverse_std = statistics
            .variance
            .f_add_scalar(self.eps)?
            .f_rsqrt()?
            .f_to_kind(kind)?;
        let count = statistics.count.f_to_kind(kind)?;
        let (eps, group) = (self.eps, self.group.clone());
        let outputs = autograd::function(
            &[values],
            move |context, inputs| {
                let [values] = inputs else {
                    return Err("expected one input".into());
                };
                let normalized = plain(values, &mean, &variance, eps)?;
                context.save(&[&normalized])?;
                Ok(vec![normalized])
            },
            move |context, gradients| {
                let (saved, Some(Some(gradient))) = (context.saved()?, gradients.first()) else {
                    return Err("expected a gradient".into());
                };
                let [normalized] = saved.as_slice() else {
                    return Err("expected one saved tensor".into());
                };
                let gradient = input_gradient(gradient, normalized, &inverse_std, &count, &group)?;
                Ok(vec![Some(gradient)])
            },
        )?;
        outputs.into_iter().next().ok_or(Error::Argument {
            operation: "SyncBatchNorm",
            expected: "one output".to_owned(),
            found: "none".to_owned(),
        })
    }
}

/// What all ranks know together of each channel: `[means.., variances.., count]`.
fn own_statistics(values: &Tensor) -> Result<Tensor> {
    let channels = values.size().get(1).copied().unwrap_or(0);
    let options = (Kind::Double, values.device());
    if values.numel() == 0 {
        return Ok(Tensor::f_zeros([2 * channels + 1], options)?);
    }
    let (variance, mean) = values.f_var_mean_correction(all_but_channels(values), 0, false)?;
    let count = values.numel() as i64 / channels;
    let count = Tensor::f_full([1], count, options)?;
    let parts = [
        mean.f_to_kind(Kind::Double)?,
        variance.f_to_kind(Kind::Double)?,
        count,
    ];
    Ok(Tensor::f_cat(&parts, 0)?)
}

impl Statistics {
    fn update(&self, ((mean, variance), share): Running<'_>) -> Result<()> {
        // The estimate is of the variance behind the samples, not of the samples themselves.
        let unbiased = self
            .variance
            .f_mul(&self.count)?
            .f_div(&self.count.f_sub_scalar(1.0)?)?;
        for (running, new) in [(mean, &self.mean), (variance, &unbiased)] {
            let new = new.f_to_kind(running.f_kind()?)?;
            let _same = running.shallow_clone().f_lerp_(&new, share)?;
        }
        Ok(())
    }
}

/// `(x - mean) / √(variance + eps)`, in one kernel.
fn plain(values: &Tensor, mean: &Tensor, variance: &Tensor, eps: f64) -> Result<Tensor> {
    if values.numel() == 0 {
        return Ok(values.f_empty_like()?);
    }
    let none = None::<&Tensor>;
    Ok(values.f_batch_norm(
        none,
        none,
        Some(mean),
        Some(variance),
        false,
        0.0,
        eps,
        true,
    )?)
}

/// `(g - mean(g) - x̂ · mean(g · x̂)) / std`, the means being over all ranks.
fn input_gradient(
    gradient: &Tensor,
    normalized: &Tensor,
    inverse_std: &Tensor,
    count: &Tensor,
    group: &ProcessGroup,
) -> Result<Tensor, BoxError> {
    let dims = all_but_channels(gradient);
    let kind = gradient.f_kind()?;
    let sum = |tensor: &Tensor| tensor.f_sum_dim_intlist(dims.as_slice(), false, kind);
    let sums = [sum(gradient)?, sum(&gradient.f_mul(normalized)?)?];
    let sums = Tensor::f_stack(&sums, 0)?;
    group.all_reduce(&sums, ReduceOp::Sum)?;
    let means = sums.f_div(count)?;
    let along = |channels: Tensor| channels.f_reshape(beside_channels(gradient));
    let (mean, mean_with) = (along(means.f_select(0, 0)?)?, along(means.f_select(0, 1)?)?);
    let centred = gradient.f_sub(&mean)?;
    Ok(centred
        .f_sub(&normalized.f_mul(&mean_with)?)?
        .f_mul(&along(inverse_std.shallow_clone())?)?)
}

/// A normalised input, and the kind that the output is to have.
pub(super) struct Normalized {
    values: Tensor,
    kind: Kind,
}

/// `x̂ · weight + bias`.
pub(super) fn affine(
    Normalized { values, kind }: Normalized,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    let shape = beside_channels(&values);
    let along = |tensor: &Tensor| -> Result<Tensor> {
        Ok(tensor
            .f_to_kind(values.f_kind()?)?
            .f_reshape(shape.as_slice())?)
    };
    let scaled = match (weight, bias) {
        (None, _) => values.shallow_clone(),
        (Some(weight), None) => values.f_mul(&along(weight)?)?,
        (Some(weight), Some(bias)) => along(bias)?.f_addcmul(&values, &along(weight)?)?,
    };
    Ok(scaled.f_to_kind(kind)?)
}

/// Every dimension but the second.
fn all_but_channels(tensor: &Tensor) -> Vec<i64> {
    let dimensions = tensor.dim() as i64;
    (0..dimensions)
        .filter(|dimension| *dimension != 1)
        .collect()
}

/// The shape in which one value for each channel broadcasts.
fn beside_channels(tensor: &Tensor) -> Vec<i64> {
    let mut shape = vec![1; tensor.dim()];
    if let Some(channels) = shape.get_mut(1) {
        *channels = -1;
    }
    shape
}
