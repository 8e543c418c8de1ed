//! A hub of a few files, on this machine.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::*;

const FIRST: &str = "1111111111111111111111111111111111111111";
const SECOND: &str = "2222222222222222222222222222222222222222";

/// What the hub has and what it was asked.
struct State {
    main: &'static str,
    files: BTreeMap<&'static str, Vec<u8>>,
    /// Refuses the bytes of files, with this status; not what is known about them.
    refuses_bytes: Option<u16>,
    refuses_all: Option<u16>,
    asked: Vec<String>,
}

struct TestHub {
    endpoint: String,
    state: Arc<Mutex<State>>,
    cache: tempfile::TempDir,
}

impl TestHub {
    fn new(files: &[(&'static str, Vec<u8>)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            main: FIRST,
            files: files.iter().cloned().collect(),
            refuses_bytes: None,
            refuses_all: None,
            asked: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(&stream, &shared).ok();
            }
        });
        let cache = tempfile::tempdir().unwrap();
        Self {
            endpoint,
            state,
            cache,
        }
    }

    fn settings(&self) -> Settings {
        Settings {
            endpoint: self.endpoint.clone(),
            cache: self.cache.path().to_owned(),
            token: Some("hf_test".to_owned()),
            offline: false,
            retries: 0,
        }
    }

    fn fetch(&self, id: &str) -> Result<PathBuf> {
        self.fetch_with(id, self.settings(), Access::Hub)
    }

    fn fetch_with(&self, id: &str, settings: Settings, access: Access) -> Result<PathBuf> {
        Hub::new(&id.parse().unwrap(), settings, access)?.model()
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    /// What was asked since the last time, without what is asked twice.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut self.state.lock().unwrap().asked);
        asked.dedup();
        asked
    }
}

/// Answers as the hub does: the whole file or, as its client asks, a part of it.
fn answer(mut stream: &TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let headers: Vec<String> = lines
        .map_while(|line| line.ok().filter(|l| !l.is_empty()))
        .collect();
    let header = |name: &str| {
        let mut pairs = headers.iter().filter_map(|line| line.split_once(": "));
        pairs
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    };
    let path = request.split(' ').nth(1).unwrap_or_default();
    let mut state = state.lock().unwrap();
    state.asked.push(path.to_owned());

    let (place, file) = path.rsplit_once('/').unwrap();
    let revision = place.rsplit_once('/').unwrap().1;
    let commit = if revision == "main" {
        state.main
    } else {
        revision
    };
    let range = header("range").unwrap_or_default();
    let refused = if header("authorization").as_deref() == Some("Bearer hf_test") {
        let bytes_refused = state.refuses_bytes.filter(|_| range != "bytes=0-0");
        state.refuses_all.or(bytes_refused)
    } else {
        Some(401)
    };
    let refused = refused.or((!state.files.contains_key(file)).then_some(404));
    if let Some(status) = refused {
        return write!(
            stream,
            "HTTP/1.1 {status} No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
        );
    }
    let bytes = &state.files[file];
    let (start, end) = range
        .strip_prefix("bytes=")
        .and_then(|r| r.split_once('-'))
        .unwrap();
    let start: usize = start.parse().unwrap();
    let end = end.parse().map_or(bytes.len(), |end: usize| end + 1);
    if start >= bytes.len() {
        return write!(
            stream,
            "HTTP/1.1 416 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {start}-{}/{}\r\n\
         ETag: \"{}\"\r\nX-Repo-Commit: {commit}\r\nConnection: close\r\n\r\n",
        end - start,
        end - 1,
        bytes.len(),
        etag(file, bytes)
    )?;
    stream.write_all(&bytes[start..end])
}

fn etag(file: &str, bytes: &[u8]) -> String {
    let sum: u64 = bytes.iter().map(|&b| u64::from(b)).sum();
    format!(
        "{}{:x}{sum:x}",
        file.replace(['.', '-', '_'], ""),
        bytes.len()
    )
}

fn weights(name: &str) -> Vec<u8> {
    let header = format!(r#"{{"{name}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#);
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), &1f32.to_le_bytes()].concat()
}

