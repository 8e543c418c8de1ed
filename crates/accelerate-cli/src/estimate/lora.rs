//! Training of adapters of low rank beside frozen weights.
//!
//! An adapter of rank r beside a weight of `rows` x `columns` (all dimensions but the first
//! together) is two weights: r x `columns` and `rows` x r. Only these are trained, in float32.

use std::num::NonZeroU64;

use accelerate_plan::{config::nearest, device_map::ElementType, parallel::FloatType};
use clap::Args;
use serde::Serialize;

use super::{
    config::Config,
    dtypes::LoadDtype,
    error::{EstimateError, Result},
    training::{Inventory, Weight},
};

/// Which adapters are trained.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct LoraArgs {
    /// Train adapters of this rank, and freeze all weights; implies `--plans`
    #[arg(long = "lora_rank", value_name = "RANK")]
    pub(crate) lora_rank: Option<NonZeroU64>,

    /// Modules with an adapter, by the end of their names [default: those that are usual for the
    /// type of the model]
    #[arg(
        long = "lora_target_modules",
        value_name = "NAME,...",
        value_delimiter = ',',
        requires = "lora_rank"
    )]
    pub(crate) lora_target_modules: Vec<String>,

    /// Type of the frozen weights beside adapters
    #[arg(
        long = "base_dtype",
        value_enum,
        value_name = "DTYPE",
        default_value = "bfloat16",
        requires = "lora_rank"
    )]
    pub(crate) base_dtype: LoadDtype,
}

impl LoraArgs {
    /// The inventory that is trained under these flags, and what is adapted of it.
    ///
    /// # Errors
    /// Those of [`adapt`].
    pub(crate) fn apply(
        &self,
        inventory: Inventory,
        config: Option<&Config>,
    ) -> Result<(Inventory, Option<Lora>)> {
        let Some(rank) = self.lora_rank else {
            return Ok((inventory, None));
        };
        let wanted = Wanted {
            rank: rank.get(),
            target_modules: &self.lora_target_modules,
            base: self.base_dtype,
        };
        let (inventory, lora) = adapt(inventory, &wanted, config)?;
        Ok((inventory, Some(lora)))
    }
}

/// What is adapted, and what was found of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Lora {
    pub(crate) rank: u64,
    pub(crate) target_modules: Vec<String>,
    /// How many modules got an adapter.
    pub(crate) adapted_modules: usize,
    pub(crate) trainable_parameters: u64,
    pub(crate) frozen_parameters: u64,
    /// The type that frozen weights are loaded in.
    pub(crate) base_dtype: &'static str,
}

/// The modules that are usually adapted, by type of model.
const USUAL: [(&[&str], &[&str]); 9] = [
    (
        &[
            "llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2",
        ],
        &["q_proj", "v_proj"],
    ),
    (&["gpt2"], &["c_attn"]),
    (&["gpt_neox"], &["query_key_value"]),
    (&["opt"], &["q_proj", "v_proj"]),
    (&["phi"], &["q_proj", "v_proj", "fc1", "fc2"]),
    (&["phi3"], &["qkv_proj"]),
    (&["t5", "mt5"], &["q", "v"]),
    (
        &["bert", "roberta", "xlm-roberta", "camembert", "vit"],
        &["query", "value"],
    ),
    (&["distilbert"], &["q_lin", "v_lin"]),
];

/// What was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted<'a> {
    pub(crate) rank: u64,
    /// Empty: those that are usual for the type of the model.
    pub(crate) target_modules: &'a [String],
    pub(crate) base: LoadDtype,
}

/// Freezes all weights of an inventory and puts adapters beside those that are meant.
///
/// # Errors
/// [`EstimateError::NoUsualTargets`] if nothing says which, [`EstimateError::NoTargets`] if a name
/// is that of no weight with two dimensions.
pub(crate) fn adapt(
    inventory: Inventory,
    wanted: &Wanted<'_>,
    config: Option<&Config>,
) -> Result<(Inventory, Lora)> {
    let targets = targets(wanted, config)?;
    let is_target = |weight: &&Weight| targets.iter().any(|target| is_meant(weight, target));
    for target in &targets {
        if !inventory
            .trainable
            .iter()
            .any(|weight| is_meant(weight, target))
        {
            return Err(no_target(target, &inventory));
        }
    }
    let adapted: Vec<&Weight> = inventory.trainable.iter().filter(is_target).collect();
    let adapters: Vec<Weight> = adapted
        .iter()
        .flat_map(|weight| adapter(weight, wanted.rank))
        .collect();
    let adapted_modules = adapted.len();
    let frozen_parameters = inventory.elements();
    let mut fixed_bytes = inventory.fixed_bytes;
    let (frozen, frozen_dtype) = match float_type(wanted.base) {
        Some(dtype) => (inventory.trainable, Some(dtype)),
        // Quantised weights are whole on every process.
        None => {
            let bytes = wanted.base.element().of(frozen_parameters).bytes();
            fixed_bytes = fixed_bytes.saturating_add(bytes);
            (Vec::new(), None)
        }
    };
    let inventory = Inventory {
        trainable: adapters,
        frozen,
        frozen_dtype,
        fixed_bytes,
    };
    let lora = Lora {
        rank: wanted.rank,
        target_modules: targets,
        adapted_modules,
        trainable_parameters: inventory.elements(),
        frozen_parameters,
        base_dtype: wanted.base.name(),
    };
    Ok((inventory, lora))
}

