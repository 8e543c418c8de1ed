//! From what somebody said to one config.

use std::path::{Path, PathBuf};

use indexmap::IndexMap;

use super::{
    ConfigSource, DeepSpeedConfig, DeepSpeedSettings,
    ambiguity::PAIRS,
    base64,
    document::{Document, flag, whole},
    schema,
};
use crate::{
    MixedPrecision,
    config::{ConfigError, Node, NodeKind, RawFile, Value, json, yaml},
    parallel::{PlanError, error::contradiction},
    settings::{Origin, Sourced},
};

type Result<T> = std::result::Result<T, PlanError>;

/// Characters of a text that is no config that a message shows.
const SHOWN: usize = 60;

impl DeepSpeedSettings {
    /// Lays the settings, DeepSpeed's own config and the precision over each other.
    ///
    /// Values that DeepSpeed's config leaves `auto` or leaves out are taken from the settings. The
    /// accumulation is 1 where nobody says it, unless the sizes of batches give it.
    ///
    /// # Errors
    /// - [`PlanError::NoConfig`], [`PlanError::Config`], [`PlanError::NoZeroOptimization`] if
    ///   DeepSpeed's config cannot be used.
    /// - [`PlanError::Ambiguous`] with every value that is said twice.
    /// - [`PlanError::Settings`] for settings that exclude each other.
    ///
    /// # Source
    /// `DeepSpeedPlugin.__post_init__` and `set_mixed_precision`. Differs: only values that are really
    /// said twice are refused, all in one error; a flag that contradicts DeepSpeed's config is
    /// refused too, where the original forgets it without a word; keys are checked; a comma behind
    /// the last entry is forgiven, because the documentation has such files.
    pub fn resolve(&self, precision: &Sourced<MixedPrecision>) -> Result<DeepSpeedConfig> {
        let (mut document, mut notes) = match &self.config {
            Some(source) => {
                let (document, notes) = read(source)?;
                self.check_file(&document, precision)?;
                (document, notes)
            }
            None => (self.synthesize(), Vec::new()),
        };
        self.fill_pairs(&mut document);
        fill_accumulation(&mut document);
        document.set("steps_per_print", Value::Float(f64::INFINITY), Origin::Default);
        fill_precision(&mut document, precision)?;
        let stage = document.whole("zero_optimization.stage", 0)?;
        self.add_msamp(&mut document, stage)?;
        let zero3_init = self.zero3_init(stage, &mut notes);
        Ok(DeepSpeedConfig {
            document,
            stage,
            zero3_init,
            moe_layer_classes: self.moe_layer_classes.clone(),
            notes,
        })
    }

    fn check_file(&self, document: &Document, precision: &Sourced<MixedPrecision>) -> Result<()> {
        if !document.has("zero_optimization") {
            return Err(PlanError::NoZeroOptimization {
                path: document.path().to_owned(),
            });
        }
        let keys = self.said_twice(document, precision);
        match keys.is_empty() {
            true => Ok(()),
            false => Err(PlanError::Ambiguous {
                path: document.path().to_owned(),
                keys,
            }),
        }
    }

    /// The config that the settings alone make.
    fn synthesize(&self) -> Document {
        let mut document = Document::empty();
        for size in ["train_batch_size", "train_micro_batch_size_per_gpu"] {
            document.set(size, "auto".into(), Origin::Default);
        }
        self.say(&mut document, "gradient_accumulation_steps");
        self.say(&mut document, "zero_stage");
        for (part, device, path) in [
            (
                "zero_optimization.offload_optimizer",
                "offload_optimizer_device",
                &self.offload_optimizer_nvme_path,
            ),
            (
                "zero_optimization.offload_param",
                "offload_param_device",
                &self.offload_param_nvme_path,
            ),
        ] {
            self.say(&mut document, device);
            let is_nvme = |said: &Sourced<Value>| said.value == Value::from("nvme");
            let path = path.as_ref().filter(|_| self.said(device).as_ref().is_some_and(is_nvme));
            let (value, origin) = match path {
                Some(path) => (path.value.clone().into(), path.origin.clone()),
                None => (Value::Null, Origin::Default),
            };
            document.set(&format!("{part}.nvme_path"), value, origin);
        }
        self.say(&mut document, "zero3_save_16bit_model");
        self.say(&mut document, "gradient_clipping");
        document
    }

