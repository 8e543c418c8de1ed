//! One connection to the store.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    process,
    time::{Duration, Instant},
};

use super::wire::{self, Bytes, MAGIC, Request};
use crate::launch::rendezvous::{endpoint::Endpoint, interrupt::Interrupt};

/// How long the first pause between two attempts to connect is, and the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long one address may take to answer.
const ONE_ATTEMPT: Duration = Duration::from_secs(5);

/// How often a wait looks whether it is to end.
const GLANCE: Duration = Duration::from_millis(20);

/// No answer of this protocol announces more bytes.
const LONGEST_ANSWER: usize = super::limits::ANSWER;

/// Why the store did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StoreError {
    #[error("the connection to the store broke")]
    Lost { source: io::Error },
    #[error("the store did not answer within {} s", waited.as_secs_f64())]
    Silent { waited: Duration },
    #[error("what answers is not a store of this protocol")]
    Foreign,
    #[error("interrupted")]
    Interrupted,
}

/// A client. Its keys get a prefix, as those of PyTorch's `PrefixStore` do.
#[derive(Debug)]
pub(crate) struct StoreClient {
    stream: TcpStream,
    prefix: String,
    /// How long an answer may take.
    patience: Duration,
    interrupt: Option<Interrupt>,
    /// An answer was not read to its end: the next would be misunderstood.
    out_of_step: bool,
}

/// How to connect.
#[derive(Debug, Clone)]
pub(crate) struct Dial {
    /// Before each key, without the slash that follows.
    pub(crate) prefix: String,
    /// How long an answer may take.
    pub(crate) patience: Duration,
    /// Ends every wait. Without it a wait costs nothing while nothing happens.
    pub(crate) interrupt: Option<Interrupt>,
}

impl Dial {
    /// Tries to connect until `deadline`, first every few milliseconds, then slower. After each
    /// attempt `failed` learns why it failed.
    ///
    /// # Errors
    /// That of the last attempt, or [`StoreError::Interrupted`].
    pub(crate) fn until(
        &self,
        endpoint: &Endpoint,
        deadline: Instant,
        failed: &mut dyn FnMut(&StoreError),
    ) -> Result<StoreClient, StoreError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match self.once(endpoint, left.max(GLANCE).min(ONE_ATTEMPT)) {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            failed(&error);
            let again = Instant::now() + pause;
            if again > deadline {
                return Err(error);
            }
            while Instant::now() < again {
                if is_set(self.interrupt.as_ref()) {
                    return Err(StoreError::Interrupted);
                }
                std::thread::sleep(GLANCE.min(again.saturating_duration_since(Instant::now())));
            }
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }

