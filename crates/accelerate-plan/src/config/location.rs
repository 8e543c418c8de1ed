//! Where the config file is, and in which format.

use std::path::{Path, PathBuf};

use crate::{
    Result,
    env::{Environment, HF_HOME, HOME, XDG_CACHE_HOME},
};

/// The format of a config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigFormat {
    /// YAML 1.1. JSON text in such a file is read as well.
    Yaml,
    /// JSON.
    Json,
}

impl ConfigFormat {
    /// The format of the file at a path: JSON if the path ends in `.json`, else YAML.
    pub fn of(path: &Path) -> Self {
        let bytes = path.as_os_str().as_encoded_bytes();
        match bytes.ends_with(b".json") {
            true => Self::Json,
            false => Self::Yaml,
        }
    }
}

/// The config file that is read when none is named: `accelerate/default_config.yaml` in
/// [`hub_home`].
///
/// The answer is `None` where the home folder is needed and `HOME` does not name it. Whether the
/// file exists is not looked at.
///
/// # Errors
/// [`Error::NotText`](crate::Error::NotText) if one of the variables is not UTF-8.
pub fn default_config_path(env: &Environment) -> Result<Option<PathBuf>> {
    Ok(hub_home(env)?.map(|home| home.join("accelerate").join("default_config.yaml")))
}

/// The folder in which models, data and settings are kept: `HF_HOME`, or else `huggingface` inside
/// `XDG_CACHE_HOME`, or else `~/.cache/huggingface`; `None` where it needs the home folder and
/// `HOME` does not name it.
///
/// # Errors
/// [`Error::NotText`](crate::Error::NotText) if one of these variables is not UTF-8.
pub fn hub_home(env: &Environment) -> Result<Option<PathBuf>> {
    let home = match (env.get(&HF_HOME)?, env.get(&XDG_CACHE_HOME)?) {
        (Some(home), _) => PathBuf::from(home),
        (None, cache) => Path::new(cache.as_deref().unwrap_or("~/.cache")).join("huggingface"),
    };
    expand_home(home, env)
}

/// The path with the home folder in the place of a leading `~`; `None` if `HOME` does not name it.
/// `~ada` stays as it is.
///
/// # Errors
/// [`Error::NotText`](crate::Error::NotText) if `HOME` is not UTF-8.
pub fn expand_home(path: impl Into<PathBuf>, env: &Environment) -> Result<Option<PathBuf>> {
    let path = path.into();
    match path.strip_prefix("~") {
        Err(_) => Ok(Some(path)),
        Ok(rest) => Ok(env.get(&HOME)?.map(|home| Path::new(&home).join(rest))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(pairs: &[(&str, &str)]) -> Option<PathBuf> {
        default_config_path(&Environment::from_pairs(pairs.iter().copied())).unwrap()
    }

    #[test]
    fn the_first_variable_that_is_set_says_where() {
        let home = ("HOME", "/home/ada");
        for (pairs, folder) in [
            (vec![home], "/home/ada/.cache/huggingface"),
            (
                vec![home, ("XDG_CACHE_HOME", "/cache")],
                "/cache/huggingface",
            ),
            (
                vec![home, ("XDG_CACHE_HOME", "/cache"), ("HF_HOME", "/hf")],
                "/hf",
            ),
            (vec![home, ("HF_HOME", "~/hf")], "/home/ada/hf"),
            (vec![home, ("HF_HOME", "~")], "/home/ada"),
            (
                vec![home, ("XDG_CACHE_HOME", "~/c")],
                "/home/ada/c/huggingface",
            ),
            // An empty variable counts as not set.
            (
                vec![home, ("HF_HOME", ""), ("XDG_CACHE_HOME", "")],
                "/home/ada/.cache/huggingface",
            ),
            (vec![("HF_HOME", "/hf")], "/hf"),
            (vec![home, ("HF_HOME", "~ada/hf")], "~ada/hf"),
        ] {
            let expected = Path::new(folder).join("accelerate/default_config.yaml");
            assert_eq!(located(&pairs), Some(expected), "{pairs:?}");
        }
    }

    #[test]
    fn without_a_home_there_is_no_default() {
        assert_eq!(located(&[]), None);
        assert_eq!(located(&[("HOME", "")]), None);
        assert_eq!(located(&[("HF_HOME", "~/hf")]), None);
    }

    #[test]
    fn only_the_end_of_the_path_says_json() {
        for (path, format) in [
            ("a.json", ConfigFormat::Json),
            (".json", ConfigFormat::Json),
            ("a.json.yaml", ConfigFormat::Yaml),
            ("a.JSON", ConfigFormat::Yaml),
            ("a.yml", ConfigFormat::Yaml),
            ("config", ConfigFormat::Yaml),
            ("x.json/config", ConfigFormat::Yaml),
        ] {
            assert_eq!(ConfigFormat::of(Path::new(path)), format, "{path}");
        }
    }
}
