//! What can be said in the words of DeepSpeed.

use std::num::NonZeroU32;

use crate::{
    Result,
    config::Value,
    env::{CONFIG_DS_FIELDS, Environment},
    parallel::fsdp,
    settings::{
        self, Fp8Backend, Fp8OptLevel, Key, Layer, OffloadDevice, Origin, Section, Settings,
        Sourced,
    },
};

/// A value, or that it is found out later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Auto<T> {
    /// To be found out.
    Auto,
    /// This one.
    Exactly(T),
}

/// DeepSpeed's own config, as it is handed over.
#[derive(Debug, Clone, PartialEq)]
pub enum ConfigSource {
    /// The path of a file, a JSON text, or a JSON text as URL-safe base64: whichever it is.
    Text(String),
    /// A map.
    Map(Value),
}

/// The fields of the DeepSpeed plugin, each with where it came from.
///
/// # Source
/// `DeepSpeedPlugin`. Differs: nothing is read from or written to the environment except by
/// [`DeepSpeedSettings::from_environment`], and what a launcher's config file gave is a field.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepSpeedSettings {
    /// DeepSpeed's own config, if there is one.
    pub config: Option<Sourced<ConfigSource>>,
    /// Batches over which gradients are added up.
    pub gradient_accumulation_steps: Sourced<Auto<NonZeroU32>>,
    /// Largest global norm of gradients; 0: they are never clipped.
    pub gradient_clipping: Sourced<Auto<f64>>,
    /// What is sharded: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too.
    pub zero_stage: Sourced<u64>,
    /// Where optimizer state is kept.
    pub offload_optimizer_device: Sourced<OffloadDevice>,
    /// Where parameters are kept.
    pub offload_param_device: Sourced<OffloadDevice>,
    /// Folder for optimizer state on disk.
    pub offload_optimizer_nvme_path: Option<Sourced<String>>,
    /// Folder for parameters on disk.
    pub offload_param_nvme_path: Option<Sourced<String>>,
    /// Whether a model is cut while it is built. Without a word: in stage 3.
    pub zero3_init_flag: Option<Sourced<bool>>,
    /// Whether a whole 16-bit model is gathered for saving.
    pub zero3_save_16bit_model: Sourced<bool>,
    /// Class names of mixtures of experts.
    pub moe_layer_classes: Sourced<Vec<String>>,
    /// How much MS-AMP keeps in FP8, where it computes.
    pub msamp: Option<Sourced<Fp8OptLevel>>,
    /// Names of those settings that the launcher's config file gave, the precision included. They may
    /// not be said again in DeepSpeed's own config.
    pub of_launch_file: Vec<String>,
}

impl Default for DeepSpeedSettings {
    fn default() -> Self {
        Self {
            config: None,
            gradient_accumulation_steps: Sourced::default_value(Auto::Auto),
            gradient_clipping: Sourced::default_value(Auto::Auto),
            zero_stage: Sourced::default_value(2),
            offload_optimizer_device: Sourced::default_value(OffloadDevice::None),
            offload_param_device: Sourced::default_value(OffloadDevice::None),
            offload_optimizer_nvme_path: None,
            offload_param_nvme_path: None,
            zero3_init_flag: None,
            zero3_save_16bit_model: Sourced::default_value(false),
            moe_layer_classes: Sourced::default_value(Vec::new()),
            msamp: None,
            of_launch_file: Vec::new(),
        }
    }
}

impl DeepSpeedSettings {
    /// A plugin that has DeepSpeed's config from the program.
    pub fn with_config(config: ConfigSource) -> Self {
        Self {
            config: Some(Sourced::by_program(config)),
            ..Self::default()
        }
    }

    /// What the settings of a launch say.
    pub fn of_launch(settings: &Settings) -> Self {
        let in_file = settings.iter().filter(|(entry, _, origin)| {
            let is_ours = entry.section == Section::DeepSpeed || entry.name == "mixed_precision";
            is_ours && matches!(origin, Origin::File { .. })
        });
        Self {
            of_launch_file: in_file.map(|(entry, ..)| entry.name.to_owned()).collect(),
            ..Self::over(settings)
        }
    }

    /// What a process is told by its environment.
    ///
    /// # Errors
    /// [`crate::Error::InvalidVariable`] for a variable with a text that is not allowed.
    pub fn from_environment(env: &Environment) -> Result<Self> {
        let settings = Settings::resolve([Layer::from_env(env)?]);
        let in_file = env.get(&CONFIG_DS_FIELDS)?.unwrap_or_default();
        Ok(Self {
            of_launch_file: fsdp::names(&in_file),
            ..Self::over(&settings)
        })
    }

    /// The defaults with everything that somebody chose in its place.
    fn over(given: &Settings) -> Self {
        let plain = Self::default();
        let classes = given.given(&settings::DEEPSPEED_MOE_LAYER_CLS_NAMES);
        let is_msamp = given.get(&settings::FP8_BACKEND) == Some(Fp8Backend::Msamp);
        let level = given.given(&settings::FP8_OPT_LEVEL);
        Self {
            config: text(given, &settings::DEEPSPEED_CONFIG_FILE).map(|named| Sourced {
                value: ConfigSource::Text(named.value),
                origin: named.origin,
            }),
            gradient_accumulation_steps: exactly(given, &settings::GRADIENT_ACCUMULATION_STEPS),
            gradient_clipping: exactly(given, &settings::GRADIENT_CLIPPING),
            zero_stage: or(given, &settings::ZERO_STAGE, plain.zero_stage),
            offload_optimizer_device: or(
                given,
                &settings::OFFLOAD_OPTIMIZER_DEVICE,
                plain.offload_optimizer_device,
            ),
            offload_param_device: or(
                given,
                &settings::OFFLOAD_PARAM_DEVICE,
                plain.offload_param_device,
            ),
            offload_optimizer_nvme_path: text(given, &settings::OFFLOAD_OPTIMIZER_NVME_PATH),
            offload_param_nvme_path: text(given, &settings::OFFLOAD_PARAM_NVME_PATH),
            zero3_init_flag: given.given(&settings::ZERO3_INIT_FLAG),
            zero3_save_16bit_model: or(
                given,
                &settings::ZERO3_SAVE_16BIT_MODEL,
                plain.zero3_save_16bit_model,
            ),
            moe_layer_classes: classes.map_or(plain.moe_layer_classes, |classes| Sourced {
                value: fsdp::names(&classes.value),
                origin: classes.origin,
            }),
            msamp: is_msamp
                .then(|| level.unwrap_or_else(|| Sourced::default_value(Fp8OptLevel::O1))),
            of_launch_file: Vec::new(),
        }
    }
}

fn or<T>(given: &Settings, key: &Key<T>, default: Sourced<T>) -> Sourced<T> {
    given.given(key).unwrap_or(default)
}

fn exactly<T>(given: &Settings, key: &Key<T>) -> Sourced<Auto<T>> {
    match given.given(key) {
        Some(given) => Sourced {
            value: Auto::Exactly(given.value),
            origin: given.origin,
        },
        None => Sourced::default_value(Auto::Auto),
    }
}

/// A text, unless it says that there is none.
fn text(given: &Settings, key: &Key<String>) -> Option<Sourced<String>> {
    given.given(key).filter(|given| given.value != "none")
}
