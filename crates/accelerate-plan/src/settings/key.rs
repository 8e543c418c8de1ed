//! One row of the table of settings.

use crate::{
    config::{Value, python_float},
    env::{Environment, Format, Refused, Variable, format::AUTO},
    settings::Scalar,
};

/// Where a setting stands in a config file, and with which others it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// The top level.
    Top,
    /// `fp8_config`.
    Fp8,
    /// `deepspeed_config`.
    DeepSpeed,
    /// `fsdp_config`.
    Fsdp,
    /// `parallelism_config`.
    Parallelism,
    /// `megatron_lm_config`.
    MegatronLm,
    /// `mpirun_config`.
    Mpirun,
    /// `ipex_config`.
    Ipex,
    /// `dynamo_config`.
    Dynamo,
    /// The top level of a file for SageMaker.
    SageMaker,
    /// In no file: a matter of one start.
    FlagOnly,
}

impl Section {
    /// The sections that are maps of their own in a file.
    pub const NESTED: [Self; 8] = [
        Self::Fp8,
        Self::DeepSpeed,
        Self::Fsdp,
        Self::Parallelism,
        Self::MegatronLm,
        Self::Mpirun,
        Self::Ipex,
        Self::Dynamo,
    ];

    /// Key of the map in a file; `None` for what is not in a map of its own.
    pub const fn key(self) -> Option<&'static str> {
        match self {
            Self::Fp8 => Some("fp8_config"),
            Self::DeepSpeed => Some("deepspeed_config"),
            Self::Fsdp => Some("fsdp_config"),
            Self::Parallelism => Some("parallelism_config"),
            Self::MegatronLm => Some("megatron_lm_config"),
            Self::Mpirun => Some("mpirun_config"),
            Self::Ipex => Some("ipex_config"),
            Self::Dynamo => Some("dynamo_config"),
            Self::Top | Self::SageMaker | Self::FlagOnly => None,
        }
    }

    /// What a key of this map may leave out.
    pub const fn prefix(self) -> Option<&'static str> {
        match self {
            Self::Fp8 => Some("fp8_"),
            Self::Fsdp => Some("fsdp_"),
            Self::Dynamo => Some("dynamo_"),
            _ => None,
        }
    }
}

/// How a setting is given on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// Not at all: only in a file.
    FileOnly,
    /// By its presence.
    Switch,
    /// With a value.
    OneValue,
    /// With a value, as often as wanted.
    Repeated,
}

/// What the table says about a setting, without its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyEntry {
    /// Name: the flag without its dashes, and the key in a file.
    pub name: &'static str,
    /// Other names that are understood.
    pub aliases: &'static [&'static str],
    /// Where it stands in a file.
    pub section: Section,
    /// How it is given on the command line.
    pub flag: Flag,
    /// Type, in a word or two.
    pub kind: &'static str,
    /// Which texts are allowed, in words.
    pub expected: &'static str,
    /// The only texts that are allowed, where there are few.
    pub choices: &'static [&'static str],
    /// Text that stands for the setting when nothing is given.
    pub default: Option<&'static str>,
    /// The variable that a launcher reads for it and writes for its processes.
    pub variable: Option<&'static str>,
    /// What it means.
    pub meaning: &'static str,
    /// Why nothing reads it here, if that is so. It is understood all the same, because files and
    /// scripts for the original have it.
    pub no_effect: Option<&'static str>,
    /// Whether its value must not be shown or passed on.
    pub is_secret: bool,
}

/// A setting with values of type `T`.
#[derive(Debug)]
pub struct Key<T: 'static> {
    entry: KeyEntry,
    format: &'static Format<T>,
    variable: Option<&'static Variable<T>>,
}

/// What a row of the table says before its format and variable are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) aliases: &'static [&'static str],
    pub(super) section: Section,
    pub(super) flag: Flag,
    pub(super) default: Option<&'static str>,
    pub(super) meaning: &'static str,
    pub(super) mark: Mark,
}

/// What is special about a setting.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    no_effect: Option<&'static str>,
    is_secret: bool,
}

impl Mark {
    pub(super) const NONE: Self = Self {
        no_effect: None,
        is_secret: false,
    };

