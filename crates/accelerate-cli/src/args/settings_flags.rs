//! The flags of `accelerate launch` that are settings: made from the table of settings.

use std::ffi::{OsStr, OsString};

use accelerate_plan::{
    config::Value,
    settings::{AnyKey, Flag, KeyEntry, Layer, Origin, Section, TABLE},
};
use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, error::ErrorKind,
    parser::ValueSource,
};

/// What was said about settings on the command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettingsFlags(pub(crate) Layer);

impl Args for SettingsFlags {
    fn augment_args(command: Command) -> Command {
        let mut keys: Vec<_> = flags().collect();
        keys.sort_by_key(|key| Group::of(key.entry()));
        let command = command.next_help_heading(None::<&'static str>);
        keys.into_iter()
            .fold(command, |command, key| command.arg(argument(key)))
            .args(NEGATIONS.map(negation))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingsFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (flag, name) in NEGATIONS {
            if matches.get_flag(flag)
                && let Some(key) = flags().find(|key| key.entry().name == name)
            {
                let origin = Origin::Flag(format!("--{flag}"));
                self.0
                    .give(key, &Value::Bool(false), origin)
                    .map_err(|error| clap::Error::raw(ErrorKind::ValueValidation, error))?;
            }
        }
        for key in flags() {
            let name = key.entry().name;
            if matches.value_source(name) != Some(ValueSource::CommandLine) {
                continue;
            }
            let origin = Origin::Flag(format!("--{name}"));
            self.0
                .give(key, &given(matches, key.entry()), origin)
                .map_err(|error| clap::Error::raw(ErrorKind::ValueValidation, error))?;
        }
        Ok(())
    }
}

/// Flags that turn a switch off, and its setting. The last one of the two wins.
const NEGATIONS: [(&str, &str); 1] = [("no_tpu_cluster", "tpu_use_cluster")];

fn negation((flag, name): (&'static str, &'static str)) -> Arg {
    Arg::new(flag)
        .long(flag)
        .help(format!("Turn `--{name}` off"))
        .help_heading(Group::Tpu.heading())
        .hide_short_help(true)
        .action(ArgAction::SetTrue)
        .overrides_with(name)
}

/// Shows in the short help the groups that the words of the command line ask for, which it leaves
/// out otherwise.
pub(super) fn show_asked(command: Command, words: &[OsString]) -> Command {
    let words: Vec<String> = words.iter().filter_map(|word| flag_name(word)).collect();
    let fp8 = ["mixed_precision=fp8", "mixed_precision=FP8"];
    let is_asked = |group: Group| {
        words.iter().any(|word| {
            let name = word.split('=').next().unwrap_or_default();
            Some(name) == group.switch()
                || group == Group::Fp8 && fp8.contains(&word.as_str())
                || flags().any(|key| is_named(key.entry(), name) && Group::of(key.entry()) == group)
        })
    };
    let shown: Vec<&str> = flags()
        .map(|key| key.entry())
        .filter(|entry| is_asked(Group::of(entry)))
        .map(|entry| entry.name)
        .collect();
    command.mut_args(|arg| match shown.contains(&arg.get_id().as_str()) {
        true => arg.hide_short_help(false),
        false => arg,
    })
}

/// A long flag without its dashes, with its value if that is in the same word.
fn flag_name(word: &OsStr) -> Option<String> {
    let word = word.to_str()?.strip_prefix("--")?;
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, format!("={value}")),
        None => (word, String::new()),
    };
    Some(name.replace('-', "_") + &value)
}

fn is_named(entry: &KeyEntry, name: &str) -> bool {
    entry.name == name || entry.aliases.contains(&name)
}

fn flags() -> impl Iterator<Item = &'static dyn AnyKey> {
    TABLE
        .iter()
        .copied()
        .filter(|key| key.entry().flag != Flag::FileOnly)
}

fn given(matches: &ArgMatches, entry: &KeyEntry) -> Value {
    let texts = || matches.get_many::<String>(entry.name).into_iter().flatten();
    match entry.flag {
        Flag::Switch | Flag::FileOnly => Value::Bool(true),
        Flag::OneValue => texts()
            .next_back()
            .map_or(Value::Null, |text| text.as_str().into()),
        Flag::Repeated => Value::List(texts().map(|text| text.as_str().into()).collect()),
    }
}

