//! The files of a model, from the hub into the cache that Python shares.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use accelerate_formats::weights::{INDEX_FILE, SINGLE_FILE, TORCH_INDEX_FILE, TORCH_SINGLE_FILE};
use accelerate_formats::{SafetensorsFile, ShardIndex, TorchFile};
use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo, Metadata};
use hf_hub::{Cache, CacheRepo, Repo};

use super::settings::Settings;
use super::{Access, HubId};
use crate::bert::CONFIG_FILE;
use crate::generation::GENERATION_CONFIG_FILE;
use crate::tokenizer::TOKENIZER_FILE;
use crate::{Error, Result};

/// How often another process is waited for that fetches the same file, 5 seconds each.
const LOCK_TRIES: u32 = 100;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Tells what is wrong with a file.
type Check = fn(&Path) -> Result<(), BoxError>;

/// A model on the hub.
pub(super) struct Hub<'a> {
    id: &'a HubId,
    settings: Settings,
    api: Api,
    cache: CacheRepo,
    /// Why the hub is not asked, and what to do.
    only_cache: Option<&'static str>,
}

impl<'a> Hub<'a> {
    /// Reached as the environment says.
    pub(super) fn from_environment(id: &'a HubId, access: Access) -> Result<Self> {
        let settings =
            Settings::from_environment().ok_or_else(|| Error::HubNoHome { id: id.clone() })?;
        Self::new(id, settings, access)
    }

