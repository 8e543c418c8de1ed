use accelerate_plan::parallel::deepspeed::{NamedOptimizer, OptimizerKind};

use super::refused::refused;
use crate::Result;
use crate::optim::{
    Adagrad, AdagradConfig, Adam, AdamConfig, AdamW, AdamWConfig, Lamb, LambConfig, Optimizer,
    ParamGroup, RmsProp, RmsPropConfig, Sgd, SgdConfig,
};

/// What the config may name.
const KNOWN: &str = "`Adam`, `AdamW`, `Adagrad`, `Lamb`, `SGD` or `RMSprop`";

/// Makes the optimizer that the config names, of `groups`.
///
/// # Errors
/// [`Error::Sharding`](crate::Error::Sharding) for one that this library does not have, with those that
/// it has; [`Error::Argument`](crate::Error::Argument) for a number that cannot be.
///
/// # Source
/// `DeepSpeedEngine._configure_basic_optimizer`. Differs: kernels are those of libtorch; LAMB's first
/// averages are corrected before the ratio of norms is taken.
pub(super) fn build(named: &NamedOptimizer, groups: Vec<ParamGroup>) -> Result<Box<dyn Optimizer>> {
    Ok(match named.kind {
        OptimizerKind::Adam {
            lr,
            betas,
            eps,
            weight_decay,
            bias_correction,
            is_decoupled,
        } => {
            corrected(named, bias_correction)?;
            match is_decoupled {
                true => Box::new(AdamW::new(
                    groups,
                    AdamWConfig {
                        lr,
                        betas,
                        eps,
                        weight_decay,
                        ..AdamWConfig::default()
                    },
                )?),
                false => Box::new(Adam::new(
                    groups,
                    AdamConfig {
                        lr,
                        betas,
                        eps,
                        weight_decay,
                        ..AdamConfig::default()
                    },
                )?),
            }
        }
        OptimizerKind::Adagrad {
            lr,
            eps,
            weight_decay,
        } => Box::new(Adagrad::new(
            groups,
            AdagradConfig {
                lr,
                eps,
                weight_decay,
                ..AdagradConfig::default()
            },
        )?),
        OptimizerKind::Lamb {
            lr,
            betas,
            eps,
            weight_decay,
            bias_correction,
            max_coeff,
            min_coeff,
        } => {
            corrected(named, bias_correction)?;
            Box::new(Lamb::new(
                groups,
                LambConfig {
                    lr,
                    betas,
                    eps,
                    weight_decay,
                    min_trust: min_coeff,
                    max_trust: max_coeff,
                    ..LambConfig::default()
                },
            )?)
        }
        OptimizerKind::Sgd {
            lr,
            momentum,
            dampening,
            weight_decay,
            nesterov,
            maximize,
        } => Box::new(Sgd::new(
            groups,
            SgdConfig {
                lr,
                momentum,
                dampening,
                weight_decay,
                nesterov,
                maximize,
            },
        )?),
        OptimizerKind::RmsProp {
            lr,
            alpha,
            eps,
            weight_decay,
            momentum,
            centered,
            maximize,
        } => Box::new(RmsProp::new(
            groups,
            RmsPropConfig {
                lr,
                alpha,
                eps,
                weight_decay,
                momentum,
                centered,
                maximize,
            },
        )?),
        OptimizerKind::Lion { .. }
        | OptimizerKind::OneBitAdam { .. }
        | OptimizerKind::Other { .. } => {
            return Err(unknown(named));
        }
    })
}

/// Refuses averages that are not corrected for their start at zero.
fn corrected(named: &NamedOptimizer, is_corrected: bool) -> Result<()> {
    match is_corrected {
        true => Ok(()),
        false => Err(refused(
            "optimizer.params.bias_correction",
            "false",
            format!("`true`: `{}` is made with it only", named.name),
            &named.origin,
        )),
    }
}

fn unknown(named: &NamedOptimizer) -> crate::Error {
    refused(
        "optimizer.type",
        named.name.as_str(),
        format!("an optimizer that this library has: {KNOWN}"),
        &named.origin,
    )
}