fn argument(key: &'static dyn AnyKey) -> Arg {
    let entry = key.entry();
    let group = Group::of(entry);
    let argument = Arg::new(entry.name)
        .long(entry.name)
        .aliases(entry.aliases)
        .help(help(entry))
        .help_heading(group.heading())
        .hide_short_help(!group.is_for_everyone());
    if entry.flag == Flag::Switch {
        return argument.action(ArgAction::SetTrue);
    }
    let action = match entry.flag {
        Flag::Repeated => ArgAction::Append,
        _ => ArgAction::Set,
    };
    argument
        .action(action)
        .value_name(value_name(entry))
        // A number that is out of range is refused as such, not as an unknown flag.
        .allow_negative_numbers(true)
        .value_parser(move |text: &str| match key.canonical(&Value::from(text)) {
            Some(_) => Ok(text.to_owned()),
            None => Err(format!("expected {}", key.entry().expected)),
        })
}

fn help(entry: &KeyEntry) -> String {
    let meaning = entry.meaning.trim_end_matches('.');
    let choices = match entry.choices {
        [] => String::new(),
        choices => format!(" [{}]", choices.join(", ")),
    };
    let default = entry.default.filter(|_| entry.flag != Flag::Switch);
    let default = default.map(|default| format!(" [default: {default}]"));
    let no_effect = entry.no_effect.map_or("", |_| " (no effect here)");
    format!(
        "{meaning}{choices}{}{no_effect}",
        default.unwrap_or_default()
    )
}

fn value_name(entry: &KeyEntry) -> &'static str {
    match entry.kind {
        "count" | "index" | "number" | "port" | "stage" => "N",
        "flag" => "BOOL",
        "text" if entry.name.contains("file") || entry.name.contains("path") => "PATH",
        "text" => "TEXT",
        _ => "VALUE",
    }
}

/// What flags are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Hardware,
    Processes,
    Sharding,
    Machines,
    Compilation,
    Mesh,
    Fsdp,
    DeepSpeed,
    MegatronLm,
    Fp8,
    Mpi,
    Tpu,
    Aws,
    Intel,
}

impl Group {
    fn of(entry: &KeyEntry) -> Self {
        match entry.section {
            Section::Fp8 => Self::Fp8,
            Section::DeepSpeed if entry.name == "gradient_accumulation_steps" => Self::Processes,
            Section::DeepSpeed => Self::DeepSpeed,
            Section::Fsdp => Self::Fsdp,
            Section::Parallelism => Self::Mesh,
            Section::MegatronLm => Self::MegatronLm,
            Section::Mpirun => Self::Mpi,
            Section::Ipex => Self::Intel,
            Section::Dynamo => Self::Compilation,
            Section::SageMaker => Self::Aws,
            Section::Top | Section::FlagOnly => Self::of_name(entry.name),
        }
    }

    fn of_name(name: &str) -> Self {
        match name {
            "cpu" | "multi_gpu" | "tpu" | "gpu_ids" => Self::Hardware,
            "use_deepspeed" | "use_fsdp" | "use_megatron_lm" | "use_parallelism_config" => {
                Self::Sharding
            }
            "num_machines"
            | "machine_rank"
            | "main_process_ip"
            | "main_process_port"
            | "rdzv_backend"
            | "rdzv_conf"
            | "same_network"
            | "max_restarts"
            | "monitor_interval"
            | "role"
            | "num_processes_per_machine" => Self::Machines,
            "main_training_function" | "downcast_bf16" => Self::Tpu,
            _ if name.starts_with("tpu_") => Self::Tpu,
            _ if name.starts_with("aws_") => Self::Aws,
            _ => Self::Processes,
        }
    }

    const fn heading(self) -> &'static str {
        match self {
            Self::Hardware => "Hardware",
            Self::Processes => "Processes",
            Self::Sharding => "Sharding",
            Self::Machines => "Several machines and restarts",
            Self::Compilation => "Compilation",
            Self::Mesh => "Mesh, with --use_parallelism_config",
            Self::Fsdp => "FSDP, with --use_fsdp",
            Self::DeepSpeed => "DeepSpeed, with --use_deepspeed",
            Self::MegatronLm => "Megatron-LM, with --use_megatron_lm",
            Self::Fp8 => "FP8, with --mixed_precision fp8",
            Self::Mpi => "MPI",
            Self::Tpu => "TPU, with --tpu",
            Self::Aws => "Amazon SageMaker",
            Self::Intel => "Intel, without an effect any more",
        }
    }

    /// The flag of another group that asks for this one.
    const fn switch(self) -> Option<&'static str> {
        Some(match self {
            Self::Mesh => "use_parallelism_config",
            Self::Fsdp => "use_fsdp",
            Self::DeepSpeed => "use_deepspeed",
            Self::MegatronLm => "use_megatron_lm",
            Self::Tpu => "tpu",
            _ => return None,
        })
    }

    const fn is_for_everyone(self) -> bool {
        matches!(
            self,
            Self::Hardware | Self::Processes | Self::Sharding | Self::Machines
        )
    }
}
