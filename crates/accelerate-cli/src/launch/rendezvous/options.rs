//! `rdzv_conf`: `key=value,key=value`.

use std::time::Duration;

use accelerate_plan::env;

use super::error::{Error, Result};

/// The longest time that can be asked for. More would overflow the clock.
const LONGEST: u64 = 10 * 365 * 24 * 3600;

/// What `rdzv_conf` can say. A time that was not given is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// `timeout`: how long the nodes of a static job wait for each other.
    pub(crate) timeout: Option<Duration>,
    /// `join_timeout`: the same for `c10d`.
    pub(crate) join_timeout: Option<Duration>,
    /// `read_timeout`: how long an answer of the store may take.
    pub(crate) read_timeout: Option<Duration>,
    /// `is_host`: whether this node keeps the store, instead of finding out by its address.
    pub(crate) is_host: Option<bool>,
    /// Keys without an effect here, in the order given: for a notice.
    pub(crate) without_effect: Vec<String>,
}

impl Options {
    /// Reads the value of `--rdzv_conf`.
    ///
    /// # Errors
    /// [`Error::OptionName`], [`Error::OptionEmpty`], [`Error::OptionValue`].
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut options = Self::default();
        if text.trim().is_empty() {
            return Ok(options);
        }
        for pair in text.split(',') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (key.trim(), value.trim());
            if key.is_empty() {
                return Err(Error::OptionName {
                    text: text.to_owned(),
                });
            }
            if value.is_empty() {
                return Err(Error::OptionEmpty {
                    key: key.to_owned(),
                });
            }
            options.put(key, value)?;
        }
        Ok(options)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "timeout" => self.timeout = Some(seconds(key, value)?),
            "join_timeout" => self.join_timeout = Some(seconds(key, value)?),
            "read_timeout" => self.read_timeout = Some(seconds(key, value)?),
            "is_host" => self.is_host = Some(truth(key, value)?),
            "store_type" if value == "tcp" => {}
            "store_type" => return Err(wrong(key, value, "`tcp`")),
            // With as many nodes at least as at most, there is nobody to call last; and no
            // goodbye takes so long that it would need a limit.
            "last_call_timeout" | "close_timeout" | "heartbeat_timeout" => {
                seconds(key, value)?;
                self.without_effect.push(key.to_owned());
            }
            _ => self.without_effect.push(key.to_owned()),
        }
        Ok(())
    }
}

fn seconds(key: &str, value: &str) -> Result<Duration> {
    let number = value.parse::<u64>().ok();
    number
        .filter(|seconds| (1..=LONGEST).contains(seconds))
        .map(Duration::from_secs)
        .ok_or_else(|| wrong(key, value, "whole seconds, 1 or more"))
}

fn truth(key: &str, value: &str) -> Result<bool> {
    env::truth(value).ok_or_else(|| wrong(key, value, "`true` or `false`"))
}

fn wrong(key: &str, value: &str, expected: &'static str) -> Error {
    Error::OptionValue {
        key: key.to_owned(),
        value: value.to_owned(),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read() {
        let options = Options::parse(" timeout = 30 ,is_host=True,join_timeout=5,x=a=b").unwrap();
        assert_eq!(options.timeout, Some(Duration::from_secs(30)));
        assert_eq!(options.join_timeout, Some(Duration::from_secs(5)));
        assert_eq!(options.is_host, Some(true));
        assert_eq!(options.without_effect, ["x"]);
        assert_eq!(Options::parse("  ").unwrap(), Options::default());
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let said = |text| Options::parse(text).unwrap_err().to_string();
        assert!(said("=3").contains("key=value"), "{}", said("=3"));
        assert!(said("timeout=3,").contains("key=value"));
        assert!(said("timeout").contains("`timeout`"));
        assert!(said("timeout= ").contains("`timeout`"));
        assert!(said("timeout=-1").contains("`-1`"));
        assert!(said("timeout=99999999999999").contains("seconds"));
        assert!(said("is_host=maybe").contains("`maybe`"));
        assert!(said("store_type=file").contains("`tcp`"));
    }
}
