//! The optimizer that DeepSpeed's config names.

use indexmap::IndexMap;

use super::document::{Document, dotted};
use super::params::Params;
use crate::{config::Value, parallel::PlanError, settings::Origin};

type Result<T> = std::result::Result<T, PlanError>;

const PARAMS: &str = "optimizer.params";

/// An optimizer by name, with every value it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedOptimizer {
    /// The name, as it stands in the config.
    pub name: String,
    /// What it is.
    pub kind: OptimizerKind,
    /// Where the name stands.
    pub origin: Origin,
}

/// What an optimizer is.
#[derive(Debug, Clone, PartialEq)]
pub enum OptimizerKind {
    /// Adam.
    Adam {
        /// Learning rate.
        lr: f64,
        /// Decay of the two averages.
        betas: (f64, f64),
        /// What keeps the division from zero.
        eps: f64,
        /// Weight decay.
        weight_decay: f64,
        /// Whether the averages are corrected for their start at zero.
        bias_correction: bool,
        /// Whether the decay acts on the weights rather than on the gradients (AdamW).
        is_decoupled: bool,
    },
    /// Adagrad.
    Adagrad {
        /// Learning rate.
        lr: f64,
        /// What keeps the division from zero.
        eps: f64,
        /// Weight decay.
        weight_decay: f64,
    },
    /// LAMB.
    Lamb {
        /// Learning rate.
        lr: f64,
        /// Decay of the two averages.
        betas: (f64, f64),
        /// What keeps the division from zero.
        eps: f64,
        /// Weight decay.
        weight_decay: f64,
        /// Whether the averages are corrected for their start at zero.
        bias_correction: bool,
        /// Largest ratio of the norms of weight and update.
        max_coeff: f64,
        /// Least one.
        min_coeff: f64,
    },
    /// Lion.
    Lion {
        /// Learning rate.
        lr: f64,
        /// Weights of the average in the update, and its decay.
        betas: (f64, f64),
        /// Weight decay.
        weight_decay: f64,
    },
    /// Adam that sends signs after a warm-up. Not possible with ZeRO.
    OneBitAdam {
        /// Learning rate.
        lr: f64,
        /// Decay of the two averages.
        betas: (f64, f64),
        /// What keeps the division from zero.
        eps: f64,
        /// Weight decay.
        weight_decay: f64,
        /// Steps of the warm-up.
        freeze_step: u64,
    },
    /// PyTorch's SGD.
    Sgd {
        /// Learning rate.
        lr: f64,
        /// How much of the last update is in the next one.
        momentum: f64,
        /// How much less of the gradient.
        dampening: f64,
        /// Weight decay.
        weight_decay: f64,
        /// Whether the momentum is Nesterov's.
        nesterov: bool,
        /// Whether the loss is to grow.
        maximize: bool,
    },
    /// PyTorch's RMSprop.
    RmsProp {
        /// Learning rate.
        lr: f64,
        /// Decay of the average of squares.
        alpha: f64,
        /// What keeps the division from zero.
        eps: f64,
        /// Weight decay.
        weight_decay: f64,
        /// How much of the last update is in the next one.
        momentum: f64,
        /// Whether gradients are measured from their average.
        centered: bool,
        /// Whether the loss is to grow.
        maximize: bool,
    },
    /// Another one of PyTorch's or of DeepSpeed's, with its parameters as they stand.
    Other {
        /// Parameters by name.
        params: IndexMap<String, Value>,
    },
}

impl NamedOptimizer {
    /// The optimizer that a config names; [`None`] if it names none.
    ///
    /// # Errors
    /// [`PlanError::Value`] for a parameter that the optimizer does not have, for `max_grad_norm`,
    /// `amsgrad` and `eps_inside_sqrt`, and for a one-bit optimizer with ZeRO.
    pub(super) fn of(document: &Document, stage: u64) -> Result<Option<Self>> {
        if !document.has("optimizer") {
            return Ok(None);
        }
        let Some(name) = document.text("optimizer.type")? else {
            return Err(document.refuse("optimizer.type", "the name of an optimizer"));
        };
        let clip = dotted(PARAMS, "max_grad_norm");
        if document.has(&clip) {
            return Err(
                document.refuse(&clip, "`gradient_clipping` outside of `optimizer` instead")
            );
        }
        let kind = kind(document, &name)?;
        let sends_bits = ["onebitadam", "onebitlamb", "zerooneadam"];
        if stage > 0 && sends_bits.contains(&name.to_ascii_lowercase().as_str()) {
            let expected = format!("another optimizer with ZeRO, which has stage {stage} here");
            return Err(document.refuse("optimizer.type", expected));
        }
        Ok(Some(Self {
            name,
            kind,
            origin: document.origin("optimizer.type"),
        }))
    }
}

