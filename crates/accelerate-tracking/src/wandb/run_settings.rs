//! What a run of Weights & Biases is to be, from options and variables.

use std::path::PathBuf;

use crate::clock::since_epoch;
use crate::environment::{Environment, Secret};
use crate::identifier;
use crate::local::texts;
use crate::machine;
use crate::tracker::RunContext;
use crate::value::Value;

/// The address of the service.
const BASE: &str = "https://api.wandb.ai";

/// Where runs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Online,
    Offline,
    Disabled,
}

impl Mode {
    pub(super) fn of(environment: &Environment) -> Self {
        Self::named(environment.get("WANDB_MODE").unwrap_or_default())
    }

    fn named(name: &str) -> Self {
        match name {
            "offline" | "dryrun" => Self::Offline,
            "disabled" => Self::Disabled,
            _ => Self::Online,
        }
    }
}

/// What the run is to be.
#[derive(Debug, Clone)]
pub(super) struct RunSettings {
    pub(super) mode: Mode,
    pub(super) project: String,
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) entity: Option<String>,
    pub(super) group: Option<String>,
    pub(super) job_type: Option<String>,
    pub(super) notes: Option<String>,
    pub(super) tags: Vec<String>,
    pub(super) host: String,
    pub(super) program: String,
    pub(super) started: std::time::Duration,
}

impl RunSettings {
    pub(super) fn new(run: &RunContext) -> Self {
        let option = |name: &str, variable: &str| {
            let given = run.options.get(name).and_then(Value::as_text);
            given
                .or_else(|| run.environment.get(variable))
                .map(str::to_owned)
        };
        let mut tags = texts(run.options.get("tags"));
        if tags.is_empty()
            && let Some(list) = run.environment.get("WANDB_TAGS")
        {
            tags = list.split(',').map(|tag| tag.trim().to_owned()).collect();
        }
        Self {
            mode: Mode::named(&option("mode", "WANDB_MODE").unwrap_or_default()),
            project: run.project.clone(),
            id: option("id", "WANDB_RUN_ID").unwrap_or_else(|| identifier::alphanumeric(8)),
            name: option("name", "WANDB_NAME"),
            entity: option("entity", "WANDB_ENTITY"),
            group: option("group", "WANDB_RUN_GROUP"),
            job_type: option("job_type", "WANDB_JOB_TYPE"),
            notes: option("notes", "WANDB_NOTES"),
            tags,
            host: machine::host(),
            program: machine::program(),
            started: since_epoch(),
        }
    }
}

/// The address of the service, without a slash at its end.
pub(super) fn base_url(environment: &Environment) -> String {
    let base = environment.get("WANDB_BASE_URL").unwrap_or(BASE);
    base.trim_end_matches('/').to_owned()
}

/// The key: from the variable, or the password of the service's machine in `~/.netrc`.
pub(super) fn api_key(environment: &Environment) -> Option<Secret> {
    if let Some(key) = environment.get("WANDB_API_KEY") {
        return Some(Secret::new(key));
    }
    let path = environment.get("NETRC").map_or_else(
        || Some(PathBuf::from(environment.get("HOME")?).join(".netrc")),
        |path| Some(PathBuf::from(path)),
    );
    let text = std::fs::read_to_string(path?).ok()?;
    let base = base_url(environment);
    let host = base
        .split("://")
        .nth(1)?
        .split(['/', ':'])
        .next()?
        .to_owned();
    password_of(&text, &host).map(Secret::new)
}

/// The password that a `.netrc` has for a machine.
fn password_of<'a>(netrc: &'a str, host: &str) -> Option<&'a str> {
    let mut words = netrc.split_whitespace();
    let mut is_host = false;
    while let Some(word) = words.next() {
        match word {
            "machine" => is_host = words.next() == Some(host),
            "default" => is_host = true,
            "password" if is_host => return words.next(),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_where_people_put_them() {
        let netrc = "machine other login a password no\nmachine api.wandb.ai\n  login user\n  password yes\n";
        assert_eq!(password_of(netrc, "api.wandb.ai"), Some("yes"));
        assert_eq!(password_of(netrc, "elsewhere"), None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".netrc");
        std::fs::write(&path, netrc).unwrap();
        let home = folder.path().to_str().unwrap();
        let key = |pairs: &[(&str, &str)]| {
            let key = api_key(&Environment::from_pairs(pairs.iter().copied()));
            key.map(|key| key.reveal().to_owned())
        };
        assert_eq!(key(&[("HOME", home)]).as_deref(), Some("yes"));
        assert_eq!(
            key(&[("HOME", home), ("WANDB_API_KEY", "k")]).as_deref(),
            Some("k")
        );
        let elsewhere = ("WANDB_BASE_URL", "http://localhost:8080");
        assert_eq!(key(&[("HOME", home), elsewhere]), None);
    }
}
