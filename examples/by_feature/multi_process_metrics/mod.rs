//! Metrics over all processes: a score counts each sample once, although the last batches are
//! filled up so that all processes take equally many steps.

pub(crate) mod accelerated;
pub(crate) mod plain;