fn single() -> TestHub {
    TestHub::new(&[
        (CONFIG_FILE, b"{}".to_vec()),
        (TOKENIZER_FILE, b"{\"version\":\"1.0\"}".to_vec()),
        (SINGLE_FILE, weights("w")),
        (TORCH_SINGLE_FILE, b"not needed".to_vec()),
    ])
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_model_in_one_file_lies_where_python_finds_it() {
    let hub = single();
    let folder = hub.fetch("owner/name").unwrap();
    let models = hub.cache.path().join("models--owner--name");
    assert_eq!(folder, models.join("snapshots").join(FIRST));
    assert_eq!(names(&folder), [CONFIG_FILE, SINGLE_FILE, TOKENIZER_FILE]);
    assert_eq!(fs::read(folder.join(SINGLE_FILE)).unwrap(), weights("w"));
    assert_eq!(fs::read_to_string(models.join("refs/main")).unwrap(), FIRST);

    // All files are of the commit that the branch was at first.
    let asked = hub.asked();
    assert_eq!(asked[0], "/owner/name/resolve/main/config.json");
    let rest = asked[1..].iter();
    for path in rest {
        assert!(
            path.starts_with(&format!("/owner/name/resolve/{FIRST}/")),
            "{path}"
        );
        assert!(!path.ends_with(INDEX_FILE), "{path}");
    }
}

#[test]
fn what_the_cache_has_is_not_fetched_again() {
    let hub = single();
    hub.fetch("name").unwrap();
    hub.asked();
    hub.fetch("name").unwrap();
    assert_eq!(hub.asked(), ["/name/resolve/main/config.json"]);
    hub.fetch(&format!("name@{FIRST}")).unwrap();
    assert_eq!(hub.asked(), [""; 0]);

    // A new commit with one new file: the bytes of the others are there.
    hub.set(|state| {
        state.main = SECOND;
        state.files.insert(CONFIG_FILE, b"{\"new\":1}".to_vec());
    });
    let folder = hub.fetch("name").unwrap();
    assert!(folder.ends_with(SECOND), "{}", folder.display());
    assert_eq!(fs::read(folder.join(CONFIG_FILE)).unwrap(), b"{\"new\":1}");
    assert_eq!(fs::read(folder.join(SINGLE_FILE)).unwrap(), weights("w"));
    let blobs = hub.cache.path().join("models--name/blobs");
    let kept = names(&blobs)
        .into_iter()
        .filter(|name| !name.ends_with(".lock"));
    assert_eq!(kept.count(), 4);
}

#[test]
fn weights_in_several_files_come_with_their_index() {
    let map = r#"{"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}"#;
    let hub = TestHub::new(&[
        (CONFIG_FILE, b"{}".to_vec()),
        (TOKENIZER_FILE, b"{}".to_vec()),
        (INDEX_FILE, map.into()),
        ("m-1.safetensors", weights("a")),
        ("m-2.safetensors", weights("b")),
    ]);
    let folder = hub.fetch("owner/name").unwrap();
    let loaded = accelerate_formats::Weights::open(&folder).unwrap();
    assert!(loaded.get("a").is_ok() && loaded.get("b").is_ok());

    hub.asked();
    hub.fetch("owner/name").unwrap();
    assert_eq!(hub.asked().len(), 1);
    let offline = Settings {
        offline: true,
        ..hub.settings()
    };
    assert_eq!(
        hub.fetch_with("owner/name", offline, Access::Hub).unwrap(),
        folder
    );
}

#[test]
fn settings_for_generation_come_along_where_there_are_any() {
    let hub = single();
    let settings = b"{\"eos_token_id\":[3,4]}".to_vec();
    hub.set(|state| {
        state.files.insert(GENERATION_CONFIG_FILE, settings.clone());
    });
    let folder = hub.fetch("owner/name").unwrap();
    let read = crate::generation::GenerationConfig::from_folder(&folder).unwrap();
    assert_eq!(read.eos_token_id, [3, 4]);

    // A model without: noted where Python notes it.
    let hub = single();
    hub.fetch("owner/name").unwrap();
    let asked = |hub: &TestHub| {
        let asked = hub.asked().into_iter();
        asked
            .filter(|path| path.ends_with(GENERATION_CONFIG_FILE))
            .count()
    };
    assert!(asked(&hub) > 0);
    hub.fetch("owner/name").unwrap();
    assert_eq!(asked(&hub), 0);
    let notes = hub.cache.path().join("models--owner--name/.no_exist");
    assert_eq!(names(&notes.join(FIRST)), [GENERATION_CONFIG_FILE]);
}

#[test]
fn weights_of_torch_come_where_there_are_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(TORCH_SINGLE_FILE);
    let value = accelerate_formats::Value::Dict(accelerate_formats::Dict::new());
    accelerate_formats::write_torch_file(&file, &value).unwrap();
    let bytes = fs::read(&file).unwrap();
    let hub = single();
    hub.set(|state| {
        state.files.remove(SINGLE_FILE);
        state.files.insert(TORCH_SINGLE_FILE, bytes.clone());
    });
    let found = hub.fetch("owner/name").unwrap();
    assert_eq!(fs::read(found.join(TORCH_SINGLE_FILE)).unwrap(), bytes);
    hub.asked();
    hub.fetch("owner/name").unwrap();
    assert_eq!(hub.asked(), ["/owner/name/resolve/main/config.json"]);
}

