//! Key-value stores through which ranks find each other.

use std::ffi::c_int;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::time::Duration;

use crate::status::{append, check, lossy, outcome, target};
use crate::{Error, ExceptionKind, Result, ffi};

/// Where the ranks of a job meet: the TCP store that rank 0 serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpStoreOptions {
    /// The host of rank 0.
    pub host: String,
    /// The port there; 0 lets the server choose one.
    pub port: u16,
    /// Whether this process serves the store, as rank 0 does.
    pub server: bool,
    /// How many processes take part; `None` for any number.
    pub workers: Option<usize>,
    /// How long a call waits before it fails.
    pub timeout: Duration,
}

/// A key-value store that all ranks see.
#[derive(Debug)]
pub struct Store {
    handle: NonNull<ffi::Store>,
}

// SAFETY: a reference-counted pointer with an atomic count; the stores behind it guard
// every operation with their own mutex.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used after.
        unsafe { ffi::acc_store_free(self.handle.as_ptr()) }
    }
}

impl Store {
    /// Serves a TCP store, or connects to one; does not wait for the other ranks.
    ///
    /// # Errors
    /// If the port is in use, or no server answers within the timeout: both name the
    /// address.
    pub fn tcp(options: &TcpStoreOptions) -> Result<Self> {
        let mut out = ptr::null_mut();
        // SAFETY: the text is valid for the call; on success `out` is an owned handle.
        let made = unsafe {
            outcome(ffi::acc_store_tcp(
                options.host.as_ptr().cast(),
                options.host.len(),
                options.port,
                options.server,
                options.workers.unwrap_or(0),
                millis(options.timeout),
                &mut out,
            ))
        };
        made.map_err(|exception| {
            let address = format!("{}:{}", options.host, options.port);
            if options.server && exception.message.contains("EADDRINUSE") {
                Error::AddressInUse { address }
            } else {
                Error::Unreachable {
                    address,
                    server: options.server,
                    message: exception.message,
                }
            }
        })?;
        Self::from_raw("TCP store", out)
    }

    /// A store in a file that all ranks can reach, which has to be new for every job.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn file(path: &Path, workers: usize) -> Result<Self> {
        let operation = "file store";
        let path = path.to_string_lossy();
        let workers = c_int::try_from(workers).map_err(|_| Error::Argument {
            operation,
            expected: "a number of workers below 2^31".to_owned(),
            found: workers.to_string(),
        })?;
        let mut out = ptr::null_mut();
        // SAFETY: as for `tcp`.
        unsafe {
            check(
                operation,
                ffi::acc_store_file(path.as_ptr().cast(), path.len(), workers, &mut out),
            )?;
        }
        Self::from_raw(operation, out)
    }

    /// The same store, seen through a prefix on every key.
    ///
    /// # Errors
    /// None that is known.
    pub fn prefixed(&self, prefix: &str) -> Result<Self> {
        let mut out = ptr::null_mut();
        // SAFETY: handle and text are valid for the call; on success `out` is an owned handle.
        unsafe {
            check(
                "prefix store",
                ffi::acc_store_prefix(self.raw(), prefix.as_ptr().cast(), prefix.len(), &mut out),
            )?;
        }
        Self::from_raw("prefix store", out)
    }

    /// Another connection to the same store, for a thread that must not wait for this one.
    ///
    /// # Errors
    /// If the server does not answer.
    pub fn reconnect(&self) -> Result<Self> {
        let mut out = ptr::null_mut();
        // SAFETY: the handle is alive; on success `out` is an owned handle.
        unsafe { check("clone store", ffi::acc_store_clone(self.raw(), &mut out))? };
        Self::from_raw("clone store", out)
    }

    fn from_raw(operation: &'static str, raw: *mut ffi::Store) -> Result<Self> {
        NonNull::new(raw)
            .map(|handle| Self { handle })
            .ok_or(Error::Unavailable {
                operation,
                needed: "a store",
                remedy: "libtorch returned none",
            })
    }

    pub(crate) fn raw(&self) -> *mut ffi::Store {
        self.handle.as_ptr()
    }

    /// Counts this process in; the server waits here until all workers are counted.
    ///
    /// This is what Python's ranks do when they connect, and what its server waits for.
    ///
    /// # Errors
    /// If workers are missing when the timeout is over, or this is no TCP store.
    pub fn wait_for_workers(&self) -> Result<()> {
        // SAFETY: the handle is alive.
        unsafe {
            check(
                "wait for workers",
                ffi::acc_store_tcp_wait_workers(self.raw()),
            )
        }
    }

    /// The port of a TCP store, which the server may have chosen.
    ///
    /// # Errors
    /// If this is no TCP store.
    pub fn port(&self) -> Result<u16> {
        let mut port = 0;
        // SAFETY: the handle is alive and the port is written before it is read.
        unsafe {
            check(
                "port of store",
                ffi::acc_store_tcp_port(self.raw(), &mut port),
            )?
        };
        Ok(port)
    }

    /// Sets a key.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        // SAFETY: handle, key and value are valid for the call.
        unsafe {
            check(
                "store set",
                ffi::acc_store_set(
                    self.raw(),
                    key.as_ptr().cast(),
                    key.len(),
                    value.as_ptr(),
                    value.len(),
                ),
            )
        }
    }

    /// The value of a key, once somebody has set it.
    ///
    /// # Errors
    /// [`Error::Timeout`] if nobody does within `timeout`.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        // SAFETY: handle and key are valid for the call; the sink gets the vector it expects.
        let got = unsafe {
            outcome(ffi::acc_store_get(
                self.raw(),
                key.as_ptr().cast(),
                key.len(),
                millis(timeout),
                append,
                target(&mut value),
            ))
        };
        got.map_err(|exception| key_error("store get", key, exception))?;
        Ok(value)
    }

    /// The value of a key as text; bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_text(&self, key: &str, timeout: Duration) -> Result<String> {
        Ok(lossy(self.get(key, timeout)?))
    }

    /// Sets a key to `desired` if it is `expected`, and returns what it is then.
    ///
    /// An empty `expected` stands for a key that is not set.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        // SAFETY: all slices are valid for the call; the sink gets the vector it expects.
        unsafe {
            check(
                "store compare and set",
                ffi::acc_store_compare_set(
                    self.raw(),
                    key.as_ptr().cast(),
                    key.len(),
                    expected.as_ptr(),
                    expected.len(),
                    desired.as_ptr(),
                    desired.len(),
                    append,
                    target(&mut value),
                ),
            )?;
        }
        Ok(value)
    }

    /// Adds to a counter, which starts at 0, and returns its new value.
    ///
    /// # Errors
    /// If the store cannot be reached, or the key holds something else.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64> {
        let mut sum = 0;
        // SAFETY: handle and key are valid for the call; the sum is written before it is read.
        unsafe {
            check(
                "store add",
                ffi::acc_store_add(self.raw(), key.as_ptr().cast(), key.len(), amount, &mut sum),
            )?;
        }
        Ok(sum)
    }

    /// Whether a key is set.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub fn contains(&self, key: &str) -> Result<bool> {
        let mut there = false;
        // SAFETY: handle and key are valid for the call.
        unsafe {
            check(
                "store check",
                ffi::acc_store_check(self.raw(), key.as_ptr().cast(), key.len(), &mut there),
            )?;
        }
        Ok(there)
    }

    /// Waits until somebody sets a key.
    ///
    /// # Errors
    /// [`Error::Timeout`] if nobody does within `timeout`.
    pub fn wait(&self, key: &str, timeout: Duration) -> Result<()> {
        // SAFETY: handle and key are valid for the call.
        let waited = unsafe {
            outcome(ffi::acc_store_wait(
                self.raw(),
                key.as_ptr().cast(),
                key.len(),
                millis(timeout),
            ))
        };
        waited.map_err(|exception| key_error("store wait", key, exception))
    }

    /// Takes a key away; answers whether it was there.
    ///
    /// # Errors
    /// If the store cannot be reached, or is a kind that cannot delete.
    pub fn delete(&self, key: &str) -> Result<bool> {
        let mut there = false;
        // SAFETY: handle and key are valid for the call.
        unsafe {
            check(
                "store delete",
                ffi::acc_store_delete(self.raw(), key.as_ptr().cast(), key.len(), &mut there),
            )?;
        }
        Ok(there)
    }
}

