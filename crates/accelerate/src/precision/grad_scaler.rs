use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use accelerate_plan::parallel::LossScaling;
use accelerate_torch::{autograd, foreach};
use tch::{Device, Kind, Tensor};

use super::deepspeed_scale::{DeepSpeedScale, DynamicScale};
use super::scaler_kwargs::GradScalerKwargs;
use crate::optim::{LearningRates, Optimizer};
use crate::{Error, Result};

/// Multiplies the loss so that small float16 gradients survive: a shared handle.
///
/// Before an optimizer steps, its gradients are divided by the scale again; where one of them
/// is not finite the step is left out and the scale falls, and after many good steps it grows.
/// A prepared optimizer does all of this by itself.
///
/// Ranks need not tell each other what they found. With data parallelism gradients are summed
/// over ranks before, so what is not finite on one rank is not finite on any, and all ranks
/// keep the same scale. Where a model is in shards, each rank sees only a part of the gradients, and
/// ranks tell each other before a step.
///
/// # Source
/// `torch.amp.GradScaler`, by the same kernels. Differs where several optimizers share a
/// scaler: gradients are divided by the scale that their loss was multiplied by, also when an
/// earlier optimizer has changed it since, and are never divided twice.
#[derive(Clone)]
pub struct GradScaler {
    pub(super) shared: Rc<RefCell<Shared>>,
}

pub(super) struct Shared {
    pub(super) kwargs: GradScalerKwargs,
    /// How the scale moves on, where that is not as the settings say.
    pub(super) deepspeed: Option<DeepSpeedScale>,
    /// Scale and number of good steps, once a device is known.
    pub(super) tensors: Option<Tensors>,
    /// The number of good steps until then.
    pub(super) init_tracker: i64,
    optimizers: Vec<(LearningRates, Progress)>,
    /// Tells all ranks what one found, where each has only a part of the gradients.
    share: Option<Share>,
    /// The parameters of every prepared optimizer.
    registered: Vec<(LearningRates, Vec<Tensor>)>,
}

pub(super) struct Tensors {
    /// `[]`, float32
    pub(super) scale: Tensor,
    /// `[]`, int32
    pub(super) tracker: Tensor,
    /// What the last losses were multiplied by; none where that is `scale`.
    used: Option<Tensor>,
}

type Share = Rc<dyn Fn(&Tensor) -> Result<()>>;

/// Where one optimizer stands since the last update.
struct Progress {
    /// How many parameters had their gradients divided.
    unscaled: usize,
    stepped: bool,
    /// On each device: 1 where a gradient was not finite.
    found: Vec<(Device, Tensor)>,
}

impl Progress {
    fn new() -> Self {
        Self {
            unscaled: 0,
            stepped: false,
            found: Vec::new(),
        }
    }
}

impl GradScaler {
    /// A scaler with these settings.
    ///
    /// # Errors
    /// Settings out of their range.
    pub fn new(kwargs: GradScalerKwargs) -> Result<Self> {
        Self::with(kwargs, None)
    }

    /// A scaler by the rule of a plan; with [`LossScaling::Accelerator`] or [`LossScaling::Off`] one
    /// with these settings.
    ///
    /// By DeepSpeed's rules the scale is looked at on the CPU at each step, and a dynamic one that
    /// cannot become less ends the training.
    ///
    /// # Errors
    /// A first scale that is not above 0, or too large for float32.
    ///
    /// # Source
    /// `deepspeed.runtime.fp16.loss_scaler`.
    pub fn by_plan(scaling: LossScaling, kwargs: GradScalerKwargs) -> Result<Self> {
        let (init_scale, rule) = match scaling {
            LossScaling::Off | LossScaling::Accelerator => return Self::new(kwargs),
            LossScaling::Fixed(scale) => (scale, DeepSpeedScale::Fixed),
            LossScaling::Dynamic(rule) => {
                let power = i32::try_from(rule.initial_scale_power).unwrap_or(i32::MAX);
                let rule = DeepSpeedScale::Dynamic(DynamicScale::new(rule));
                (2f64.powi(power), rule)
            }
        };
        if init_scale > f64::from(f32::MAX) {
            return Err(Error::Argument {
                operation: "gradient scaler",
                expected: "a first scale of the loss that float32 holds: \
                           `fp16.initial_scale_power` up to 127"
                    .to_owned(),
                found: format!("{init_scale:e}"),
            });
        }
        let kwargs = GradScalerKwargs {
            init_scale,
            ..kwargs
        };
        Self::with(kwargs, Some(rule))
    }