    fn once(&self, endpoint: &Endpoint, limit: Duration) -> Result<StoreClient, StoreError> {
        let lost = |source| StoreError::Lost { source };
        let addresses = endpoint.resolve().map_err(lost)?;
        let mut last = StoreError::Foreign;
        for address in addresses {
            match self.address(address, limit) {
                Ok(client) => return Ok(client),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Connects to one address, once.
    fn address(&self, address: SocketAddr, limit: Duration) -> Result<StoreClient, StoreError> {
        let lost = |source| StoreError::Lost { source };
        let stream = TcpStream::connect_timeout(&address, limit).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        // A port of this machine that nobody listens on may connect to itself.
        if stream.local_addr().ok() == stream.peer_addr().ok() {
            return Err(StoreError::Foreign);
        }
        let mut client = StoreClient {
            stream,
            prefix: format!("/{}/", self.prefix),
            patience: limit,
            interrupt: self.interrupt.clone(),
            out_of_step: false,
        };
        client.introduce()?;
        client.patience = self.patience;
        Ok(client)
    }
}

impl StoreClient {
    /// The address by which others on the way to the store can reach this machine.
    pub(crate) fn local_address(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// Something that ends this client's waits from another thread.
    pub(crate) fn hang_up(&self) -> io::Result<HangUp> {
        self.stream.try_clone().map(HangUp)
    }

    /// A key with all prefixes.
    pub(crate) fn whole_key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Sets a value.
    pub(crate) fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = self.key(key);
        let value = value.to_vec();
        self.send(&[Request::Set { key, value }])
    }

    /// Sets several values, in this order.
    pub(crate) fn set_all(&mut self, pairs: &[(String, Bytes)]) -> Result<(), StoreError> {
        let keyed = |(key, value): &(String, Bytes)| (self.key(key), value.clone());
        let pairs = pairs.iter().map(keyed).collect();
        self.send(&[Request::MultiSet { pairs }])
    }

    /// Sets a value if it was not set; returns what it is now.
    pub(crate) fn set_once(&mut self, key: &str, value: &[u8]) -> Result<Bytes, StoreError> {
        self.compare_set(key, b"", value)
    }

    /// Sets a value if it was `expected`, where nothing stands for no value; returns what it is
    /// now.
    pub(crate) fn compare_set(
        &mut self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Bytes, StoreError> {
        let request = Request::CompareSet {
            key: self.key(key),
            expected: expected.to_vec(),
            desired: desired.to_vec(),
        };
        self.send(&[request])?;
        self.receive_bytes()
    }

    /// Adds to a counter and returns the sum.
    pub(crate) fn add(&mut self, key: &str, delta: i64) -> Result<i64, StoreError> {
        let key = self.key(key);
        self.add_whole(key, delta)
    }

    /// Counts this client among those that a server of PyTorch waits for before it serves its own
    /// launcher.
    pub(crate) fn count_in(&mut self) -> Result<(), StoreError> {
        self.add_whole(b"init/".to_vec(), 1).map(drop)
    }

    /// Whether all keys exist.
    pub(crate) fn exist(&mut self, keys: &[&str]) -> Result<bool, StoreError> {
        let keys = keys.iter().map(|key| self.key(key)).collect();
        self.send(&[Request::Check { keys }])?;
        Ok(self.receive::<1>()? == [wire::READY])
    }

    /// A value, or `None` if it was never set.
    pub(crate) fn get(&mut self, key: &str) -> Result<Option<Bytes>, StoreError> {
        // A server of PyTorch may close the connection if a key does not exist.
        if !self.exist(&[key])? {
            return Ok(None);
        }
        let key = self.key(key);
        self.send(&[Request::Get { key }])?;
        self.receive_bytes().map(Some)
    }

    /// Values of keys that exist.
    #[cfg(test)]
    pub(crate) fn get_all(&mut self, keys: &[String]) -> Result<Vec<Bytes>, StoreError> {
        let count = keys.len();
        let keys = keys.iter().map(|key| self.key(key)).collect();
        self.send(&[Request::MultiGet { keys }])?;
        (0..count).map(|_| self.receive_bytes()).collect()
    }

    /// Deletes a key; tells whether it existed.
    pub(crate) fn delete(&mut self, key: &str) -> Result<bool, StoreError> {
        let key = self.key(key);
        self.send(&[Request::Delete { key }])?;
        Ok(i64::from_le_bytes(self.receive()?) > 0)
    }

    /// Waits until all keys exist, for `limit` at most; tells whether they do.
    pub(crate) fn wait(&mut self, keys: &[&str], limit: Duration) -> Result<bool, StoreError> {
        let keys = keys.iter().map(|key| self.key(key)).collect();
        self.send(&[Request::Wait { keys }])?;
        let interrupted = match self.receive_within::<1>(limit) {
            Ok(answer) => return Ok(answer == [wire::STOP_WAITING]),
            Err(StoreError::Silent { .. }) => false,
            Err(StoreError::Interrupted) => true,
            Err(error) => return Err(error),
        };
        // The answer may have come while we took the wait back: then there are two.
        self.out_of_step = false;
        self.send(&[Request::CancelWait])?;
        let exist = self.uninterrupted(|client| {
            let found = client.receive::<1>()? != [wire::WAIT_CANCELED];
            if found {
                client.receive::<1>()?;
            }
            Ok(found)
        });
        match interrupted {
            true => Err(StoreError::Interrupted),
            false => exist,
        }
    }

    /// Does something that an interrupt does not end.
    pub(crate) fn uninterrupted<T>(&mut self, action: impl FnOnce(&mut Self) -> T) -> T {
        let interrupt = self.interrupt.take();
        let result = action(self);
        self.interrupt = interrupt;
        result
    }

    /// Says what we are, and sees whether the other side is what we think.
    fn introduce(&mut self) -> Result<(), StoreError> {
        let nonce = process::id();
        self.send(&[Request::Validate { magic: MAGIC }, Request::Ping { nonce }])?;
        match self.receive() {
            Ok(answer) if u32::from_le_bytes(answer) == nonce => Ok(()),
            Ok(_) => Err(StoreError::Foreign),
            Err(error) => Err(error),
        }
    }

    fn add_whole(&mut self, key: Bytes, delta: i64) -> Result<i64, StoreError> {
        self.send(&[Request::Add { key, delta }])?;
        Ok(i64::from_le_bytes(self.receive()?))
    }

    fn key(&self, key: &str) -> Bytes {
        self.whole_key(key).into_bytes()
    }

    fn send(&mut self, requests: &[Request]) -> Result<(), StoreError> {
        if self.out_of_step {
            let source = io::Error::other("an earlier answer was not awaited");
            return Err(StoreError::Lost { source });
        }
        let mut bytes = Bytes::new();
        requests
            .iter()
            .for_each(|request| request.write(&mut bytes));
        let lost = |source| StoreError::Lost { source };
        let stream = &mut self.stream;
        stream
            .set_write_timeout(Some(self.patience))
            .and_then(|()| stream.write_all(&bytes))
            .map_err(lost)
            .inspect_err(|_| self.out_of_step = true)
    }

    fn receive_bytes(&mut self) -> Result<Bytes, StoreError> {
        let length = u64::from_le_bytes(self.receive()?);
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= LONGEST_ANSWER)
            .ok_or(StoreError::Foreign)
            .inspect_err(|_| self.out_of_step = true)?;
        let mut bytes = vec![0; length];
        self.fill(&mut bytes, self.patience)?;
        Ok(bytes)
    }

    fn receive<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        self.receive_within(self.patience)
    }

    fn receive_within<const N: usize>(&mut self, limit: Duration) -> Result<[u8; N], StoreError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, limit)?;
        Ok(bytes)
    }

