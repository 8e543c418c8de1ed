//! How the hub is reached and where its files are kept, by the variables of `huggingface_hub`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The hub of Hugging Face.
const PUBLIC_HUB: &str = "https://huggingface.co";
/// How often a broken download goes on where it broke.
const RETRIES: usize = 3;

/// How the hub is reached and where its files are kept.
#[derive(Clone)]
pub(super) struct Settings {
    /// The address of the hub.
    pub(super) endpoint: String,
    /// The folder of the cache.
    pub(super) cache: PathBuf,
    /// What lets the user in.
    pub(super) token: Option<String>,
    /// Whether the hub may not be asked at all.
    pub(super) offline: bool,
    /// How often a broken download goes on where it broke.
    pub(super) retries: usize,
}

impl Settings {
    /// Those of the environment; none where it does not say where the cache is.
    pub(super) fn from_environment() -> Option<Self> {
        Self::read(|name| std::env::var_os(name), std::env::home_dir())
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>, user: Option<PathBuf>) -> Option<Self> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let text = |name| set(name).and_then(|value| value.into_string().ok());
        let path = |name| set(name).map(PathBuf::from);
        let is_on = |name| text(name).is_some_and(|value| is_true(&value));

        let home = path("HF_HOME")
            .or_else(|| Some(path("XDG_CACHE_HOME")?.join("huggingface")))
            .or_else(|| Some(user?.join(".cache/huggingface")));
        let token_file = path("HF_TOKEN_PATH").or_else(|| Some(home.as_ref()?.join("token")));
        let token = match is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            true => None,
            false => text("HF_TOKEN").or_else(|| read_token(&token_file?)),
        };
        Some(Self {
            endpoint: text("HF_ENDPOINT").map_or(PUBLIC_HUB.to_owned(), |e| {
                e.trim_end_matches('/').to_owned()
            }),
            cache: path("HF_HUB_CACHE").or_else(|| Some(home?.join("hub")))?,
            token: token.map(|token| token.trim().to_owned()),
            offline: is_on("HF_HUB_OFFLINE"),
            retries: RETRIES,
        })
    }
}

fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"]
        .iter()
        .any(|yes| value.eq_ignore_ascii_case(yes))
}

/// The token that signing in has left.
fn read_token(path: &Path) -> Option<String> {
    let token = std::fs::read_to_string(path).ok()?;
    Some(token).filter(|token| !token.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Settings {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name)?;
            Some(OsString::from(found.1))
        };
        Settings::read(variable, Some("/home/me".into())).unwrap()
    }

    #[test]
    fn the_cache_is_where_python_has_it() {
        let cache = |variables: &[_]| read(variables).cache;
        assert_eq!(cache(&[]), Path::new("/home/me/.cache/huggingface/hub"));
        let xdg = ("XDG_CACHE_HOME", "/xdg");
        assert_eq!(cache(&[xdg]), Path::new("/xdg/huggingface/hub"));
        let home = ("HF_HOME", "/hf");
        assert_eq!(cache(&[xdg, home]), Path::new("/hf/hub"));
        let own = ("HF_HUB_CACHE", "/cache");
        assert_eq!(cache(&[xdg, home, own]), Path::new("/cache"));
        let empty = ("HF_HUB_CACHE", "");
        assert_eq!(cache(&[home, empty]), Path::new("/hf/hub"));
    }

    #[test]
    fn without_a_home_there_is_no_cache() {
        assert!(Settings::read(|_| None, None).is_none());
        let cache = |name: &str| (name == "HF_HUB_CACHE").then(|| OsString::from("/cache"));
        assert!(Settings::read(cache, None).is_some());
    }

    #[test]
    fn the_token_is_the_variable_or_the_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), " hf_file\n").unwrap();
        let home = ("HF_HOME", folder.path().to_str().unwrap());
        assert_eq!(read(&[home]).token.as_deref(), Some("hf_file"));
        let own = ("HF_TOKEN", "hf_own\n");
        assert_eq!(read(&[home, own]).token.as_deref(), Some("hf_own"));
        let off = ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
        assert_eq!(read(&[home, own, off]).token, None);
        assert_eq!(read(&[]).token, None);
    }

    #[test]
    fn offline_takes_the_usual_words() {
        for (value, offline) in [("1", true), ("True", true), ("yes", true), ("ON", true)]
            .into_iter()
            .chain([("0", false), ("", false), ("no", false)])
        {
            assert_eq!(
                read(&[("HF_HUB_OFFLINE", value)]).offline,
                offline,
                "{value}"
            );
        }
    }

    #[test]
    fn the_address_may_be_another_hub() {
        assert_eq!(read(&[]).endpoint, PUBLIC_HUB);
        let mirror = read(&[("HF_ENDPOINT", "https://hub.example/")]);
        assert_eq!(mirror.endpoint, "https://hub.example");
    }
}