    fn with(kwargs: GradScalerKwargs, deepspeed: Option<DeepSpeedScale>) -> Result<Self> {
        kwargs.check()?;
        Ok(Self {
            shared: Rc::new(RefCell::new(Shared {
                kwargs,
                deepspeed,
                tensors: None,
                init_tracker: 0,
                optimizers: Vec::new(),
                share: None,
                registered: Vec::new(),
            })),
        })
    }

    /// Whether anything is scaled; if not, [`step`](Self::step) is the optimizer's own.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.shared.borrow().kwargs.enabled
    }

    /// The loss, multiplied by the scale.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        let mut shared = self.shared.borrow_mut();
        if !shared.kwargs.enabled {
            return Ok(loss.shallow_clone());
        }
        let tensors = shared.tensors_on(loss.device())?;
        tensors.used = None;
        Ok(loss.f_mul(&tensors.scale.f_to_device(loss.device())?)?)
    }

    /// Divides the gradients of an optimizer by the scale, so that they can be looked at.
    ///
    /// # Errors
    /// A second call before the next update, a call after the step, or float16 gradients,
    /// which have lost what scaling is for: keep the parameters in float32.
    pub fn unscale(&self, optimizer: &dyn Optimizer) -> Result<()> {
        let parameters: Vec<Tensor> = optimizer
            .groups()
            .iter()
            .map(Tensor::shallow_clone)
            .collect();
        let mut shared = self.shared.borrow_mut();
        if !shared.kwargs.enabled {
            return Ok(());
        }
        let progress = shared.progress(optimizer.learning_rates());
        if progress.stepped || progress.unscaled > 0 {
            let found = if progress.stepped {
                "one that has stepped"
            } else {
                "a second call"
            };
            return Err(order(
                "unscale gradients",
                optimizer.name(),
                "before its step and once",
                found,
            ));
        }
        shared.unscale(optimizer.learning_rates(), &parameters)
    }

    /// Lets the optimizer step, unless a gradient is not finite; whether it did.
    ///
    /// Divides the gradients by the scale first where that has not been done.
    ///
    /// # Errors
    /// A second call before the next update; an optimizer without gradients; those of
    /// [`unscale`](Self::unscale) and of the optimizer.
    pub fn step(&self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        if !self.is_enabled() {
            optimizer.step()?;
            return Ok(true);
        }
        if self.found_nonfinite(optimizer)? {
            return Ok(false);
        }
        optimizer.step()?;
        Ok(true)
    }

    fn found_nonfinite(&self, optimizer: &dyn Optimizer) -> Result<bool> {
        let parameters: Vec<Tensor> = optimizer
            .groups()
            .iter()
            .map(Tensor::shallow_clone)
            .collect();
        let mut shared = self.shared.borrow_mut();
        let rates = optimizer.learning_rates();
        if shared.progress(rates).stepped {
            return Err(order(
                "step with a gradient scaler",
                optimizer.name(),
                "once before an update",
                "a second step",
            ));
        }
        // What has been divided stays so; groups that came since are new at the end.
        shared.unscale(rates, &parameters)?;
        let share = shared.share.clone();
        let progress = shared.progress(rates);
        if let (Some(share), Some(first)) = (share, parameters.first()) {
            progress.share(&share, first.device())?;
        }
        if progress.found.is_empty() {
            return Err(order(
                "step with a gradient scaler",
                optimizer.name(),
                "after a backward pass",
                "no gradient on any of its parameters",
            ));
        }
        progress.stepped = true;
        let mut nonfinite = false;
        for (_, found) in &progress.found {
            nonfinite |= found.f_double_value(&[])? != 0.0;
        }
        Ok(nonfinite)
    }

    /// Moves the scale on after all optimizers have stepped.
    ///
    /// # Errors
    /// If no optimizer has stepped or had its gradients divided since the last call.
    pub fn update(&self) -> Result<()> {
        let mut shared = self.shared.borrow_mut();
        let found = shared.optimizers.drain(..).flat_map(|(_, one)| one.found);
        let found: Vec<_> = found.collect();
        shared.update(&found)
    }

    /// Sets the scale, instead of letting it follow from the last steps.
    ///
    /// # Errors
    /// A scale that is not above 0 or not finite.
    pub fn update_to(&self, scale: f64) -> Result<()> {
        let mut shared = self.shared.borrow_mut();
        let kwargs = GradScalerKwargs {
            init_scale: scale,
            ..shared.kwargs
        };
        kwargs.check()?;
        shared.optimizers.clear();
        match &mut shared.tensors {
            Some(tensors) => {
                tensors.keep_used()?;
                let _ = tch::no_grad(|| tensors.scale.f_fill_(scale))?;
            }
            None => shared.kwargs = kwargs,
        }
        Ok(())
    }

    /// [`step`](Self::step), and the update that follows from this one optimizer.
    pub(crate) fn step_and_update(&self, optimizer: &mut dyn Optimizer) -> Result<bool> {
        let stepped = self.step(optimizer)?;
        let mut shared = self.shared.borrow_mut();
        if shared.kwargs.enabled {
            let rates = optimizer.learning_rates();
            let found = std::mem::take(&mut shared.progress(rates).found);
            shared.forget(rates);
            shared.update(&found)?;
        }
        Ok(stepped)
    }

    /// Makes the gradients of a prepared optimizer known to [`unscale_of`](Self::unscale_of).
    pub(crate) fn register(&self, optimizer: &dyn Optimizer) {
        let parameters = optimizer
            .groups()
            .iter()
            .map(Tensor::shallow_clone)
            .collect();
        let rates = optimizer.learning_rates().clone();
        self.shared
            .borrow_mut()
            .registered
            .push((rates, parameters));
    }

    /// Divides the gradients of every prepared optimizer that trains one of `parameters` (of
    /// all of them without a list), where that has not been done.
    pub(crate) fn unscale_of(&self, parameters: Option<&[Tensor]>) -> Result<()> {
        let mut shared = self.shared.borrow_mut();
        if !shared.kwargs.enabled {
            return Ok(());
        }
        let registered = std::mem::take(&mut shared.registered);
        let result = registered
            .iter()
            .filter(|(_, own)| parameters.is_none_or(|wanted| overlap(own, wanted)))
            .try_for_each(|(rates, own)| {
                if shared.progress(rates).stepped {
                    return Ok(());
                }
                shared.unscale(rates, own)
            });
        shared.registered = registered;
        result
    }

    /// What one rank finds is asked of all from now on, by `share`: gradients are in parts.
    pub(crate) fn share_by(&self, share: impl Fn(&Tensor) -> Result<()> + 'static) {
        self.shared.borrow_mut().share = Some(Rc::new(share));
    }

    /// Forgets that gradients were divided, as they are gone.
    pub(crate) fn gradients_dropped(&self, rates: &LearningRates) {
        self.shared.borrow_mut().forget(rates);
    }

    /// Lets go of every prepared optimizer's parameters.
    pub fn release(&self) {
        let mut shared = self.shared.borrow_mut();
        shared.registered.clear();
        shared.optimizers.clear();
    }
}