    fn new(id: &'a HubId, settings: Settings, access: Access) -> Result<Self> {
        let cache = Cache::new(settings.cache.clone());
        let api = ApiBuilder::from_cache(cache.clone())
            .with_endpoint(settings.endpoint.clone())
            .with_token(settings.token.clone())
            .with_retries(settings.retries)
            .with_progress(false)
            .with_user_agent(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
            .build();
        let api = api.map_err(|e| fetch_error(id, &settings, CONFIG_FILE, e))?;
        Ok(Self {
            id,
            api,
            cache: cache.repo(repository(id, id.revision())),
            only_cache: only_cache(&settings, access),
            settings,
        })
    }

    /// Fetches what the cache lacks of the model.
    pub(super) fn model(&self) -> Result<PathBuf> {
        let commit = self.commit()?;
        let snapshot = Snapshot {
            hub: self,
            folder: self.cache.pointer_path(&commit),
            remote: self.api.repo(repository(self.id, &commit)),
        };
        snapshot.file(CONFIG_FILE, json)?;
        snapshot.file(TOKENIZER_FILE, json)?;
        snapshot.optional(GENERATION_CONFIG_FILE, json)?;
        snapshot.weights()?;
        // Last, so that a branch in the cache is one that is there as a whole.
        if self.only_cache.is_none() && commit != self.id.revision() {
            let noted = self.cache.create_ref(&commit);
            noted.map_err(|e| self.fetch_error(CONFIG_FILE, e))?;
        }
        Ok(snapshot.folder)
    }

    /// The commit that the revision stands for.
    fn commit(&self) -> Result<String> {
        let revision = self.id.revision();
        if is_commit(revision) {
            return Ok(revision.to_owned());
        }
        if self.only_cache.is_some() {
            return self
                .cached_commit()
                .ok_or_else(|| self.not_cached(CONFIG_FILE));
        }
        let address = self
            .api
            .repo(repository(self.id, revision))
            .url(CONFIG_FILE);
        match self.api.metadata(&address) {
            Ok(found) => self
                .checked(CONFIG_FILE, &found)
                .map(|()| found.commit_hash().to_owned()),
            Err(error) => match self.cached_commit().filter(|_| is_unreachable(&error)) {
                Some(commit) => {
                    tracing::warn!(id = %self.id, %error, "the hub cannot be reached, its model is taken from the cache");
                    Ok(commit)
                }
                None => Err(self.refused(CONFIG_FILE, error)),
            },
        }
    }

    /// The commit that the revision stood for when it was last fetched.
    fn cached_commit(&self) -> Option<String> {
        let repository = repository(self.id, self.id.revision());
        let branch = self
            .settings
            .cache
            .join(repository.folder_name())
            .join("refs");
        let commit = fs::read_to_string(branch.join(self.id.revision())).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// Both values become names of files: they may hold nothing else.
    fn checked(&self, file: &str, found: &Metadata) -> Result<()> {
        let etag = found.etag();
        let is_plain =
            !etag.is_empty() && etag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if is_plain && is_commit(found.commit_hash()) {
            return Ok(());
        }
        let answer = format!("etag `{etag}`, commit `{}`", found.commit_hash());
        let cause = format!("expected the hash of a file and of a commit, found {answer}");
        Err(self.fetch_error(file, cause))
    }

    fn refused(&self, file: &str, error: ApiError) -> Error {
        let (id, endpoint) = (self.id.clone(), self.settings.endpoint.clone());
        let file = file.to_owned();
        match status(&error) {
            Some(404) => Error::HubNotFound { id, file, endpoint },
            Some(401 | 403) => Error::HubAccess {
                id,
                file,
                endpoint,
                source: error.into(),
            },
            _ => self.fetch_error(&file, error),
        }
    }

    fn fetch_error(&self, file: &str, source: impl Into<BoxError>) -> Error {
        fetch_error(self.id, &self.settings, file, source)
    }

    fn not_cached(&self, file: &str) -> Error {
        Error::HubNotCached {
            id: self.id.clone(),
            file: file.to_owned(),
            cache: self.settings.cache.clone(),
            remedy: self.only_cache.unwrap_or_default(),
        }
    }
}

/// How a model may keep its weights.
struct WeightsForm {
    file: &'static str,
    check: Check,
    /// For an index, what its files have to be.
    check_shard: Option<Check>,
}

/// In the order in which they are asked for.
static FORMS: [WeightsForm; 4] = [
    WeightsForm {
        file: SINGLE_FILE,
        check: safetensors,
        check_shard: None,
    },
    WeightsForm {
        file: INDEX_FILE,
        check: index,
        check_shard: Some(safetensors),
    },
    WeightsForm {
        file: TORCH_SINGLE_FILE,
        check: torch,
        check_shard: None,
    },
    WeightsForm {
        file: TORCH_INDEX_FILE,
        check: index,
        check_shard: Some(torch),
    },
];

/// One commit of a model.
struct Snapshot<'a> {
    hub: &'a Hub<'a>,
    /// Where the cache has its files.
    folder: PathBuf,
    /// Where the hub has them.
    remote: ApiRepo,
}

impl Snapshot<'_> {
    /// The weights in the first form that there is: one file, or an index and its files.
    fn weights(&self) -> Result<()> {
        // What lies there is the form that the model has, and nobody asks for the others.
        let is_there = |form: &&WeightsForm| self.folder.join(form.file).exists();
        let forms = match FORMS.iter().find(is_there) {
            Some(form) => std::slice::from_ref(form),
            None => &FORMS,
        };
        let mut absent = None;
        for form in forms {
            match self.file(form.file, form.check) {
                Ok(path) => return self.shards(form, &path),
                // Where there is none, the form that most models have is named.
                Err(error @ (Error::HubNotFound { .. } | Error::HubNotCached { .. })) => {
                    absent.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        absent.map_or(Ok(()), Err)
    }

    fn shards(&self, form: &WeightsForm, path: &Path) -> Result<()> {
        let Some(check) = form.check_shard else {
            return Ok(());
        };
        let index = ShardIndex::read(path).map_err(accelerate::Error::from)?;
        for shard in index.shards() {
            self.file(shard, check)?;
        }
        Ok(())
    }

    /// A file that many models lack. That one lacks it is noted where Python notes it, so that
    /// nobody asks again.
    fn optional(&self, name: &str, check: Check) -> Result<()> {
        let note = self.note_of_absence(name);
        if note.as_ref().is_some_and(|note| note.exists()) {
            return Ok(());
        }
        match self.file(name, check) {
            Err(Error::HubNotFound { .. }) => {
                // Without the note the hub is asked once more the next time.
                let _noted = note.map(|note| touch(&note));
                Ok(())
            }
            Err(Error::HubNotCached { .. }) => Ok(()),
            Err(error @ Error::HubFetch { .. }) => {
                tracing::warn!(id = %self.hub.id, file = name, %error, "a file that a model may lack is done without");
                Ok(())
            }
            done => done.map(drop),
        }
    }

    fn note_of_absence(&self, name: &str) -> Option<PathBuf> {
        let commit = self.folder.file_name()?;
        let model = self.folder.parent()?.parent()?;
        Some(model.join(".no_exist").join(commit).join(name))
    }

    /// A file, fetched unless it is there; once more if it is damaged.
    fn file(&self, name: &str, check: Check) -> Result<PathBuf> {
        let path = self.folder.join(name);
        if self.hub.only_cache.is_some() {
            let found = path.exists().then_some(path);
            return found.ok_or_else(|| self.hub.not_cached(name));
        }
        if !path.exists() {
            self.fetch(name)?;
        }
        let Err(error) = check(&path) else {
            return Ok(path);
        };
        tracing::warn!(path = %path.display(), error, "a file from the hub is damaged and is fetched again");
        self.download(name, &self.metadata(name)?)?;
        check(&path).map_err(|error| self.hub.fetch_error(name, error))?;
        Ok(path)
    }

    fn metadata(&self, name: &str) -> Result<Metadata> {
        let found = self.hub.api.metadata(&self.remote.url(name));
        let found = found.map_err(|error| self.hub.refused(name, error))?;
        self.hub.checked(name, &found)?;
        Ok(found)
    }

    /// Fetches a file, unless another commit in the cache has the very same.
    fn fetch(&self, name: &str) -> Result<()> {
        let found = self.metadata(name)?;
        if self.hub.cache.blob_path(found.etag()).exists() {
            return match self.link(name, found.etag()) {
                Err(error) if !self.folder.join(name).exists() => {
                    Err(self.hub.fetch_error(name, error))
                }
                _ => Ok(()),
            };
        }
        self.download(name, &found)
    }

    fn link(&self, name: &str, etag: &str) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(name);
        #[cfg(unix)]
        return std::os::unix::fs::symlink(Path::new("../../blobs").join(etag), path);
        #[cfg(not(unix))]
        return fs::hard_link(self.hub.cache.blob_path(etag), path);
    }

    fn download(&self, name: &str, found: &Metadata) -> Result<()> {
        tracing::info!(id = %self.hub.id, file = name, bytes = found.size(), "fetching");
        let part = self
            .hub
            .cache
            .blob_path(found.etag())
            .with_extension("part");
        let mut cleared = false;
        for _ in 0..LOCK_TRIES {
            match self.remote.download(name) {
                Ok(_) => return Ok(()),
                Err(ApiError::LockAcquisition(_)) if self.folder.join(name).exists() => {
                    return Ok(());
                }
                Err(ApiError::LockAcquisition(lock)) => {
                    tracing::warn!(lock = %lock.display(), "another process fetches this file, waiting for it");
                }
                // Another process was ended when it had all bytes: there is nothing to go on with.
                Err(_) if !cleared && has_all(&part, found) => {
                    cleared = true;
                    fs::remove_file(&part).map_err(|error| self.hub.fetch_error(name, error))?;
                }
                Err(error) => return Err(self.hub.refused(name, error)),
            }
        }
        let waiting = "another process fetches the same file and does not come to an end";
        Err(self.hub.fetch_error(name, waiting))
    }
}

fn has_all(part: &Path, found: &Metadata) -> bool {
    part.metadata()
        .is_ok_and(|part| part.len() >= found.size() as u64)
}

fn repository(id: &HubId, revision: &str) -> Repo {
    let name = match id.owner() {
        Some(owner) => format!("{owner}/{}", id.name()),
        None => id.name().to_owned(),
    };
    Repo::with_revision(name, hf_hub::RepoType::Model, revision.to_owned())
}

fn only_cache(settings: &Settings, access: Access) -> Option<&'static str> {
    match access {
        Access::AfterMainProcess => {
            Some("the main process of this machine has not fetched it: see its error")
        }
        Access::Hub if settings.offline => Some(
            "`HF_HUB_OFFLINE` is set: unset it, or fetch the model once where the hub is reached",
        ),
        Access::Hub => None,
    }
}

fn fetch_error(id: &HubId, settings: &Settings, file: &str, source: impl Into<BoxError>) -> Error {
    Error::HubFetch {
        id: id.clone(),
        file: file.to_owned(),
        endpoint: settings.endpoint.clone(),
        source: source.into(),
    }
}

/// An empty file, and the folders that it needs.
fn touch(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, "")
}

fn is_commit(revision: &str) -> bool {
    revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
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

/// Whether the hub could answer another time.
fn is_unreachable(error: &ApiError) -> bool {
    use ureq::Error::{ConnectionFailed, HostNotFound, Io, Timeout};
    match error {
        ApiError::RequestError(cause) if status(error).is_none() => {
            matches!(
                **cause,
                ConnectionFailed | HostNotFound | Io(_) | Timeout(_)
            )
        }
        _ => status(error).is_some_and(|status| status >= 500),
    }
}

fn json(path: &Path) -> Result<(), BoxError> {
    serde_json::from_slice::<serde::de::IgnoredAny>(&fs::read(path)?)?;
    Ok(())
}

fn safetensors(path: &Path) -> Result<(), BoxError> {
    SafetensorsFile::open(path)?;
    Ok(())
}

fn torch(path: &Path) -> Result<(), BoxError> {
    TorchFile::open(path)?;
    Ok(())
}

fn index(path: &Path) -> Result<(), BoxError> {
    ShardIndex::read(path)?;
    Ok(())
}
