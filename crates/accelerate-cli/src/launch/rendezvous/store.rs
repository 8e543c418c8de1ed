//! The store of a job: keys and values that all its launchers see.
//!
//! It speaks the protocol of PyTorch's `TCPStore` (torch 2.13), so that Python's launcher and ours,
//! and the ranks of either, can share one. A connection begins with a number that only such a
//! client knows. Then follow requests of one byte for the operation and its arguments; texts and
//! values are preceded by their length as 8 bytes, numbers are little-endian. Keys of clients begin
//! with `/`. A client waits for keys with one request, which it may take back.
//!
//! Ours adds *wills*: what the server writes when a client is gone without a goodbye ([`wills`]).

pub(crate) mod client;
mod limits;
pub(crate) mod server;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod wills;
mod wire;