impl Shared {
    pub(super) fn tensors_on(&mut self, device: Device) -> Result<&mut Tensors> {
        let made = match self.tensors.take() {
            Some(there) => there,
            None => Tensors {
                scale: Tensor::f_full([0i64; 0], self.kwargs.init_scale, (Kind::Float, device))?,
                tracker: Tensor::f_full([0i64; 0], self.init_tracker, (Kind::Int, device))?,
                used: None,
            },
        };
        Ok(self.tensors.insert(made))
    }

    fn progress(&mut self, rates: &LearningRates) -> &mut Progress {
        let place = self
            .optimizers
            .iter()
            .position(|(own, _)| own.is_same(rates));
        let place = place.unwrap_or_else(|| {
            self.optimizers.push((rates.clone(), Progress::new()));
            self.optimizers.len() - 1
        });
        &mut self.optimizers[place].1
    }

    fn forget(&mut self, rates: &LearningRates) {
        self.optimizers.retain(|(own, _)| !own.is_same(rates));
    }

    /// Divides the gradients of those parameters that were not in an earlier call.
    fn unscale(&mut self, rates: &LearningRates, parameters: &[Tensor]) -> Result<()> {
        let done = self.progress(rates).unscaled;
        let mut alike: Vec<((Device, Kind), Vec<Tensor>)> = Vec::new();
        for parameter in parameters.iter().skip(done) {
            let Some(gradient) = autograd::grad(parameter)? else {
                continue;
            };
            let key = (gradient.device(), gradient.f_kind()?);
            if key.1 == Kind::Half {
                return Err(Error::Argument {
                    operation: "unscale gradients",
                    expected: "float32 gradients; keep the model in float32, autocast casts it"
                        .to_owned(),
                    found: "a float16 gradient".to_owned(),
                });
            }
            match alike.iter_mut().find(|(other, _)| *other == key) {
                Some((_, list)) => list.push(gradient),
                None => alike.push((key, vec![gradient])),
            }
        }
        let Some(((first, _), _)) = alike.first() else {
            return Ok(());
        };
        let inverse = self.tensors_on(*first)?.inverse()?;
        for ((device, _), gradients) in &alike {
            let found = self.progress(rates).found_on(*device)?;
            foreach::unscale_(gradients, &found, &inverse.f_to_device(*device)?)?;
        }
        self.progress(rates).unscaled = parameters.len();
        Ok(())
    }

