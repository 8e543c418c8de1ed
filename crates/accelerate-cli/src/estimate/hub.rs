//! Models of the hub: their names, and where they lie on this machine.
//!
//! The cache is the one that Python fills: `models--owner--name/snapshots/COMMIT/config.json`, with
//! the commit of a branch in `refs/BRANCH`. `HF_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME` and
//! `HF_HUB_OFFLINE` are honoured. Only the cargo feature `hub` lets this command ask the hub itself.

#[cfg(feature = "hub")]
mod download;

use std::{
    fs,
    path::{Path, PathBuf},
};

use accelerate_plan::{
    config::{expand_home, hub_home},
    env::{Environment, HF_HUB_CACHE, HF_HUB_OFFLINE, HUGGINGFACE_HUB_CACHE, truth},
};

use super::{
    error::{EstimateError, Result},
    source::CONFIG_FILE,
};

/// The branch that is meant where none is named.
const MAIN: &str = "main";
/// The longest name of a repository, in characters.
const LONGEST: usize = 96;

/// A model of the hub: `name` or `owner/name`, and behind an `@` a branch, tag or commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubName {
    /// With its owner.
    repository: String,
    revision: String,
}

impl HubName {
    /// Reads a name; the error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let (repository, revision) = text.split_once('@').unwrap_or((text, MAIN));
        if repository.split('/').count() > 2 {
            return Err("it has more than one `/`");
        }
        if repository.len() > LONGEST {
            return Err("it is longer than 96 characters");
        }
        if !repository.split('/').all(is_plain) {
            return Err("it has characters that names do not have");
        }
        let steps = |part: &str| part.is_empty() || part.starts_with('.') || part.contains("..");
        let odd = |c: char| c.is_whitespace() || c.is_control() || r"\:?*".contains(c);
        if revision.split('/').any(steps) || revision.contains(odd) {
            return Err("what stands behind the `@` is no revision");
        }
        Ok(Self {
            repository: repository.to_owned(),
            revision: revision.to_owned(),
        })
    }

    /// The owner and the rest.
    pub(crate) fn parts(&self) -> (Option<&str>, &str) {
        match self.repository.split_once('/') {
            Some((owner, name)) => (Some(owner), name),
            None => (None, &self.repository),
        }
    }

    fn text(&self) -> String {
        match self.revision.as_str() {
            MAIN => self.repository.clone(),
            revision => format!("{}@{revision}", self.repository),
        }
    }
}

fn is_plain(part: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let doubled = part.contains("--") || part.contains("..");
    let ends = part.starts_with(['-', '.']) || part.ends_with(['-', '.']);
    !part.is_empty() && part.chars().all(allowed) && !doubled && !ends
}

/// What the environment says about the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HubSettings {
    cache: PathBuf,
    /// Where Python keeps its settings and the token.
    #[cfg(feature = "hub")]
    home: Option<PathBuf>,
    offline: bool,
}

impl HubSettings {
    /// Those of this process; none where no folder is known.
    pub(crate) fn from_process() -> Option<Self> {
        Self::read(&Environment::from_process())
    }

    fn read(env: &Environment) -> Option<Self> {
        // What cannot be read is taken for not set.
        let text = |variable| env.get(variable).ok().flatten();
        let home = hub_home(env).ok().flatten();
        let cache = text(&HF_HUB_CACHE).or_else(|| text(&HUGGINGFACE_HUB_CACHE));
        let cache = match cache {
            Some(cache) => expand_home(cache, env).ok().flatten(),
            None => home.as_ref().map(|home| home.join("hub")),
        };
        let offline = text(&HF_HUB_OFFLINE).is_some_and(|value| truth(&value) == Some(true));
        Some(Self {
            cache: cache?,
            #[cfg(feature = "hub")]
            home,
            offline,
        })
    }
}

/// The folder of a model: from the cache, or fetched where that is possible.
///
/// # Errors
/// [`EstimateError::NotCached`], and with the feature `hub` the errors of fetching.
pub(crate) fn folder(name: &HubName, settings: &HubSettings) -> Result<PathBuf> {
    if let Some(folder) = cached(name, &settings.cache) {
        return Ok(folder);
    }
    #[cfg(feature = "hub")]
    if !settings.offline {
        return download::config(name, settings);
    }
    Err(EstimateError::NotCached {
        id: name.text(),
        name: name.repository.clone(),
        cache: settings.cache.clone(),
        offline: settings.offline,
    })
}

