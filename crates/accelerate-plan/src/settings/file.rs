//! From a config file to what it says about the settings.

mod migrate;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use indexmap::IndexMap;

use super::{
    AnyKey, COMPUTE_ENVIRONMENT, ComputeEnvironment, DISTRIBUTED_TYPE, DistributedType, Layer,
    Origin, SAGEMAKER_DISTRIBUTED_TYPE, Section, TABLE,
};
use crate::config::{ConfigError, Entry, Node, NodeKind, RawFile, UnknownKey, Value};

/// Which kind of record a config file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A job on machines that the user has.
    Cluster,
    /// A job of Amazon SageMaker.
    SageMaker,
}

/// Something in a file that is understood, but not written like this any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The line, from 1.
    pub line: usize,
    /// What stands there and how it is understood.
    pub text: String,
}

/// A config file that was read and understood.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConfigFile {
    /// Where it was read from, as given.
    pub path: PathBuf,
    /// Which kind of record it holds.
    pub record: Record,
    /// What it says.
    pub layer: Layer,
    /// What should be written differently today.
    pub notices: Vec<Notice>,
}

impl ConfigFile {
    /// Reads a file.
    ///
    /// Every key must be known, inside sections too: the original does not look there, so that a
    /// mistyped key loses its meaning without a word. On the other hand the original refuses a file
    /// without `distributed_type`, although its documentation shows such files; here the machine and
    /// the number of processes decide.
    ///
    /// # Errors
    /// [`ConfigError`], with the line wherever there is one.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Self::of(RawFile::read(path)?)
    }

    /// Understands a file that was read.
    ///
    /// # Errors
    /// As [`ConfigFile::read`].
    pub fn of(raw: RawFile) -> Result<Self, ConfigError> {
        let (raw, notices) = migrate::migrate(raw);
        let record = record(&raw)?;
        let mut reader = Reader {
            path: Arc::new(raw.path.clone()),
            record,
            layer: Layer::default(),
            unknown: Vec::new(),
        };
        for entry in &raw.entries {
            reader.top(entry)?;
        }
        let layer = reader.finish()?;
        let kind = SAGEMAKER_DISTRIBUTED_TYPE.entry();
        if record == Record::SageMaker && layer.get(kind.name).is_none() {
            return Err(ConfigError::MissingKey {
                path: raw.path,
                key: kind.name.to_owned(),
                expected: kind.expected.to_owned(),
            });
        }
        Ok(Self {
            path: raw.path,
            record,
            layer,
            notices,
        })
    }

    /// The record as it is written today, with the defaults of its top level filled in, in the order
    /// in which the original lists it.
    pub fn updated(&self) -> Value {
        let mut entries = IndexMap::new();
        for key in TABLE
            .iter()
            .filter(|key| is_on_top(self.record, key.entry().section))
        {
            let entry = key.entry();
            if self.record == Record::SageMaker
                && !SAGEMAKER_TOP.contains(&entry.name)
                && entry.section == Section::Top
            {
                continue;
            }
            let given = self.layer.get(entry.name).map(|given| given.value.clone());
            // The original leaves these to be decided at the launch.
            let is_left_open = matches!(entry.name, "mixed_precision" | "gpu_ids");
            let default = match entry.name {
                "machine_rank" => Some(Value::Int(0)),
                "num_processes" if self.is_one_process() => Some(Value::Int(1)),
                _ => entry.default.filter(|_| !is_left_open).map(Value::from),
            };
            let default = default.and_then(|value| key.canonical(&value));
            if entry.name == "downcast_bf16" {
                self.insert_sections(&mut entries, |section| section != Section::Dynamo);
            }
            if let Some(value) = given.or(default) {
                entries.insert(entry.name.to_owned(), value);
            }
        }
        self.insert_sections(&mut entries, |section| section == Section::Dynamo);
        Value::Map(entries)
    }

    fn insert_sections(
        &self,
        entries: &mut IndexMap<String, Value>,
        is_wanted: fn(Section) -> bool,
    ) {
        for section in Section::NESTED
            .into_iter()
            .filter(|section| is_wanted(*section))
        {
            if let Some((name, values)) = self.section(section) {
                entries.insert(name.to_owned(), Value::Map(values));
            }
        }
    }

    fn is_one_process(&self) -> bool {
        let kind = self.layer.get(DISTRIBUTED_TYPE.name());
        kind.is_some_and(|kind| DISTRIBUTED_TYPE.typed(&kind.value) == Some(DistributedType::No))
            && self.record == Record::Cluster
    }

    fn section(&self, section: Section) -> Option<(&'static str, IndexMap<String, Value>)> {
        let in_section = TABLE.iter().map(|key| key.entry());
        let given = in_section
            .filter(|entry| entry.section == section)
            .filter_map(|entry| {
                let given = self.layer.get(entry.name)?;
                Some((entry.name.to_owned(), given.value.clone()))
            });
        let given: IndexMap<_, _> = given.collect();
        (!given.is_empty()).then_some((section.key()?, given))
    }
}

/// Keys of the top level that a record for SageMaker has too.
const SAGEMAKER_TOP: [&str; 7] = [
    "compute_environment",
    "mixed_precision",
    "use_cpu",
    "debug",
    "num_machines",
    "gpu_ids",
    "enable_cpu_affinity",
];