    fn update(&mut self, found: &[(Device, Tensor)]) -> Result<()> {
        if !self.kwargs.enabled {
            return Ok(());
        }
        let kwargs = self.kwargs;
        let (Some(tensors), false) = (self.tensors.as_mut(), found.is_empty()) else {
            return Err(Error::Argument {
                operation: "update a gradient scaler",
                expected: "an optimizer that has stepped since the last update".to_owned(),
                found: "none".to_owned(),
            });
        };
        tensors.keep_used()?;
        if let Some(rule) = &mut self.deepspeed {
            let mut is_overflow = false;
            for (_, one) in found {
                is_overflow |= one.f_double_value(&[])? != 0.0;
            }
            let scale = rule.next(tensors.scale.f_double_value(&[])?, is_overflow)?;
            let _ = tch::no_grad(|| tensors.scale.f_fill_(scale))?;
            return Ok(());
        }
        tch::no_grad(|| {
            let mut sum = Tensor::f_zeros_like(&tensors.scale)?;
            for (_, one) in found {
                let _ = sum.f_add_(&one.f_to_device(tensors.scale.device())?)?;
            }
            let _ = tensors.scale.f_internal_amp_update_scale_(
                &tensors.tracker,
                &sum,
                kwargs.growth_factor,
                kwargs.backoff_factor,
                i64::from(kwargs.growth_interval.get()),
            )?;
            Ok(())
        })
    }
}

impl Tensors {
    /// Keeps what losses were multiplied by before the scale changes.
    fn keep_used(&mut self) -> Result<()> {
        if self.used.is_none() {
            self.used = Some(tch::no_grad(|| self.scale.f_detach_copy())?);
        }
        Ok(())
    }

    /// One divided by what losses were multiplied by; in float64, as PyTorch does.
    fn inverse(&self) -> Result<Tensor> {
        let used = self.used.as_ref().unwrap_or(&self.scale);
        tch::no_grad(|| {
            Ok(used
                .f_to_kind(Kind::Double)?
                .f_reciprocal()?
                .f_to_kind(Kind::Float)?)
        })
    }
}

impl Progress {
    /// Takes what any rank found for what this one did, also where it has no gradients itself.
    ///
    /// # Collective
    /// Every rank calls this, whatever it has.
    fn share(&mut self, share: &Share, device: Device) -> Result<()> {
        let mut own = 0.0;
        for (_, found) in &self.found {
            own += found.f_double_value(&[])?;
        }
        let has_gradients = f64::from(u8::from(!self.found.is_empty()));
        let all = Tensor::from_slice(&[own, has_gradients]);
        let all = all.f_to_kind(Kind::Float)?.f_to_device(device)?;
        share(&all)?;
        if all.f_double_value(&[1])? > 0.0 {
            self.found = vec![(device, all.f_select(0, 0)?)];
        }
        Ok(())
    }

    fn found_on(&mut self, device: Device) -> Result<Tensor> {
        if let Some((_, found)) = self.found.iter().find(|(own, _)| *own == device) {
            return Ok(found.shallow_clone());
        }
        let found = Tensor::f_zeros([0i64; 0], (Kind::Float, device))?;
        self.found.push((device, found.shallow_clone()));
        Ok(found)
    }
}

impl fmt::Debug for GradScaler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GradScaler")
            .field("kwargs", &self.shared.borrow().kwargs)
            .finish_non_exhaustive()
    }
}

/// Whether a parameter is in both lists.
fn overlap(some: &[Tensor], others: &[Tensor]) -> bool {
    let identity = accelerate_torch::storage::identity;
    let some: std::collections::HashSet<usize> = some.iter().map(identity).collect();
    others.iter().any(|one| some.contains(&identity(one)))
}

fn order(operation: &'static str, optimizer: &str, expected: &str, found: &str) -> Error {
    Error::Argument {
        operation,
        expected: format!("`{optimizer}` {expected}"),
        found: found.to_owned(),
    }
}
