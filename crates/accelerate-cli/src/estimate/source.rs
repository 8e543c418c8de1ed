//! What the user named, and what there is to count.

use std::path::{Path, PathBuf};

use accelerate_formats::{Error as FormatsError, IndexFault, Weights};
use clap::ValueEnum;
use serde::Serialize;

use super::{
    config::Config,
    error::{EstimateError, Result},
    hub::{self, HubName, HubSettings},
    skeleton::{self, Architecture, Skeleton, timm},
    stored::Stored,
};

/// The configuration of a model in its folder.
pub(crate) const CONFIG_FILE: &str = "config.json";
/// Classes that timm's models tell apart by default (ImageNet).
const IMAGENET_CLASSES: u64 = 1000;
/// Channels of an image.
const CHANNELS: u64 = 3;

/// The library that a model belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Library {
    Timm,
    Transformers,
}

/// What was asked for, besides the name.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) library: Option<Library>,
    pub(crate) architecture: Architecture,
    pub(crate) trust_remote_code: bool,
}

/// What there is to count. At least one of skeleton and stored is there.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) skeleton: Option<Skeleton>,
    pub(crate) stored: Option<Stored>,
    /// Its `config.json`, if it has one.
    pub(crate) config: Option<Config>,
    /// The folder or file it was found in; none for a model known by its name.
    pub(crate) path: Option<PathBuf>,
    /// What is worth knowing about how it was found.
    pub(crate) notes: Vec<String>,
}

/// Finds the model that `name` stands for: a folder, a file, or a model of the hub.
///
/// # Errors
/// Those of [`EstimateError`] that tell why nothing can be counted.
pub(crate) fn find(name: &str, wanted: &Wanted) -> Result<Model> {
    let path = Path::new(name);
    match path.metadata() {
        Ok(found) if found.is_dir() => in_folder(path, wanted),
        Ok(found) if found.is_file() => in_file(path, wanted),
        Ok(_) => Err(unknown_file(path)),
        Err(_) => by_name(name, wanted),
    }
}

fn in_file(path: &Path, wanted: &Wanted) -> Result<Model> {
    let text = path.to_string_lossy();
    if text.ends_with(".safetensors") || text.ends_with(".safetensors.index.json") {
        let weights = Weights::open(path).map_err(EstimateError::Weights)?;
        return Ok(Model {
            skeleton: None,
            stored: Some(Stored::new(&weights)),
            config: None,
            path: Some(path.to_owned()),
            notes: Vec::new(),
        });
    }
    if !text.ends_with(".json") {
        return Err(unknown_file(path));
    }
    let config = Config::read(path)?;
    let skeleton = from_config(&config, wanted)?;
    Ok(Model {
        skeleton: Some(skeleton.ok_or_else(|| unknown_model(&config, wanted))?),
        stored: None,
        config: Some(config),
        path: Some(path.to_owned()),
        notes: Vec::new(),
    })
}

fn in_folder(folder: &Path, wanted: &Wanted) -> Result<Model> {
    let config = folder.join(CONFIG_FILE);
    let config = config.exists().then(|| Config::read(&config)).transpose()?;
    let mut notes = Vec::new();
    let skeleton = match &config {
        Some(config) => from_config(config, wanted)?,
        None => None,
    };
    let stored = stored_in(folder, skeleton.is_some(), &mut notes)?;
    if skeleton.is_none() && stored.is_none() {
        return Err(match config {
            Some(config) => unknown_model(&config, wanted),
            None => EstimateError::NothingToCount {
                folder: folder.to_owned(),
            },
        });
    }
    Ok(Model {
        skeleton,
        stored,
        config,
        path: Some(folder.to_owned()),
        notes,
    })
}