fn is_on_top(record: Record, section: Section) -> bool {
    match record {
        Record::Cluster => section == Section::Top,
        Record::SageMaker => matches!(section, Section::Top | Section::SageMaker),
    }
}

fn is_allowed(record: Record, key: &dyn AnyKey) -> bool {
    let entry = key.entry();
    match (record, entry.section) {
        (Record::Cluster, Section::Top) | (Record::SageMaker, Section::SageMaker) => true,
        // The kind of job has another meaning in such a record.
        (Record::SageMaker, Section::Top) => SAGEMAKER_TOP.contains(&entry.name),
        _ => false,
    }
}

fn record(raw: &RawFile) -> Result<Record, ConfigError> {
    let Some(entry) = raw.get(COMPUTE_ENVIRONMENT.name()) else {
        return Ok(Record::Cluster);
    };
    match COMPUTE_ENVIRONMENT.typed(&entry.value.to_value()) {
        Some(ComputeEnvironment::LocalMachine) => Ok(Record::Cluster),
        Some(ComputeEnvironment::AmazonSagemaker) => Ok(Record::SageMaker),
        None => Err(wrong_value(
            &raw.path,
            &COMPUTE_ENVIRONMENT,
            COMPUTE_ENVIRONMENT.name(),
            entry,
        )),
    }
}

struct Reader {
    path: Arc<PathBuf>,
    record: Record,
    layer: Layer,
    unknown: Vec<UnknownKey>,
}

impl Reader {
    fn top(&mut self, entry: &Entry) -> Result<(), ConfigError> {
        let is_section = |section: &Section| section.key() == Some(entry.key.as_str());
        let section = Section::NESTED.into_iter().find(is_section);
        let section =
            section.filter(|section| self.record == Record::Cluster || *section == Section::Dynamo);
        if let Some(section) = section {
            return self.section(section, entry);
        }
        let record = self.record;
        let known = || TABLE.iter().filter(move |key| is_allowed(record, **key));
        match known().find(|key| is_named(**key, &entry.key)) {
            Some(key) => self.value(*key, &entry.key, entry),
            None => {
                let names = known().map(|key| key.entry().name);
                let names = names.chain(Section::NESTED.iter().filter_map(|section| section.key()));
                self.unknown
                    .push(UnknownKey::new(&entry.key, entry.line, names));
                Ok(())
            }
        }
    }

    fn section(&mut self, section: Section, entry: &Entry) -> Result<(), ConfigError> {
        let entries = match &entry.value.kind {
            NodeKind::Null => return Ok(()),
            NodeKind::Map(pairs) => pairs.iter().map(inner_entry).collect::<Vec<_>>(),
            _ => {
                let expected = "keys with values, indented";
                return Err(ConfigError::wrong_value(
                    self.path.as_ref(),
                    &entry.key,
                    &entry.value,
                    expected,
                    [],
                ));
            }
        };
        let known = || {
            TABLE
                .iter()
                .filter(move |key| key.entry().section == section)
        };
        for inner in entries {
            let full = with_prefix(section, &inner.key);
            let dotted = format!("{}.{}", entry.key, inner.key);
            match known().find(|key| is_named(**key, &full)) {
                Some(key) => self.value(*key, &dotted, &inner)?,
                None => {
                    let names = known().map(|key| key.entry().name);
                    let mut unknown = UnknownKey::new(full, inner.line, names);
                    unknown.key = dotted;
                    self.unknown.push(unknown);
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, key: &dyn AnyKey, name: &str, entry: &Entry) -> Result<(), ConfigError> {
        let value = entry.value.to_value();
        // Nothing, or -1 for a number that is to be given by flag.
        if value == Value::Null || key.entry().name == "num_processes" && value == Value::Int(-1) {
            return Ok(());
        }
        let origin = Origin::File {
            path: Arc::clone(&self.path),
            line: entry.line,
        };
        self.layer
            .give(key, &value, origin)
            .map_err(|_| wrong_value(&self.path, key, name, entry))
    }

    fn finish(self) -> Result<Layer, ConfigError> {
        match self.unknown.is_empty() {
            true => Ok(self.layer),
            false => Err(ConfigError::unknown_keys(self.path.as_ref(), self.unknown)),
        }
    }
}

fn inner_entry((key, value): &(Node, Node)) -> Entry {
    Entry {
        key: key.text().unwrap_or_default().into_owned(),
        line: key.line,
        value: value.clone(),
    }
}

fn is_named(key: &dyn AnyKey, name: &str) -> bool {
    let entry = key.entry();
    entry.name == name || entry.aliases.contains(&name)
}

fn with_prefix(section: Section, key: &str) -> String {
    match section.prefix() {
        Some(prefix) if !key.starts_with(prefix) => format!("{prefix}{key}"),
        _ => key.to_owned(),
    }
}

fn wrong_value(path: &Path, key: &dyn AnyKey, name: &str, entry: &Entry) -> ConfigError {
    let known = key.entry();
    ConfigError::wrong_value(
        path,
        name,
        &entry.value,
        known.expected,
        known.choices.iter().copied(),
    )
}

#[cfg(test)]
mod tests;
