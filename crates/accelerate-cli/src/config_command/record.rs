//! The entries of a config file, and what they are where nobody said otherwise.

use accelerate_plan::config::Value;
use indexmap::IndexMap;

/// Named values: a section, or a whole file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Section(IndexMap<String, Value>);

impl Section {
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.to_owned(), value.into());
    }

    /// Sets a section of this file. An empty one is left out when the file is written.
    pub(crate) fn set_section(&mut self, key: &str, section: Self) {
        self.0.insert(key.to_owned(), section.into());
    }

    pub(crate) fn set_texts(&mut self, key: &str, texts: Vec<String>) {
        let texts = texts.into_iter().map(Value::from).collect();
        self.0.insert(key.to_owned(), Value::List(texts));
    }

    /// Adds the entries of `defaults` that this section does not have.
    pub(crate) fn fill(&mut self, defaults: Self) {
        for (key, value) in defaults.0 {
            self.0.entry(key).or_insert(value);
        }
    }

    #[cfg(test)]
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }
}

impl From<Section> for Value {
    fn from(section: Section) -> Self {
        Self::Map(section.0)
    }
}

impl From<IndexMap<String, Value>> for Section {
    fn from(entries: IndexMap<String, Value>) -> Self {
        Self(entries)
    }
}

/// What every file about this machine holds.
///
/// # Source
/// The defaults of `ClusterConfig`, without those that are nothing.
pub(crate) fn cluster_defaults() -> Section {
    let mut record = Section::default();
    record.set("compute_environment", "LOCAL_MACHINE");
    for (key, text) in [
        ("rdzv_backend", "static"),
        ("main_training_function", "main"),
    ] {
        record.set(key, text);
    }
    for (key, number) in [("machine_rank", 0_i64), ("num_machines", 1)] {
        record.set(key, number);
    }
    for key in [
        "use_cpu",
        "debug",
        "same_network",
        "enable_cpu_affinity",
        "downcast_bf16",
        "tpu_use_cluster",
        "tpu_use_sudo",
    ] {
        record.set(key, false);
    }
    record
}

/// What every file about SageMaker holds.
///
/// # Source
/// The defaults of `SageMakerConfig`, without those that are nothing. The name of the job ends in 1
/// there whatever the number of machines.
pub(crate) fn sagemaker_defaults() -> Section {
    let mut record = Section::default();
    for (key, text) in [
        ("compute_environment", "AMAZON_SAGEMAKER"),
        ("region", "us-east-1"),
        ("gpu_ids", "all"),
        ("base_job_name", "accelerate-sagemaker-1"),
        ("pytorch_version", "1.10.2"),
        ("transformers_version", "4.17.0"),
        ("py_version", "py38"),
    ] {
        record.set(key, text);
    }
    record.set("num_machines", 1_i64);
    for key in ["use_cpu", "debug", "enable_cpu_affinity"] {
        record.set(key, false);
    }
    record
}