/// The weights of a folder. Where the configuration is enough, they may be absent, incomplete or
/// torch files that hold more than tensors.
fn stored_in(folder: &Path, optional: bool, notes: &mut Vec<String>) -> Result<Option<Stored>> {
    match Weights::open(folder) {
        Ok(weights) => Ok(Some(Stored::new(&weights))),
        Err(FormatsError::NoWeights { .. }) => Ok(None),
        Err(FormatsError::Torch { .. }) if optional => Ok(None),
        Err(FormatsError::Index {
            fault: IndexFault::ShardsMissing { shards },
            ..
        }) if optional => {
            let missing = shards.len();
            notes.push(format!(
                "{missing} of the files that the index of the weights names are not there: the \
                 weights on disk are not counted"
            ));
            Ok(None)
        }
        Err(error) => Err(EstimateError::Weights(error)),
    }
}

/// Builds what a configuration describes; none if it is of an unknown type.
fn from_config(config: &Config, wanted: &Wanted) -> Result<Option<Skeleton>> {
    let wrong = |library, key| EstimateError::OtherLibrary {
        path: config.path().to_owned(),
        library,
        key,
    };
    match wanted.library {
        Some(Library::Transformers) if !config.has("model_type") => {
            Err(wrong("transformers", "model_type"))
        }
        Some(Library::Timm) if !config.has("architecture") => Err(wrong("timm", "architecture")),
        None if !config.has("model_type") => from_timm_config(config),
        Some(Library::Timm) => from_timm_config(config),
        _ => skeleton::build(config, &wanted.architecture),
    }
}

fn from_timm_config(config: &Config) -> Result<Option<Skeleton>> {
    let known = config.text("architecture")?.and_then(timm::find);
    let Some(architecture) = known else {
        return Ok(None);
    };
    // 0 is a model without a classifier.
    let classes = config.count("num_classes", IMAGENET_CLASSES)?;
    let channels = config.size("in_chans", CHANNELS)?;
    Ok(Some(architecture.build(channels, classes)))
}

fn by_name(text: &str, wanted: &Wanted) -> Result<Model> {
    let name = HubName::parse(text).map_err(|fault| EstimateError::NoSuchModel {
        model: text.to_owned(),
        fault,
    })?;
    let (owner, plain) = name.parts();
    let is_timm = wanted.library == Some(Library::Timm);
    if owner.is_none() && is_timm {
        return timm_by_name(plain, Vec::new());
    }
    let settings = HubSettings::from_process().ok_or(EstimateError::NoCacheFolder)?;
    match hub::folder(&name, &settings) {
        Ok(folder) => in_folder(&folder, wanted),
        Err(EstimateError::NotCached { .. })
            if owner == Some("timm")
                && wanted.library != Some(Library::Transformers)
                && is_imagenet(plain) =>
        {
            let plain = plain.split('.').next().unwrap_or_default();
            let note = format!(
                "`{text}` is not in the cache: this is timm's `{plain}` with its default of \
                 {IMAGENET_CLASSES} classes"
            );
            timm_by_name(plain, vec![note])
        }
        Err(error) => Err(error),
    }
}

/// Whether a model of timm tells the 1000 classes of ImageNet apart, as its tag has it.
fn is_imagenet(name: &str) -> bool {
    name.ends_with("in1k")
        && name
            .split('.')
            .next()
            .is_some_and(|n| timm::find(n).is_some())
}

fn timm_by_name(name: &str, notes: Vec<String>) -> Result<Model> {
    let architecture = timm::find(name).ok_or_else(|| unknown_timm(name))?;
    Ok(Model {
        skeleton: Some(architecture.build(CHANNELS, IMAGENET_CLASSES)),
        stored: None,
        config: None,
        path: None,
        notes,
    })
}

fn unknown_timm(name: &str) -> EstimateError {
    EstimateError::UnknownTimm {
        name: name.to_owned(),
        known: timm::ARCHITECTURES.iter().map(|known| known.name).collect(),
    }
}

fn unknown_file(path: &Path) -> EstimateError {
    EstimateError::UnknownFile {
        path: path.to_owned(),
    }
}

