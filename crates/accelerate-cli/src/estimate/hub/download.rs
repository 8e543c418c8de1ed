//! Fetching a `config.json` into the cache that Python shares. Weights are never fetched.

use std::{fs, path::PathBuf};

use accelerate_plan::env::{Environment, HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, Variable};

use hf_hub::{
    Cache, Repo, RepoType,
    api::sync::{ApiBuilder, ApiError},
};

use super::{HubName, HubSettings};
use crate::estimate::{
    error::{EstimateError, Result},
    source::CONFIG_FILE,
};

/// The hub of Hugging Face.
const PUBLIC_HUB: &str = "https://huggingface.co";

/// The folder in the cache that holds the freshly fetched `config.json`.
pub(super) fn config(name: &HubName, settings: &HubSettings) -> Result<PathBuf> {
    let endpoint = endpoint();
    let repository = name.repository.clone();
    let repository = Repo::with_revision(repository, RepoType::Model, name.revision.clone());
    let fetched = ApiBuilder::from_cache(Cache::new(settings.cache.clone()))
        .with_endpoint(endpoint.clone())
        .with_token(token(settings))
        .with_progress(false)
        .with_user_agent(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .build()
        .and_then(|api| api.repo(repository).get(CONFIG_FILE));
    let mut path = fetched.map_err(|error| explain(name.text(), endpoint, error))?;
    path.pop();
    Ok(path)
}

fn explain(id: String, endpoint: String, error: ApiError) -> EstimateError {
    match status(&error) {
        Some(404) => EstimateError::NotOnHub { id, endpoint },
        Some(401 | 403) => EstimateError::Gated {
            id,
            endpoint,
            source: error.into(),
        },
        _ => EstimateError::Fetch {
            id,
            endpoint,
            source: error.into(),
        },
    }
}

fn status(error: &ApiError) -> Option<u16> {
    match error {
        ApiError::TooManyRetries(error) => status(error),
        ApiError::RequestError(error) => match **error {
            ureq::Error::StatusCode(status) => Some(status),
            _ => None,
        },
        _ => None,
    }
}

fn endpoint() -> String {
    text(&HF_ENDPOINT).map_or(PUBLIC_HUB.to_owned(), |e| {
        e.trim_end_matches('/').to_owned()
    })
}

/// What lets the user in: `HF_TOKEN`, or what signing in has left.
fn token(settings: &HubSettings) -> Option<String> {
    let path = text(&HF_TOKEN_PATH).map(PathBuf::from);
    let path = path.or_else(|| Some(settings.home.as_ref()?.join("token")));
    let token = text(&HF_TOKEN).or_else(|| fs::read_to_string(path?).ok())?;
    Some(token.trim().to_owned()).filter(|token| !token.is_empty())
}

/// What cannot be read is taken for not set.
fn text(variable: &Variable<String>) -> Option<String> {
    Environment::from_process().get(variable).ok().flatten()
}
