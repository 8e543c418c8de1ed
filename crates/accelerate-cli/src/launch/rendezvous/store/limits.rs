//! How much a client may ask of the server.

/// What a request may hold at most; beyond it the connection is closed. Ranks of Python use the
/// store too, for pickled objects at times, so that values may be large.
pub(super) mod request {
    /// Bytes of a key.
    pub(in super::super) const KEY: usize = 1 << 20;
    /// Bytes of a value.
    pub(in super::super) const VALUE: usize = 256 << 20;
    /// Keys.
    pub(in super::super) const KEYS: usize = 128 << 10;
    /// Bytes altogether.
    pub(in super::super) const BYTES: usize = 512 << 20;
}

/// Bytes of an answer.
pub(super) const ANSWER: usize = 512 << 20;

/// Bytes of all keys and values.
pub(super) const STORED: usize = 2 << 30;

/// Bytes that wait for a client that does not read. It is not served further until it does.
pub(super) const UNREAD: usize = 1 << 20;

/// Connections at a time.
pub(super) const CONNECTIONS: usize = 16 << 10;