/// Why a configuration alone does not say how large the model is.
fn unknown_model(config: &Config, wanted: &Wanted) -> EstimateError {
    let path = config.path().to_owned();
    let text = |key| config.text(key).ok().flatten().map(str::to_owned);
    if let Some(name) = text("architecture").filter(|_| !config.has("model_type")) {
        return unknown_timm(&name);
    }
    match text("model_type") {
        Some(model_type) if !config.auto_map().is_empty() => EstimateError::RemoteCode {
            path,
            model_type,
            trusted: wanted.trust_remote_code,
        },
        Some(model_type) => EstimateError::UnknownModelType {
            path,
            model_type,
            known: skeleton::known_model_types(),
        },
        None => EstimateError::NoLibrary { path },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn wanted(library: Option<Library>) -> Wanted {
        Wanted {
            library,
            architecture: Architecture::Base,
            trust_remote_code: false,
        }
    }

    fn with_config(json: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(CONFIG_FILE), json).unwrap();
        folder
    }

    fn error(json: &str, library: Option<Library>) -> EstimateError {
        let folder = with_config(json);
        find(folder.path().to_str().unwrap(), &wanted(library)).unwrap_err()
    }

    #[test]
    fn timm_models_are_found_by_name_and_by_configuration() {
        let by_name = find("resnet50", &wanted(Some(Library::Timm))).unwrap();
        let bytes = by_name.skeleton.unwrap().root.bytes();
        assert_eq!((bytes, by_name.path), (102_441_032, None));
        let folder = with_config(r#"{"architecture": "resnet50", "num_classes": 0}"#);
        let found = find(folder.path().to_str().unwrap(), &wanted(None)).unwrap();
        let headless = found.skeleton.unwrap().root.bytes();
        assert_eq!(headless, 102_441_032 - (2048 * 1000 + 1000) * 4);
    }

    #[test]
    fn what_a_configuration_lacks_is_told() {
        use EstimateError as E;
        let timm = Some(Library::Timm);
        assert!(matches!(error("{}", None), E::NoLibrary { .. }));
        let other = error(r#"{"model_type": "bert"}"#, timm);
        assert!(matches!(
            other,
            E::OtherLibrary {
                key: "architecture",
                ..
            }
        ));
        let other = error(
            r#"{"architecture": "resnet50"}"#,
            Some(Library::Transformers),
        );
        assert!(matches!(
            other,
            E::OtherLibrary {
                key: "model_type",
                ..
            }
        ));
        let unknown = error(r#"{"architecture": "vgg"}"#, None);
        assert!(matches!(unknown, E::UnknownTimm { name, .. } if name == "vgg"));
        let unknown = error(r#"{"model_type": "nobody"}"#, None);
        assert!(
            matches!(unknown, E::UnknownModelType { model_type, .. } if model_type == "nobody")
        );
        let remote = error(
            r#"{"model_type": "own", "auto_map": {"AutoModel": "m.M"}}"#,
            None,
        );
        assert!(matches!(remote, E::RemoteCode { trusted: false, .. }));
        assert!(matches!(error("[]", None), E::ConfigNotJson { .. }));
    }

    #[test]
    fn what_is_no_model_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().to_str().unwrap();
        let nothing = find(text, &wanted(None)).unwrap_err();
        assert!(matches!(nothing, EstimateError::NothingToCount { .. }));
        fs::write(folder.path().join("model.bin"), "").unwrap();
        let file = find(&format!("{text}/model.bin"), &wanted(None)).unwrap_err();
        assert!(matches!(file, EstimateError::UnknownFile { .. }));
        let absent = find(&format!("{text}/absent"), &wanted(None)).unwrap_err();
        assert!(matches!(absent, EstimateError::NoSuchModel { .. }));
    }

    #[test]
    fn only_imagenet_tags_have_the_default_classes() {
        assert!(is_imagenet("resnet50.a1_in1k"));
        assert!(!is_imagenet("resnet50.tag_in21k"));
        assert!(!is_imagenet("vgg16.tv_in1k"));
    }
}