/// The snapshot that the cache holds of a model, if there is something to count in it.
fn cached(name: &HubName, cache: &Path) -> Option<PathBuf> {
    let repository = name.repository.replace('/', "--");
    let repository = cache.join(format!("models--{repository}"));
    let reference = repository.join("refs").join(&name.revision);
    let commit = fs::read_to_string(reference).unwrap_or_else(|_| name.revision.clone());
    let commit = commit.trim();
    // The commit becomes a part of a path.
    let is_commit = !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let snapshot = repository.join("snapshots").join(commit);
    (is_commit && has_something(&snapshot)).then_some(snapshot)
}

fn has_something(snapshot: &Path) -> bool {
    let Ok(entries) = fs::read_dir(snapshot) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name == CONFIG_FILE || name.ends_with(".safetensors")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let name = HubName::parse("timm/resnet50.a1_in1k").unwrap();
        assert_eq!(name.parts(), (Some("timm"), "resnet50.a1_in1k"));
        assert_eq!(name.text(), "timm/resnet50.a1_in1k");
        let name = HubName::parse("gpt2@refs/pr/3").unwrap();
        assert_eq!(
            (name.repository.as_str(), name.revision.as_str()),
            ("gpt2", "refs/pr/3")
        );
        assert_eq!(name.text(), "gpt2@refs/pr/3");
    }

    #[test]
    fn paths_are_no_names() {
        for text in [
            "", "/a", "a/", "./a", "../a", "a/b/c", "a b", "a--b", "~/a", r"a\b",
        ] {
            assert!(HubName::parse(text).is_err(), "{text}");
        }
        for text in ["a@", "a@../x", "a@/x", "a@x//y", "a@.git"] {
            assert!(HubName::parse(text).is_err(), "{text}");
        }
        assert!(HubName::parse(&"n".repeat(97)).is_err());
    }

    #[test]
    fn the_cache_is_where_python_has_it() {
        let home = ("HOME", "/home/u");
        let read = |pairs: &[(&str, &str)]| {
            HubSettings::read(&Environment::from_pairs(pairs.iter().copied()))
        };
        for (pairs, folder) in [
            (vec![home], "/home/u/.cache/huggingface/hub"),
            (vec![("HF_HOME", "/h")], "/h/hub"),
            (vec![home, ("HF_HOME", "~/h")], "/home/u/h/hub"),
            (vec![("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c")], "/c"),
            (vec![home, ("HF_HUB_CACHE", "~/c")], "/home/u/c"),
            (vec![home, ("HUGGINGFACE_HUB_CACHE", "/old")], "/old"),
            (vec![("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
        ] {
            assert_eq!(read(&pairs).unwrap().cache, Path::new(folder), "{pairs:?}");
        }
        assert_eq!(read(&[]), None);
        for (word, offline) in [("1", true), ("ON", true), ("0", false), ("2", false)] {
            let settings = read(&[home, ("HF_HUB_OFFLINE", word)]).unwrap();
            assert_eq!(settings.offline, offline, "{word}");
        }
    }

    #[test]
    fn a_branch_leads_to_its_snapshot() {
        let cache = tempfile::tempdir().unwrap();
        let repository = cache.path().join("models--owner--name");
        let snapshot = repository.join("snapshots/0123abcd");
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(repository.join("refs")).unwrap();
        fs::write(repository.join("refs/main"), "0123abcd\n").unwrap();
        let find = |text| cached(&HubName::parse(text).unwrap(), cache.path());
        assert_eq!(find("owner/name"), None, "nothing is in it yet");
        fs::write(snapshot.join(CONFIG_FILE), "{}").unwrap();
        assert_eq!(find("owner/name"), Some(snapshot.clone()));
        assert_eq!(find("owner/name@0123abcd"), Some(snapshot));
        assert_eq!(find("owner/name@v2"), None);
        assert_eq!(find("name"), None);
        fs::write(repository.join("refs/main"), "../../../etc").unwrap();
        assert_eq!(find("owner/name"), None);
    }
}