    /// Writes the value of a setting, its default too, under its key.
    fn say(&self, document: &mut Document, name: &str) {
        let pair = PAIRS.iter().find(|pair| pair.name == name);
        if let (Some(pair), Some(said)) = (pair, self.said(name)) {
            document.set(pair.key, said.value, said.origin);
        }
    }

    /// What DeepSpeed's config leaves open or does not say.
    fn fill_pairs(&self, document: &mut Document) {
        for pair in &PAIRS {
            let Some(said) = self.said(pair.name) else {
                continue;
            };
            let is_open = match document.get(pair.key) {
                Some(_) => document.is_auto(pair.key),
                // A default would fill in what is better left out.
                None => said.origin.is_given() && self.config.is_some(),
            };
            if is_open {
                document.set(pair.key, said.value, said.origin);
            }
        }
    }

    fn add_msamp(&self, document: &mut Document, stage: u64) -> Result<()> {
        let Some(level) = &self.msamp else {
            return Ok(());
        };
        if stage == 3 {
            let stage = Sourced {
                value: stage,
                origin: document.origin("zero_optimization.stage"),
            };
            return Err(contradiction(
                "zero_stage",
                &stage,
                "0, 1 or 2 with MS-AMP",
                &Sourced {
                    value: "on",
                    origin: level.origin.clone(),
                },
            ));
        }
        if !document.has("msamp") {
            let entries = [
                ("enabled".to_owned(), Value::Bool(true)),
                ("opt_level".to_owned(), level.value.name().into()),
            ];
            let entries = Value::Map(IndexMap::from(entries));
            document.set("msamp", entries, level.origin.clone());
        }
        Ok(())
    }

    fn zero3_init(&self, stage: u64, notes: &mut Vec<String>) -> Sourced<bool> {
        let is_stage3 = stage == 3;
        match &self.zero3_init_flag {
            None => Sourced::default_value(is_stage3),
            Some(said) if said.value && !is_stage3 => {
                notes.push(format!(
                    "`zero3_init_flag` means something in stage 3 only: it is off in stage {stage}"
                ));
                Sourced::default_value(false)
            }
            Some(said) => said.clone(),
        }
    }
}

/// Reads DeepSpeed's config, and checks its keys.
fn read(source: &Sourced<ConfigSource>) -> Result<(Document, Vec<String>)> {
    let (path, root) = match &source.value {
        ConfigSource::Map(value) => (PathBuf::from("<the program>"), node(value)),
        ConfigSource::Text(text) => read_text(text, &source.origin)?,
    };
    let notes = schema::check(&path, &root)?;
    match Document::of(path.clone(), &root) {
        Some(document) => Ok((document, notes)),
        None => Err(ConfigError::NotAMap {
            found: root.describe(),
            path,
        }
        .into()),
    }
}

/// A file if there is one, else JSON, else JSON as base64.
fn read_text(text: &str, origin: &Origin) -> Result<(PathBuf, Node)> {
    let path = Path::new(text);
    if path.is_file() {
        return read_file(path);
    }
    if text.trim_start().starts_with('{') {
        return parse(PathBuf::from(format!("<{origin}>")), text);
    }
    let decoded = base64::decode(text).and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some(decoded) = decoded.filter(|decoded| decoded.trim_start().starts_with('{')) {
        return parse(PathBuf::from(format!("<{origin}>")), &decoded);
    }
    // Whoever writes a path means a path.
    if text.ends_with(".json") || text.contains('/') {
        return read_file(path);
    }
    Err(PlanError::NoConfig {
        found: text.chars().take(SHOWN).collect(),
        origin: origin.clone(),
    })
}