fn targets(wanted: &Wanted<'_>, config: Option<&Config>) -> Result<Vec<String>> {
    if !wanted.target_modules.is_empty() {
        return Ok(wanted.target_modules.to_vec());
    }
    let model_type = match config {
        Some(config) => config.text("model_type")?,
        None => None,
    };
    let usual = model_type.and_then(|model_type| {
        let mut usual = USUAL.iter();
        usual.find(|(types, _)| types.contains(&model_type))
    });
    let usual = usual.ok_or_else(|| EstimateError::NoUsualTargets {
        model_type: model_type.map(str::to_owned),
    });
    usual.map(|(_, names)| names.iter().map(|name| (*name).to_owned()).collect())
}

/// The module of a weight that can be adapted.
fn module(weight: &Weight) -> Option<&str> {
    let module = weight.name.strip_suffix(".weight")?;
    (weight.shape.len() >= 2).then_some(module)
}

/// A name stands for all modules that end with it.
fn is_meant(weight: &Weight, target: &str) -> bool {
    module(weight).is_some_and(|module| {
        let rest = module.strip_suffix(target);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

fn adapter(weight: &Weight, rank: u64) -> [Weight; 2] {
    let rows = weight.shape.first().copied().unwrap_or(1);
    let columns = weight.elements() / rows.max(1);
    let half = |name: &str, shape: [u64; 2]| Weight {
        name: format!("{}.{name}", weight.name),
        shape: shape.to_vec(),
        block: weight.block,
    };
    [
        half("lora_A", [rank, columns]),
        half("lora_B", [rows, rank]),
    ]
}

fn no_target(target: &str, inventory: &Inventory) -> EstimateError {
    let mut known: Vec<String> = Vec::new();
    for module in inventory.trainable.iter().filter_map(module) {
        let name = module.rsplit('.').next().unwrap_or(module);
        if !known.iter().any(|known| known == name) && name.parse::<u64>().is_err() {
            known.push(name.to_owned());
        }
    }
    EstimateError::NoTargets {
        nearest: nearest(target, known.iter().map(String::as_str)).map(str::to_owned),
        target: target.to_owned(),
        known,
    }
}

/// The type of weights that can be cut into shards; quantised ones cannot.
fn float_type(dtype: LoadDtype) -> Option<FloatType> {
    match dtype.element() {
        ElementType::Float32 => Some(FloatType::Float32),
        ElementType::Float16 => Some(FloatType::Float16),
        ElementType::BFloat16 => Some(FloatType::BFloat16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory() -> Inventory {
        let weight = |name: &str, shape: &[u64], block| Weight {
            name: name.to_owned(),
            shape: shape.to_vec(),
            block,
        };
        Inventory {
            trainable: vec![
                weight("embed.weight", &[100, 8], None),
                weight("h.0.q_proj.weight", &[16, 8], Some(0)),
                weight("h.0.q_proj.bias", &[16], Some(0)),
                weight("h.1.q_proj.weight", &[16, 8], Some(1)),
                weight("h.1.conv.weight", &[4, 2, 3, 3], Some(1)),
            ],
            fixed_bytes: 5,
            ..Inventory::default()
        }
    }

    fn adapted(targets: &[&str], base: LoadDtype) -> Result<(Inventory, Lora)> {
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let wanted = Wanted {
            rank: 2,
            target_modules: &targets,
            base,
        };
        adapt(inventory(), &wanted, None)
    }

    #[test]
    fn only_adapters_are_trained() {
        let (inventory, lora) = adapted(&["q_proj"], LoadDtype::Bfloat16).unwrap();
        assert_eq!(
            (lora.adapted_modules, lora.trainable_parameters),
            (2, 2 * 2 * (16 + 8))
        );
        assert_eq!(lora.frozen_parameters, 800 + 2 * 128 + 16 + 72);
        assert_eq!(inventory.frozen_dtype, Some(FloatType::BFloat16));
        assert_eq!(inventory.trainable[0].block, Some(0));
        let (_, lora) = adapted(&["conv", "embed"], LoadDtype::Bfloat16).unwrap();
        assert_eq!(lora.trainable_parameters, 2 * (4 + 18) + 2 * (100 + 8));
    }

    #[test]
    fn a_quantised_base_is_whole_everywhere() {
        let (inventory, lora) = adapted(&["q_proj"], LoadDtype::Int4).unwrap();
        assert!(inventory.frozen.is_empty());
        assert_eq!(inventory.fixed_bytes, 5 + lora.frozen_parameters / 2);
    }

    #[test]
    fn names_of_nothing_are_told_with_what_there_is() {
        let error = adapted(&["q_proj", "v_prj"], LoadDtype::Float32).unwrap_err();
        let EstimateError::NoTargets { target, known, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(target, "v_prj");
        assert_eq!(known, &["embed", "q_proj", "conv"]);
        let error = adapted(&["proj"], LoadDtype::Float32).unwrap_err();
        assert!(
            matches!(error, EstimateError::NoTargets { nearest: Some(near), .. } if near == "q_proj")
        );
        let error = adapted(&[], LoadDtype::Float32).unwrap_err();
        assert!(matches!(
            error,
            EstimateError::NoUsualTargets { model_type: None }
        ));
    }
}
