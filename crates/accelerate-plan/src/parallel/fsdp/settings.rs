//! What can be said in the words of FSDP.

use super::PrecisionPolicy;
use crate::{
    Result,
    env::Environment,
    settings::{
        self, AutoWrapPolicy, BackwardPrefetch, FsdpVersion, Key, Layer, ReshardAfterForward,
        Settings, ShardingStrategy, Sourced, StateDictType,
    },
};

/// The settings of FSDP, of either version, each with where it came from.
///
/// [`FsdpSettings::default`] has what the plugin of the original has when nothing is said;
/// [`FsdpSettings::of_launch`] what its launcher has, which differs for four of them.
///
/// # Source
/// `FullyShardedDataParallelPlugin`. Differs: nothing is read from or written to the environment
/// except by [`FsdpSettings::from_environment`].
#[derive(Debug, Clone, PartialEq)]
pub struct FsdpSettings {
    /// Which version of the words.
    pub version: Sourced<FsdpVersion>,
    /// What is sharded over which ranks. Version 1; a deprecated word in version 2.
    pub strategy: Option<Sourced<ShardingStrategy>>,
    /// Whether parameters are dropped after the forward pass (version 2), or another word for the
    /// strategy (version 1).
    pub reshard_after_forward: Option<Sourced<ReshardAfterForward>>,
    /// When the next unit is gathered in the backward pass.
    pub backward_prefetch: Option<Sourced<BackwardPrefetch>>,
    /// Whether the next unit is gathered early in the forward pass.
    pub forward_prefetch: Sourced<bool>,
    /// Types of numbers, where not those of the accelerator's precision.
    pub policy: Option<Sourced<PrecisionPolicy>>,
    /// Which modules become units.
    pub wrap: Sourced<AutoWrapPolicy>,
    /// Their class names; those that the model names if there are none.
    pub classes: Sourced<Vec<String>>,
    /// Parameters from which a module becomes a unit; 0: only the root is one.
    pub min_num_params: Sourced<u64>,
    /// Whether parameters, gradients and the optimizer are in CPU memory.
    pub offload: Sourced<bool>,
    /// Pattern of the names of modules that stay whole.
    pub ignored: Option<Sourced<String>>,
    /// How the model is saved.
    pub state_dict_type: Option<Sourced<StateDictType>>,
    /// Whether a state that is gathered for saving lies in CPU memory.
    pub state_dict_offload_to_cpu: Option<Sourced<bool>>,
    /// Whether only rank 0 gets a whole state.
    pub state_dict_rank0_only: Option<Sourced<bool>>,
    /// Whether at most two gathers are on their way at once.
    pub limit_all_gathers: Sourced<bool>,
    /// Whether modules show their own parameters.
    pub use_orig_params: Sourced<bool>,
    /// Whether rank 0's values are sent to all.
    pub sync_module_states: Sourced<bool>,
    /// Whether activations are computed again.
    pub activation_checkpointing: Sourced<bool>,
    /// Whether what is kept for that waits in CPU memory.
    pub activation_checkpointing_offload: Sourced<bool>,
    /// Whether only one process reads the weights.
    pub cpu_ram_efficient_loading: Sourced<bool>,
}

impl Default for FsdpSettings {
    fn default() -> Self {
        Self {
            version: Sourced::default_value(FsdpVersion::One),
            strategy: None,
            reshard_after_forward: None,
            backward_prefetch: None,
            forward_prefetch: Sourced::default_value(false),
            policy: None,
            wrap: Sourced::default_value(AutoWrapPolicy::NoWrap),
            classes: Sourced::default_value(Vec::new()),
            min_num_params: Sourced::default_value(0),
            offload: Sourced::default_value(false),
            ignored: None,
            state_dict_type: None,
            state_dict_offload_to_cpu: None,
            state_dict_rank0_only: None,
            limit_all_gathers: Sourced::default_value(true),
            use_orig_params: Sourced::default_value(false),
            sync_module_states: Sourced::default_value(false),
            activation_checkpointing: Sourced::default_value(false),
            activation_checkpointing_offload: Sourced::default_value(false),
            cpu_ram_efficient_loading: Sourced::default_value(false),
        }
    }
}

