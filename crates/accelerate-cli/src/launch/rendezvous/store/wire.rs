//! Requests as bytes.

use super::limits;

/// What a client of this protocol says first.
pub(super) const MAGIC: u32 = 0x3C85_F7CE;

/// Answer to [`Request::Check`]: all keys exist, or not.
pub(super) const READY: u8 = 0;
pub(super) const NOT_READY: u8 = 1;

/// Answer to [`Request::Wait`]: all keys exist, or the wait was taken back.
pub(super) const STOP_WAITING: u8 = 0;
pub(super) const WAIT_CANCELED: u8 = 1;

pub(super) type Bytes = Vec<u8>;

/// What a client can ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    Validate {
        magic: u32,
    },
    Set {
        key: Bytes,
        value: Bytes,
    },
    CompareSet {
        key: Bytes,
        expected: Bytes,
        desired: Bytes,
    },
    Get {
        key: Bytes,
    },
    Add {
        key: Bytes,
        delta: i64,
    },
    Check {
        keys: Vec<Bytes>,
    },
    Wait {
        keys: Vec<Bytes>,
    },
    NumKeys,
    Delete {
        key: Bytes,
    },
    Append {
        key: Bytes,
        value: Bytes,
    },
    MultiGet {
        keys: Vec<Bytes>,
    },
    MultiSet {
        pairs: Vec<(Bytes, Bytes)>,
    },
    CancelWait,
    Ping {
        nonce: u32,
    },
    QueuePush {
        key: Bytes,
        value: Bytes,
    },
    QueuePop {
        key: Bytes,
    },
    QueueLen {
        key: Bytes,
    },
    ListKeys,
    Barrier {
        key: Bytes,
        size: i64,
    },
}

/// These bytes are no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl Request {
    /// Reads the first request of `bytes` and tells how long it was; `None` if it is not all there.
    pub(super) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let reader = |copies| Reader {
            bytes,
            at: 0,
            copies,
        };
        // A long request comes in many parts: copy nothing before all of it is there.
        match reader(false).request().and_then(|_| {
            let mut reader = reader(true);
            Ok((reader.request()?, reader.at))
        }) {
            Ok(read) => Ok(Some(read)),
            Err(Stop::Short) if bytes.len() > limits::request::BYTES => Err(Malformed),
            Err(Stop::Short) => Ok(None),
            Err(Stop::Malformed) => Err(Malformed),
        }
    }

    /// Appends this request to `out`.
    pub(super) fn write(&self, out: &mut Bytes) {
        out.push(self.operation());
        match self {
            Self::NumKeys | Self::CancelWait | Self::ListKeys => {}
            Self::Validate { magic: number } | Self::Ping { nonce: number } => {
                out.extend(number.to_le_bytes());
            }
            Self::Set { key, value }
            | Self::Append { key, value }
            | Self::QueuePush { key, value } => {
                put(out, key);
                put(out, value);
            }
            Self::CompareSet {
                key,
                expected,
                desired,
            } => {
                put(out, key);
                put(out, expected);
                put(out, desired);
            }
            Self::Get { key }
            | Self::Delete { key }
            | Self::QueuePop { key }
            | Self::QueueLen { key } => put(out, key),
            Self::Add { key, delta: number } | Self::Barrier { key, size: number } => {
                put(out, key);
                out.extend(number.to_le_bytes());
            }
            Self::Check { keys } | Self::Wait { keys } | Self::MultiGet { keys } => {
                put_count(out, keys.len());
                keys.iter().for_each(|key| put(out, key));
            }
            Self::MultiSet { pairs } => {
                put_count(out, pairs.len());
                for (key, value) in pairs {
                    put(out, key);
                    put(out, value);
                }
            }
        }
    }

    fn operation(&self) -> u8 {
        match self {
            Self::Validate { .. } => 0,
            Self::Set { .. } => 1,
            Self::CompareSet { .. } => 2,
            Self::Get { .. } => 3,
            Self::Add { .. } => 4,
            Self::Check { .. } => 5,
            Self::Wait { .. } => 6,
            Self::NumKeys => 7,
            Self::Delete { .. } => 8,
            Self::Append { .. } => 9,
            Self::MultiGet { .. } => 10,
            Self::MultiSet { .. } => 11,
            Self::CancelWait => 12,
            Self::Ping { .. } => 13,
            Self::QueuePush { .. } => 14,
            Self::QueuePop { .. } => 15,
            Self::QueueLen { .. } => 16,
            Self::ListKeys => 17,
            Self::Barrier { .. } => 18,
        }
    }
}

