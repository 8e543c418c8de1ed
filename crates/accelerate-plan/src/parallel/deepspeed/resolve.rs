//! From what somebody said to one config.

use indexmap::IndexMap;

use super::{
    DeepSpeedConfig, DeepSpeedSettings,
    ambiguity::PAIRS,
    document::{Document, flag, whole},
    read::read,
};
use crate::{
    MixedPrecision,
    config::Value,
    parallel::{PlanError, error::contradiction},
    settings::{Origin, Sourced},
};

type Result<T> = std::result::Result<T, PlanError>;

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
        document.set(
            "steps_per_print",
            Value::Float(f64::INFINITY),
            Origin::Default,
        );
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
            let path = path
                .as_ref()
                .filter(|_| self.said(device).as_ref().is_some_and(is_nvme));
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
        let key = format!("{section}.enabled");
        let is_new = !document.has(section);
        if is_new || document.is_auto(&key) {
            document.set(&key, Value::Bool(is_wanted), origin.clone());
        }
        if is_new && is_wanted && section == "fp16" {
            document.set("fp16.auto_cast", Value::Bool(true), origin.clone());
        }
    }
    let is_on = |key: &str| document.get(key).and_then(flag) == Some(true);
    match is_on("fp16.enabled") && is_on("bf16.enabled") {
        true => Err(document.refuse("bf16.enabled", "`false`, because `fp16.enabled` is `true`")),
        false => Ok(()),
    }
}