fn read_file(path: &Path) -> Result<(PathBuf, Node)> {
    let raw = RawFile::read(path).or_else(|error| forgiven(path, error))?;
    let entries = raw.entries.into_iter().map(|entry| {
        let key = Node::new(NodeKind::Text(entry.key), entry.line, 1);
        (key, entry.value)
    });
    let root = Node::new(NodeKind::Map(entries.collect()), 1, 1);
    Ok((raw.path, root))
}

/// A file that is JSON but for a comma is YAML.
fn forgiven(path: &Path, error: ConfigError) -> std::result::Result<RawFile, ConfigError> {
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    if !matches!(error, ConfigError::Syntax { .. }) || !is_json {
        return Err(error);
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let is_map = text.trim_start().starts_with('{');
    // Under another name the same text is read as YAML, and keeps the path for messages.
    let parsed = RawFile::parse(path.with_extension("yaml"), &text);
    match parsed {
        Ok(raw) if is_map => Ok(RawFile {
            path: path.to_owned(),
            ..raw
        }),
        _ => Err(error),
    }
}

fn parse(path: PathBuf, text: &str) -> Result<(PathBuf, Node)> {
    let parsed = json::parse(text).or_else(|error| yaml::parse(text).map_err(|_| error));
    match parsed {
        Ok(root) => Ok((path, root)),
        Err(error) => Err(ConfigError::Syntax { path, error }.into()),
    }
}

/// Plain data as a tree without places.
fn node(value: &Value) -> Node {
    let kind = match value {
        Value::Null => NodeKind::Null,
        Value::Bool(value) => NodeKind::Bool(*value),
        Value::Int(number) => NodeKind::Int(*number),
        Value::Float(number) => NodeKind::Float(*number),
        Value::Text(text) => NodeKind::Text(text.clone()),
        Value::List(items) => NodeKind::List(items.iter().map(node).collect()),
        Value::Map(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|(key, value)| (node(&key.as_str().into()), node(value)));
            NodeKind::Map(entries.collect())
        }
    };
    Node::new(kind, 0, 0)
}

/// Steps over which gradients are added up are 1 where nobody says them, unless two sizes of batches
/// give them.
fn fill_accumulation(document: &mut Document) {
    let key = "gradient_accumulation_steps";
    let sizes = ["train_batch_size", "train_micro_batch_size_per_gpu"];
    let are_given = sizes
        .iter()
        .all(|size| document.get(size).is_some_and(|size| whole(size).is_some()));
    if !document.has(key) && !are_given {
        document.set(key, Value::Int(1), Origin::Default);
    }
}

fn fill_precision(document: &mut Document, precision: &Sourced<MixedPrecision>) -> Result<()> {
    let wants = [
        ("fp16", precision.value == MixedPrecision::Fp16),
        (
            "bf16",
            matches!(precision.value, MixedPrecision::Bf16 | MixedPrecision::Fp8),
        ),
    ];
    let origin = &precision.origin;
    for (section, is_wanted) in wants {
        if document.has(section) {
            let key = format!("{section}.enabled");
            if document.is_auto(&key) {
                document.set(&key, Value::Bool(is_wanted), origin.clone());
            }
            continue;
        }
        let mut entries = IndexMap::from([("enabled".to_owned(), Value::Bool(is_wanted))]);
        if is_wanted && section == "fp16" {
            entries.insert("auto_cast".to_owned(), Value::Bool(true));
        }
        document.set(section, Value::Map(entries), origin.clone());
    }
    let is_on = |key: &str| document.get(key).and_then(flag) == Some(true);
    match is_on("fp16.enabled") && is_on("bf16.enabled") {
        true => Err(document.refuse("bf16.enabled", "`false`, because `fp16.enabled` is `true`")),
        false => Ok(()),
    }
}