impl FsdpSettings {
    /// What the settings of a launch say, with the launcher's defaults: they show the plan that the
    /// processes will make of what they are told.
    pub fn of_launch(settings: &Settings) -> Self {
        let defaults = Self {
            min_num_params: by_launcher(&settings::FSDP_MIN_NUM_PARAMS, 0),
            use_orig_params: by_launcher(&settings::FSDP_USE_ORIG_PARAMS, false),
            sync_module_states: by_launcher(&settings::FSDP_SYNC_MODULE_STATES, false),
            cpu_ram_efficient_loading: by_launcher(
                &settings::FSDP_CPU_RAM_EFFICIENT_LOADING,
                false,
            ),
            ..Self::default()
        };
        Self::over(defaults, settings)
    }

    /// What a process is told by its environment. Nothing but its variables and the defaults count.
    ///
    /// # Errors
    /// [`crate::Error::InvalidVariable`] for a variable with a text that is not allowed.
    pub fn from_environment(env: &Environment) -> Result<Self> {
        let settings = Settings::resolve([Layer::from_env(env)?]);
        Ok(Self::over(Self::default(), &settings))
    }

    /// `defaults` with everything that somebody chose in its place.
    fn over(defaults: Self, given: &Settings) -> Self {
        let classes = given.given(&settings::FSDP_TRANSFORMER_LAYER_CLS_TO_WRAP);
        Self {
            version: given.given(&settings::FSDP_VERSION).unwrap_or(defaults.version),
            strategy: given.given(&settings::FSDP_SHARDING_STRATEGY),
            reshard_after_forward: given.given(&settings::FSDP_RESHARD_AFTER_FORWARD),
            backward_prefetch: given.given(&settings::FSDP_BACKWARD_PREFETCH),
            forward_prefetch: or(given, &settings::FSDP_FORWARD_PREFETCH, defaults.forward_prefetch),
            wrap: or(given, &settings::FSDP_AUTO_WRAP_POLICY, defaults.wrap),
            classes: classes.map_or(defaults.classes, |classes| Sourced {
                value: names(&classes.value),
                origin: classes.origin,
            }),
            min_num_params: or(given, &settings::FSDP_MIN_NUM_PARAMS, defaults.min_num_params),
            offload: or(given, &settings::FSDP_OFFLOAD_PARAMS, defaults.offload),
            ignored: given.given(&settings::FSDP_IGNORED_MODULES),
            state_dict_type: given.given(&settings::FSDP_STATE_DICT_TYPE),
            use_orig_params: or(given, &settings::FSDP_USE_ORIG_PARAMS, defaults.use_orig_params),
            sync_module_states: or(
                given,
                &settings::FSDP_SYNC_MODULE_STATES,
                defaults.sync_module_states,
            ),
            activation_checkpointing: or(
                given,
                &settings::FSDP_ACTIVATION_CHECKPOINTING,
                defaults.activation_checkpointing,
            ),
            activation_checkpointing_offload: or(
                given,
                &settings::FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD,
                defaults.activation_checkpointing_offload,
            ),
            cpu_ram_efficient_loading: or(
                given,
                &settings::FSDP_CPU_RAM_EFFICIENT_LOADING,
                defaults.cpu_ram_efficient_loading,
            ),
            ..defaults
        }
    }
}

fn by_launcher<T>(key: &Key<T>, otherwise: T) -> Sourced<T> {
    Sourced::default_value(key.default().unwrap_or(otherwise))
}

fn or<T>(given: &Settings, key: &Key<T>, default: Sourced<T>) -> Sourced<T> {
    given.given(key).unwrap_or(default)
}

/// The names of a list with commas between.
pub(in crate::parallel) fn names(text: &str) -> Vec<String> {
    let names = text.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}
