//! Why a size could not be estimated, and what to do.

use std::{io, path::PathBuf, process::ExitCode};

use accelerate_plan::{Hint, config::ConfigError, device_map::DeviceMapError, parallel::PlanError};

pub(crate) type Result<T, E = EstimateError> = std::result::Result<T, E>;

/// Why `accelerate estimate-memory` could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum EstimateError {
    #[error(
        "no model `{model}`: there is no such file or folder, and as a name on the hub {fault}"
    )]
    NoSuchModel { model: String, fault: &'static str },

    #[error(
        "cannot count `{}`: expected a folder, a `config.json`, a safetensors file or its index",
        path.display()
    )]
    UnknownFile { path: PathBuf },

    #[error("neither a `config.json` nor weights in `{}`", folder.display())]
    NothingToCount { folder: PathBuf },

    #[error("`{id}` is not in the cache `{}`", cache.display())]
    NotCached {
        id: String,
        name: String,
        cache: PathBuf,
        offline: bool,
    },

    #[error(
        "no folder for the cache of the hub: neither `HF_HUB_CACHE`, `HF_HOME` nor a home folder is known"
    )]
    NoCacheFolder,

    #[cfg(feature = "hub")]
    #[error("no model `{id}` with a `config.json` at {endpoint}")]
    NotOnHub { id: String, endpoint: String },

    #[cfg(feature = "hub")]
    #[error("{endpoint} does not let you see `{id}`")]
    Gated {
        id: String,
        endpoint: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    #[cfg(feature = "hub")]
    #[error("cannot fetch the `config.json` of `{id}` from {endpoint}")]
    Fetch {
        id: String,
        endpoint: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    #[error("cannot read `{}`", path.display())]
    ConfigUnreadable { path: PathBuf, source: io::Error },

    #[error("`{}` is no configuration: expected a file of at most 16 MB", path.display())]
    NoConfigFile { path: PathBuf },

    #[error("`{}` is no JSON object", path.display())]
    ConfigNotJson {
        path: PathBuf,
        source: serde_json::Error,
    },

    #[error("`{key}` in `{}`: expected {expected}, found `{found}`", path.display())]
    ConfigValue {
        path: PathBuf,
        key: &'static str,
        expected: &'static str,
        found: String,
    },

    #[error("`{}` describes a model beyond all memory (16 EiB)", path.display())]
    TooLarge { path: PathBuf },

    #[error("`{}` does not say which library the model belongs to", path.display())]
    NoLibrary { path: PathBuf },

    #[error("`{}` holds no model of `{library}`: the key `{key}` is missing", path.display())]
    OtherLibrary {
        path: PathBuf,
        library: &'static str,
        key: &'static str,
    },

    #[error("models of type `{model_type}` (`{}`) are not known here, and there are no weights to count", path.display())]
    UnknownModelType {
        path: PathBuf,
        model_type: String,
        known: Vec<&'static str>,
    },

    #[error(
        "`{}` takes its model from Python code beside it (`auto_map`), type `{model_type}`, and there are no weights to count",
        path.display()
    )]
    RemoteCode {
        path: PathBuf,
        model_type: String,
        trusted: bool,
    },

    #[error("no class `{class}` for models of type `{model_type}`")]
    UnknownClass {
        class: String,
        model_type: &'static str,
        known: Vec<&'static str>,
    },

    #[error("timm's `{name}` is not known here, and there are no weights to count")]
    UnknownTimm {
        name: String,
        known: Vec<&'static str>,
    },

    #[error("cannot count the weights")]
    Weights(#[source] accelerate_formats::Error),

    #[error("{num_processes} processes cannot be shared out evenly over {num_machines} machines")]
    UnevenMachines {
        num_processes: u64,
        num_machines: u64,
    },

    #[error("models of type `{model_type}` (`{}`) keep no keys and values: they read all tokens at once", path.display())]
    NoCache { path: PathBuf, model_type: String },

    #[error(
        "`{}` does not tell the size of the cache of keys and values: expected one of {}",
        path.display(),
        quoted(keys)
    )]
    CacheUnknown {
        path: PathBuf,
        keys: Vec<&'static str>,
    },

    #[error("`{model}` has no `config.json`, which tells the layers and heads of the cache")]
    NoCacheConfig { model: String },

    #[error("nothing tells which modules get an adapter{}", of_type(model_type.as_deref()))]
    NoUsualTargets { model_type: Option<String> },

    #[error("no weight of the model belongs to a module `{target}`")]
    NoTargets {
        target: String,
        known: Vec<String>,
        nearest: Option<String>,
    },

    #[error("cannot make a device map")]
    DeviceMap(#[source] DeviceMapError),

    #[error("how much memory the {count} {kind} devices of this machine have is not known")]
    DeviceMemory { count: usize, kind: &'static str },

    #[error("how much memory this machine has is not known")]
    MachineMemory,

    #[error("cannot read which devices are visible")]
    Visible(#[source] accelerate_plan::Error),

    #[error("no place with memory to compute in `{limits}`")]
    NoDevice { limits: String },

    #[error("cannot use the config file")]
    File(#[source] ConfigError),

    #[error("cannot make the plan of the config file")]
    Plan(#[source] PlanError),

    #[error("`{}` asks for no sharding: expected `distributed_type: FSDP` or `DEEPSPEED`", path.display())]
    NotSharded { path: PathBuf },

    #[error("cannot write the answer")]
    Output(#[source] io::Error),
}

impl EstimateError {
    /// 1 for what the user can change, 2 for a wrong command line, 70 for the rest.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::UnevenMachines { .. } | Self::NoDevice { .. } => 2,
            Self::Output(_) => 70,
            _ => 1,
        })
    }
}

impl Hint for EstimateError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::NoSuchModel { .. } | Self::UnknownFile { .. } => {
                "name a folder, a file, or a model as `name` or `owner/name`"
            }
            Self::NothingToCount { .. } => {
                "the folder of a model holds `config.json`, `model.safetensors` or \
                 `model.safetensors.index.json`"
            }
            Self::NotCached { name, offline, .. } => return Some(how_to_fetch(name, *offline)),
            Self::NoCacheFolder => "set `HF_HOME`, or name a folder or a `config.json`",
            #[cfg(feature = "hub")]
            Self::NotOnHub { .. } => {
                "check the spelling; for a private model sign in with `hf auth login`"
            }
            #[cfg(feature = "hub")]
            Self::Gated { .. } => {
                "ask for access on the page of the model, then sign in with `hf auth login`"
            }
            #[cfg(feature = "hub")]
            Self::Fetch { .. } => {
                "check the network; for a private or gated model sign in with `hf auth login`"
            }
            Self::NoLibrary { .. } => "give `--library_name transformers` or `--library_name timm`",
            Self::OtherLibrary { .. } => "leave out `--library_name`, or name the other library",
            Self::UnknownModelType { known, .. } => return Some(weights_or_known("types", known)),
            Self::UnknownTimm { known, .. } => return Some(weights_or_known("models", known)),
            Self::UnknownClass { known, .. } => return Some(format!("one of {}", quoted(known))),
            Self::RemoteCode { trusted, .. } => return Some(no_remote_code(*trusted)),
            Self::NoUsualTargets { .. } => {
                "name them with `--lora_target_modules`, such as `q_proj,v_proj`"
            }
            Self::NoTargets { known, nearest, .. } => {
                return Some(match nearest {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => {
                        let known: Vec<_> = known.iter().map(String::as_str).collect();
                        format!("there are {}", quoted(&known))
                    }
                });
            }
            Self::NoCacheConfig { .. } => "put the `config.json` of the model beside its weights",
            Self::NoCache { .. } | Self::CacheUnknown { .. } => "leave out `--sequence_length`",
            Self::DeviceMemory { .. } | Self::MachineMemory => {
                "say it with `--max_memory`, such as `0=80GB,1=80GB,cpu=200GB`"
            }
            Self::NoDevice { .. } => "give an accelerator or `cpu` more than 0 bytes",
            Self::DeviceMap(error) => return error.hint(),
            Self::File(error) => return error.hint(),
            Self::Plan(error) => return error.hint(),
            Self::UnevenMachines { .. } => {
                "`--num_processes` is the total of all machines: give a multiple of `--num_machines`"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}

fn of_type(model_type: Option<&str>) -> String {
    model_type.map_or(String::new(), |model_type| {
        format!(" of models of type `{model_type}`")
    })
}

fn how_to_fetch(name: &str, offline: bool) -> String {
    let fetch = format!(
        "fetch it with `hf download {name} config.json`, or with its safetensors files to have \
         these counted; or name a folder or a `config.json`"
    );
    if offline {
        return format!("{fetch}. `HF_HUB_OFFLINE` keeps this command from asking the hub");
    }
    format!("{fetch}. Built with `--features hub`, this command fetches the `config.json` itself")
}

fn weights_or_known(what: &str, known: &[&str]) -> String {
    format!(
        "put the safetensors files beside the `config.json`: they are counted for any model. Known \
         {what}: {}",
        quoted(known)
    )
}

fn no_remote_code(trusted: bool) -> String {
    let count = "put the safetensors files beside the `config.json`: they are counted without \
                 running anything";
    if trusted {
        format!("{count}. This command never runs code of a model, `--trust_remote_code` or not")
    } else {
        count.to_owned()
    }
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