fn key_error(operation: &'static str, key: &str, exception: crate::status::Exception) -> Error {
    if exception.kind == ExceptionKind::Store && is_timeout(&exception.message) {
        return Error::Timeout {
            operation,
            place: None,
            message: format!("nobody set the key `{key}`"),
        };
    }
    exception.into_error(operation)
}

/// Whether a message of libtorch, Gloo or NCCL is about time that is over.
pub(crate) fn is_timeout(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["timeout", "timed out"]
        .iter()
        .any(|word| message.contains(word))
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    fn server() -> Result<Store> {
        Store::tcp(&TcpStoreOptions {
            host: "127.0.0.1".to_owned(),
            port: 0,
            server: true,
            workers: None,
            timeout: Duration::from_secs(5),
        })
    }

    fn every_operation(store: &Store) -> Result<()> {
        store.set("key", b"value")?;
        assert_eq!(store.get("key", SHORT)?, b"value");
        assert_eq!([store.add("count", 2)?, store.add("count", 3)?], [2, 5]);
        assert!(store.contains("key")? && !store.contains("other")?);
        store.wait("key", SHORT)?;
        assert_eq!(store.compare_set("key", b"wrong", b"new")?, b"value");
        assert_eq!(store.compare_set("key", b"value", b"new")?, b"new");
        assert!(store.delete("key")? && !store.contains("key")?);
        Ok(())
    }

    #[test]
    fn a_tcp_store_holds_what_ranks_set() -> Result<()> {
        let store = server()?;
        every_operation(&store)?;
        let prefixed = store.prefixed("group")?;
        prefixed.set("a", b"1")?;
        assert_eq!(store.get_text("group/a", SHORT)?, "1");
        assert_eq!(store.reconnect()?.get("group/a", SHORT)?, b"1");
        Ok(())
    }

    #[test]
    fn a_file_store_holds_what_ranks_set() -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        every_operation(&Store::file(&folder.path().join("store"), 1)?)
    }

    #[test]
    fn a_key_that_never_comes_is_a_timeout_that_names_it() -> Result<()> {
        let store = server()?;
        for error in [
            store.get("never", SHORT).unwrap_err(),
            store.wait("never", SHORT).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            assert!(error.to_string().contains("`never`"), "{error}");
        }
        Ok(())
    }

    #[test]
    fn a_busy_port_is_named() -> Result<()> {
        let store = server()?;
        let options = TcpStoreOptions {
            host: "127.0.0.1".to_owned(),
            port: store.port()?,
            server: true,
            workers: None,
            timeout: Duration::from_secs(5),
        };
        let error = Store::tcp(&options).unwrap_err();
        assert!(matches!(&error, Error::AddressInUse { .. }), "{error}");
        assert!(
            error.to_string().contains(&options.port.to_string()),
            "{error}"
        );
        Ok(())
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let options = TcpStoreOptions {
            host: "127.0.0.1".to_owned(),
            port: 1,
            server: false,
            workers: None,
            timeout: Duration::from_millis(300),
        };
        let error = Store::tcp(&options).unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    }
}