fn kind(document: &Document, name: &str) -> Result<OptimizerKind> {
    let params = Params::new(document, PARAMS);
    let kind = match name.to_ascii_lowercase().as_str() {
        plain @ ("adam" | "adamw") => {
            params.only(&[
                "lr",
                "betas",
                "eps",
                "weight_decay",
                "bias_correction",
                "torch_adam",
                "adam_w_mode",
                "amsgrad",
                "fused",
                "set_grad_none",
            ])?;
            params.off("amsgrad")?;
            OptimizerKind::Adam {
                lr: params.number("lr", 1e-3)?,
                betas: params.pair("betas", (0.9, 0.999))?,
                eps: params.number("eps", 1e-8)?,
                weight_decay: params.number("weight_decay", 0.0)?,
                bias_correction: params.flag("bias_correction", true)?,
                is_decoupled: plain == "adamw" || params.flag("adam_w_mode", true)?,
            }
        }
        "adagrad" => {
            params.only(&["lr", "eps", "weight_decay", "amsgrad"])?;
            params.off("amsgrad")?;
            OptimizerKind::Adagrad {
                lr: params.number("lr", 1e-2)?,
                eps: params.number("eps", 1e-10)?,
                weight_decay: params.number("weight_decay", 0.0)?,
            }
        }
        "lamb" => {
            params.only(&[
                "lr",
                "betas",
                "eps",
                "weight_decay",
                "bias_correction",
                "max_coeff",
                "min_coeff",
                "eps_inside_sqrt",
                "amsgrad",
            ])?;
            params.off("amsgrad")?;
            params.off("eps_inside_sqrt")?;
            OptimizerKind::Lamb {
                lr: params.number("lr", 1e-3)?,
                betas: params.pair("betas", (0.9, 0.999))?,
                eps: params.number("eps", 1e-8)?,
                weight_decay: params.number("weight_decay", 0.0)?,
                bias_correction: params.flag("bias_correction", true)?,
                max_coeff: params.number("max_coeff", 10.0)?,
                min_coeff: params.number("min_coeff", 0.01)?,
            }
        }
        "lion" => {
            params.only(&["lr", "betas", "weight_decay", "set_grad_none"])?;
            OptimizerKind::Lion {
                lr: params.number("lr", 1e-3)?,
                betas: params.pair("betas", (0.9, 0.999))?,
                weight_decay: params.number("weight_decay", 0.0)?,
            }
        }
        "onebitadam" => {
            params.only(&[
                "lr",
                "betas",
                "eps",
                "weight_decay",
                "freeze_step",
                "cuda_aware",
                "comm_backend_name",
                "bias_correction",
                "amsgrad",
            ])?;
            params.off("amsgrad")?;
            OptimizerKind::OneBitAdam {
                lr: params.number("lr", 1e-3)?,
                betas: params.pair("betas", (0.9, 0.999))?,
                eps: params.number("eps", 1e-8)?,
                weight_decay: params.number("weight_decay", 0.0)?,
                freeze_step: document.whole(&dotted(PARAMS, "freeze_step"), 100_000)?,
            }
        }
        // By PyTorch's name, case and all.
        _ => match name {
            "SGD" => sgd(&params)?,
            "RMSprop" => rms_prop(&params)?,
            _ => OptimizerKind::Other {
                params: params.all(),
            },
        },
    };
    Ok(kind)
}

fn sgd(params: &Params<'_>) -> Result<OptimizerKind> {
    params.only(&[
        "lr",
        "momentum",
        "dampening",
        "weight_decay",
        "nesterov",
        "maximize",
    ])?;
    Ok(OptimizerKind::Sgd {
        lr: params.number("lr", 1e-3)?,
        momentum: params.number("momentum", 0.0)?,
        dampening: params.number("dampening", 0.0)?,
        weight_decay: params.number("weight_decay", 0.0)?,
        nesterov: params.flag("nesterov", false)?,
        maximize: params.flag("maximize", false)?,
    })
}

fn rms_prop(params: &Params<'_>) -> Result<OptimizerKind> {
    params.only(&[
        "lr",
        "alpha",
        "eps",
        "weight_decay",
        "momentum",
        "centered",
        "maximize",
    ])?;
    Ok(OptimizerKind::RmsProp {
        lr: params.number("lr", 1e-2)?,
        alpha: params.number("alpha", 0.99)?,
        eps: params.number("eps", 1e-8)?,
        weight_decay: params.number("weight_decay", 0.0)?,
        momentum: params.number("momentum", 0.0)?,
        centered: params.flag("centered", false)?,
        maximize: params.flag("maximize", false)?,
    })
}