#[test]
fn offline_is_the_cache_or_an_error_that_says_so() {
    let hub = single();
    let offline = Settings {
        offline: true,
        ..hub.settings()
    };
    let fetch = |access| hub.fetch_with("owner/name", offline.clone(), access);
    let text = fetch(Access::Hub).unwrap_err().to_string();
    assert!(
        text.contains("`config.json` of `owner/name` is not in the cache"),
        "{text}"
    );
    assert!(text.contains("HF_HUB_OFFLINE"), "{text}");
    let text = fetch(Access::AfterMainProcess).unwrap_err().to_string();
    assert!(text.contains("the main process of this machine"), "{text}");
    assert_eq!(hub.asked(), [""; 0]);

    let folder = hub.fetch("owner/name").unwrap();
    hub.asked();
    assert_eq!(fetch(Access::Hub).unwrap(), folder);
    assert_eq!(fetch(Access::AfterMainProcess).unwrap(), folder);
    assert_eq!(hub.asked(), [""; 0]);

    fs::remove_file(folder.join(SINGLE_FILE)).unwrap();
    let error = fetch(Access::Hub).unwrap_err();
    assert!(
        matches!(&error, Error::HubNotCached { file, .. } if file == SINGLE_FILE),
        "{error}"
    );
}

#[test]
fn without_a_connection_the_cache_serves() {
    let hub = single();
    let folder = hub.fetch("owner/name").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let gone = Settings {
        endpoint: format!("http://{closed}"),
        ..hub.settings()
    };
    assert_eq!(
        hub.fetch_with("owner/name", gone.clone(), Access::Hub)
            .unwrap(),
        folder
    );
    let error = hub
        .fetch_with("owner/other", gone, Access::Hub)
        .unwrap_err();
    assert!(matches!(error, Error::HubFetch { .. }), "{error}");

    hub.set(|state| state.refuses_all = Some(503));
    assert_eq!(hub.fetch("owner/name").unwrap(), folder);
    // To be told that a model is gone is not to be without a connection.
    hub.set(|state| state.refuses_all = Some(404));
    assert!(matches!(
        hub.fetch("owner/name"),
        Err(Error::HubNotFound { .. })
    ));
}

#[test]
fn refusals_name_the_file_and_the_way_out() {
    let hub = single();
    hub.set(|state| {
        state.files.remove(SINGLE_FILE);
        state.files.remove(TORCH_SINGLE_FILE);
    });
    let error = hub.fetch("owner/name").unwrap_err();
    let (text, hub_address) = (error.to_string(), &hub.endpoint);
    assert!(
        text.starts_with(&format!(
            "{hub_address} has no `model.safetensors` for `owner/name`"
        )),
        "{text}"
    );
    assert!(
        !hub.cache
            .path()
            .join("models--owner--name/refs/main")
            .exists()
    );

    let stranger = Settings {
        token: None,
        ..hub.settings()
    };
    let text = hub
        .fetch_with("owner/name", stranger, Access::Hub)
        .unwrap_err()
        .to_string();
    assert!(text.contains("set `HF_TOKEN`"), "{text}");
}

#[test]
fn a_damaged_file_is_fetched_again() {
    let hub = single();
    let folder = hub.fetch("owner/name").unwrap();
    let file = folder.join(SINGLE_FILE);
    fs::write(&file, "half").unwrap();
    hub.fetch("owner/name").unwrap();
    assert_eq!(fs::read(&file).unwrap(), weights("w"));

    // If the hub has it damaged, that is told.
    hub.set(|state| {
        state.main = SECOND;
        state.files.insert(CONFIG_FILE, b"{".to_vec());
    });
    let error = hub.fetch("owner/name").unwrap_err();
    assert!(
        matches!(&error, Error::HubFetch { file, .. } if file == CONFIG_FILE),
        "{error}"
    );
}

#[test]
fn a_refused_download_leaves_nothing_behind() {
    let hub = single();
    hub.set(|state| state.refuses_bytes = Some(403));
    assert!(matches!(
        hub.fetch("owner/name"),
        Err(Error::HubAccess { .. })
    ));
    hub.set(|state| state.refuses_bytes = None);
    let folder = hub.fetch("owner/name").unwrap();
    assert_eq!(fs::read(folder.join(CONFIG_FILE)).unwrap(), b"{}");
}

#[test]
fn a_download_goes_on_after_an_end_at_any_byte() {
    for kept in [0, 5, weights("w").len(), weights("w").len() + 3] {
        let hub = single();
        let bytes = weights("w");
        let blobs = hub.cache.path().join("models--owner--name/blobs");
        fs::create_dir_all(&blobs).unwrap();
        let part = blobs.join(etag(SINGLE_FILE, &bytes)).with_extension("part");
        fs::write(part, [&bytes[..], b"odd"].concat().get(..kept).unwrap()).unwrap();
        let folder = hub.fetch("owner/name").unwrap();
        assert_eq!(fs::read(folder.join(SINGLE_FILE)).unwrap(), bytes, "{kept}");
    }
}

#[test]
fn names_from_the_hub_stay_inside_the_cache() {
    let hub = single();
    hub.set(|state| state.main = "../../../escaped");
    let error = hub.fetch("owner/name").unwrap_err();
    assert!(matches!(error, Error::HubFetch { .. }), "{error}");
    assert_eq!(names(hub.cache.path()), [""; 0]);
}
