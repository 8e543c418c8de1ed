use accelerate_plan::config::Value;
use accelerate_plan::parallel::deepspeed::{NamedOptimizer, OptimizerKind};
use indexmap::IndexMap;

use super::params::{Params, refused};
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
        OptimizerKind::Other { ref params } => other(named, params, groups)?,
        OptimizerKind::Lion { .. } | OptimizerKind::OneBitAdam { .. } => {
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

/// One that DeepSpeed takes from PyTorch by PyTorch's name, case and all.
fn other(
    named: &NamedOptimizer,
    values: &IndexMap<String, Value>,
    groups: Vec<ParamGroup>,
) -> Result<Box<dyn Optimizer>> {
    let params = Params {
        values,
        map: "optimizer.params",
        origin: &named.origin,
    };
    Ok(match named.name.as_str() {
        "SGD" => Box::new(Sgd::new(groups, sgd(&params)?)?),
        "RMSprop" => Box::new(RmsProp::new(groups, rms_prop(&params)?)?),
        _ => return Err(unknown(named)),
    })
}

fn sgd(params: &Params<'_>) -> Result<SgdConfig> {
    params.only(&[
        "lr",
        "momentum",
        "dampening",
        "weight_decay",
        "nesterov",
        "maximize",
    ])?;
    Ok(SgdConfig {
        lr: params.number("lr", 1e-3)?,
        momentum: params.number("momentum", 0.0)?,
        dampening: params.number("dampening", 0.0)?,
        weight_decay: params.number("weight_decay", 0.0)?,
        nesterov: params.flag("nesterov", false)?,
        maximize: params.flag("maximize", false)?,
    })
}

fn rms_prop(params: &Params<'_>) -> Result<RmsPropConfig> {
    params.only(&[
        "lr",
        "alpha",
        "eps",
        "weight_decay",
        "momentum",
        "centered",
        "maximize",
    ])?;
    let plain = RmsPropConfig::default();
    Ok(RmsPropConfig {
        lr: params.number("lr", plain.lr)?,
        alpha: params.number("alpha", plain.alpha)?,
        eps: params.number("eps", plain.eps)?,
        weight_decay: params.number("weight_decay", plain.weight_decay)?,
        momentum: params.number("momentum", plain.momentum)?,
        centered: params.flag("centered", plain.centered)?,
        maximize: params.flag("maximize", plain.maximize)?,
    })
}

fn unknown(named: &NamedOptimizer) -> crate::Error {
    refused(
        "optimizer.type",
        named.name.as_str(),
        format!("an optimizer that this library has: {KNOWN}"),
        &named.origin,
    )
}