/// Appends bytes and, before them, their length.
pub(super) fn put(out: &mut Bytes, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a number of things.
pub(super) fn put_count(out: &mut Bytes, count: usize) {
    out.extend((count as u64).to_le_bytes());
}

enum Stop {
    /// More bytes are needed.
    Short,
    Malformed,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether the result is wanted, or only whether there is one.
    copies: bool,
}

impl Reader<'_> {
    fn request(&mut self) -> Result<Request, Stop> {
        let [operation] = self.fixed()?;
        Ok(match operation {
            0 => Request::Validate {
                magic: u32::from_le_bytes(self.fixed()?),
            },
            1 => Request::Set {
                key: self.key()?,
                value: self.value()?,
            },
            2 => Request::CompareSet {
                key: self.key()?,
                expected: self.value()?,
                desired: self.value()?,
            },
            3 => Request::Get { key: self.key()? },
            4 => Request::Add {
                key: self.key()?,
                delta: i64::from_le_bytes(self.fixed()?),
            },
            5 => Request::Check { keys: self.keys()? },
            6 => Request::Wait { keys: self.keys()? },
            7 => Request::NumKeys,
            8 => Request::Delete { key: self.key()? },
            9 => Request::Append {
                key: self.key()?,
                value: self.value()?,
            },
            10 => Request::MultiGet { keys: self.keys()? },
            11 => Request::MultiSet {
                pairs: self.pairs()?,
            },
            12 => Request::CancelWait,
            13 => Request::Ping {
                nonce: u32::from_le_bytes(self.fixed()?),
            },
            14 => Request::QueuePush {
                key: self.key()?,
                value: self.value()?,
            },
            15 => Request::QueuePop { key: self.key()? },
            16 => Request::QueueLen { key: self.key()? },
            17 => Request::ListKeys,
            18 => Request::Barrier {
                key: self.key()?,
                size: i64::from_le_bytes(self.fixed()?),
            },
            _ => return Err(Stop::Malformed),
        })
    }

    fn keys(&mut self) -> Result<Vec<Bytes>, Stop> {
        self.several(Self::key)
    }

    fn pairs(&mut self) -> Result<Vec<(Bytes, Bytes)>, Stop> {
        self.several(|reader| Ok((reader.key()?, reader.value()?)))
    }

    fn several<T>(&mut self, one: impl Fn(&mut Self) -> Result<T, Stop>) -> Result<Vec<T>, Stop> {
        let count = self.length(limits::request::KEYS)?;
        let mut all = Vec::new();
        for _ in 0..count {
            let item = one(self)?;
            if self.copies {
                all.push(item);
            }
        }
        Ok(all)
    }

    fn key(&mut self) -> Result<Bytes, Stop> {
        self.counted(limits::request::KEY)
    }

    fn value(&mut self) -> Result<Bytes, Stop> {
        self.counted(limits::request::VALUE)
    }

    fn counted(&mut self, limit: usize) -> Result<Bytes, Stop> {
        let length = self.length(limit)?;
        let copies = self.copies;
        let bytes = self.take(length)?;
        Ok(if copies { bytes.to_vec() } else { Bytes::new() })
    }

    fn length(&mut self, limit: usize) -> Result<usize, Stop> {
        let length = u64::from_le_bytes(self.fixed()?);
        let length = usize::try_from(length).map_err(|_| Stop::Malformed)?;
        match length <= limit {
            true => Ok(length),
            false => Err(Stop::Malformed),
        }
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| Stop::Short)
    }

    fn take(&mut self, length: usize) -> Result<&[u8], Stop> {
        let end = self.at.checked_add(length).ok_or(Stop::Malformed)?;
        let bytes = self.bytes.get(self.at..end).ok_or(Stop::Short)?;
        self.at = end;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Bytes {
        b"/k".to_vec()
    }

    fn every_request() -> Vec<Request> {
        let value = || b"value".to_vec();
        vec![
            Request::Validate { magic: MAGIC },
            Request::Set {
                key: key(),
                value: value(),
            },
            Request::CompareSet {
                key: key(),
                expected: vec![],
                desired: value(),
            },
            Request::Get { key: key() },
            Request::Add {
                key: key(),
                delta: -5,
            },
            Request::Check {
                keys: vec![key(), value()],
            },
            Request::Wait { keys: vec![] },
            Request::NumKeys,
            Request::Delete { key: key() },
            Request::Append {
                key: key(),
                value: value(),
            },
            Request::MultiGet { keys: vec![key()] },
            Request::MultiSet {
                pairs: vec![(key(), value())],
            },
            Request::CancelWait,
            Request::Ping { nonce: 7 },
            Request::QueuePush {
                key: key(),
                value: value(),
            },
            Request::QueuePop { key: key() },
            Request::QueueLen { key: key() },
            Request::ListKeys,
            Request::Barrier {
                key: key(),
                size: 2,
            },
        ]
    }

    #[test]
    fn requests_survive_the_wire_and_are_never_read_too_early() {
        for request in every_request() {
            let mut bytes = Bytes::new();
            request.write(&mut bytes);
            for end in 0..bytes.len() {
                assert_eq!(Request::read(&bytes[..end]), Ok(None), "{request:?}");
            }
            let length = bytes.len();
            bytes.push(7);
            assert_eq!(Request::read(&bytes), Ok(Some((request, length))));
        }
    }

    /// As recorded between a client and a server of torch 2.13.
    #[test]
    fn bytes_are_those_of_pytorch() {
        let written = |request: Request| {
            let mut bytes = Bytes::new();
            request.write(&mut bytes);
            bytes
        };
        assert_eq!(
            written(Request::Validate { magic: MAGIC }),
            b"\x00\xce\xf7\x85<"
        );
        assert_eq!(
            written(Request::Add {
                key: key(),
                delta: -5
            }),
            b"\x04\x02\0\0\0\0\0\0\0/k\xfb\xff\xff\xff\xff\xff\xff\xff"
        );
        assert_eq!(
            written(Request::Wait { keys: vec![key()] }),
            b"\x06\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/k"
        );
    }

    #[test]
    fn no_bytes_are_too_strange() {
        // A generator of numbers that are random enough.
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        };
        for mut request in every_request().into_iter().cycle().take(20_000) {
            if let Request::MultiGet { keys } | Request::Wait { keys } = &mut request {
                keys.push(key());
            }
            let mut bytes = Bytes::new();
            request.write(&mut bytes);
            let place = usize::from(next()) % bytes.len();
            bytes[place] = next();
            if let Ok(Some((found, length))) = Request::read(&bytes) {
                let mut again = Bytes::new();
                found.write(&mut again);
                assert_eq!(again, bytes[..length]);
            }
        }
    }

    #[test]
    fn absurd_lengths_and_unknown_operations_are_refused_at_once() {
        let long_key = [&[3][..], &u64::MAX.to_le_bytes()].concat();
        let many_keys = [&[6][..], &(1_u64 << 40).to_le_bytes()].concat();
        for bytes in [&long_key[..], &many_keys, &[19], &[255, 0]] {
            assert_eq!(Request::read(bytes), Err(Malformed), "{bytes:?}");
        }
    }
}