    /// Receives as many bytes as `bytes` has room for.
    fn fill(&mut self, bytes: &mut [u8], limit: Duration) -> Result<(), StoreError> {
        let result = self.fill_in_step(bytes, limit);
        self.out_of_step |= result.is_err();
        result
    }

    fn fill_in_step(&mut self, bytes: &mut [u8], limit: Duration) -> Result<(), StoreError> {
        let lost = |source| StoreError::Lost { source };
        let deadline = Instant::now() + limit;
        let mut filled = 0;
        while filled < bytes.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StoreError::Silent { waited: limit });
            }
            self.stream
                .set_read_timeout(Some(match self.interrupt {
                    Some(_) => left.min(GLANCE),
                    None => left,
                }))
                .map_err(lost)?;
            match self.stream.read(&mut bytes[filled..]) {
                Ok(0) => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(length) => filled += length,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        if is_set(self.interrupt.as_ref()) {
                            return Err(StoreError::Interrupted);
                        }
                    }
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(lost(error)),
                },
            }
        }
        Ok(())
    }
}

fn is_set(interrupt: Option<&Interrupt>) -> bool {
    interrupt.is_some_and(Interrupt::is_set)
}

/// Ends a client's waits: they fail as if the store was gone.
#[derive(Debug)]
pub(crate) struct HangUp(TcpStream);

impl Drop for HangUp {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
impl StoreClient {
    /// Sends a request of any kind, to see whether the answer has these bytes.
    pub(super) fn answers(&mut self, request: &Request, expected: &[u8]) -> bool {
        self.send(std::slice::from_ref(request)).unwrap();
        let mut bytes = vec![0; expected.len()];
        self.fill(&mut bytes, self.patience).unwrap();
        bytes == expected
    }

    /// Bytes as they come in an answer.
    pub(super) fn counted(bytes: &[u8]) -> Bytes {
        let mut counted = Bytes::new();
        wire::put(&mut counted, bytes);
        counted
    }
}