    /// Nothing reads the setting, for this reason.
    pub(super) const fn no_effect(why: &'static str) -> Self {
        Self {
            no_effect: Some(why),
            is_secret: false,
        }
    }

    /// The same, and its value must not be shown.
    pub(super) const fn secret(self) -> Self {
        Self {
            is_secret: true,
            ..self
        }
    }
}

impl<T> Key<T> {
    pub(super) const fn new(
        row: Row,
        format: &'static Format<T>,
        variable: Option<&'static Variable<T>>,
    ) -> Self {
        let variable_name = match variable {
            Some(variable) => Some(variable.name()),
            None => None,
        };
        Self {
            entry: KeyEntry {
                name: row.name,
                aliases: row.aliases,
                section: row.section,
                flag: row.flag,
                kind: format.kind,
                expected: format.expected,
                choices: format.choices,
                default: row.default,
                variable: variable_name,
                meaning: row.meaning,
                no_effect: row.mark.no_effect,
                is_secret: row.mark.is_secret,
            },
            format,
            variable,
        }
    }

    /// The name.
    pub const fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The value that stands for the setting when nothing is given.
    pub fn default(&self) -> Option<T> {
        self.typed(&Value::from(self.entry.default?))
    }

    /// The typed value of plain data; `None` if it is not allowed.
    ///
    /// A truth value stands for the words `true`, `yes` and `on` or their opposites, because
    /// YAML 1.1 reads those words as truth values. A number may be written as a text.
    pub fn typed(&self, value: &Value) -> Option<T> {
        let parse = |text: &str| (self.format.parse)(text.trim()).ok();
        match value {
            Value::Null => None,
            Value::Bool(true) => ["true", "yes", "on"].into_iter().find_map(parse),
            Value::Bool(false) => ["false", "no", "off"].into_iter().find_map(parse),
            Value::Int(number) => parse(&number.to_string()),
            Value::Float(number) => parse(&python_float(*number)),
            Value::Text(text) => parse(text),
            Value::List(items) if matches!(self.entry.kind, "list" | "three flags") => {
                parse(&joined(items)?)
            }
            Value::List(_) => None,
            Value::Map(_) => parse(&crate::config::inline_json(value)),
        }
    }
}

/// A row of the table, whatever its type.
pub trait AnyKey: Sync {
    /// What the table says.
    fn entry(&self) -> &KeyEntry;

    /// The value in the spelling of the table; `None` if it is not allowed.
    fn canonical(&self, value: &Value) -> Option<Value>;

    /// The variable and the text that tell a process of `value`, if there is a variable.
    fn export(&self, value: &Value) -> Option<(&'static str, String)>;

    /// The value that the variable of this setting holds, if there is one and it is set.
    ///
    /// # Errors
    /// As [`Environment::get`].
    fn read_env(&self, env: &Environment) -> crate::Result<Option<Value>>;
}

impl<T: Scalar> AnyKey for Key<T> {
    fn entry(&self) -> &KeyEntry {
        &self.entry
    }

    /// `auto` stays a text: it has no type, so nobody is told of it, but it hides what further
    /// sources say.
    fn canonical(&self, value: &Value) -> Option<Value> {
        let is_auto = matches!(value, Value::Text(text) if text.trim() == AUTO);
        match (self.format.parse)(AUTO) {
            Err(Refused::CountsAsUnset) if is_auto => Some(AUTO.into()),
            _ => self.typed(value).map(|typed| typed.to_value()),
        }
    }

    fn export(&self, value: &Value) -> Option<(&'static str, String)> {
        let variable = self.variable?;
        Some((variable.name(), variable.render(&self.typed(value)?)))
    }

    fn read_env(&self, env: &Environment) -> crate::Result<Option<Value>> {
        match self.variable {
            Some(variable) => Ok(env.get(variable)?.map(|typed| typed.to_value())),
            None => Ok(None),
        }
    }
}

/// Lists are written with a line break between their items, which no item has.
fn joined(items: &[Value]) -> Option<String> {
    let items: Option<Vec<String>> = items.iter().map(plain_text).collect();
    Some(items?.join("\n"))
}

fn plain_text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Int(number) => Some(number.to_string()),
        Value::Float(number) => Some(python_float(*number)),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}
