//! Filters: which hosts and slots of the hostfile are used.

use indexmap::IndexMap;

use super::pool::Pool;
use crate::launch::hosts::{HostsError, Result};

/// Applies one filter, or none.
///
/// A filter is `host:slot,slot@host...`; a host without slots stands for all its slots. The order of
/// the hostfile is kept, and hosts without slots vanish.
///
/// # Errors
/// [`HostsError::BothFilters`], [`HostsError::FilterSyntax`], [`HostsError::UnknownHost`],
/// [`HostsError::UnknownSlot`], [`HostsError::NothingLeft`].
pub(super) fn apply(pool: Pool, include: Option<&str>, exclude: Option<&str>) -> Result<Pool> {
    let (text, is_include) = match (include, exclude) {
        (None, None) => return Ok(pool),
        (Some(_), Some(_)) => return Err(HostsError::BothFilters),
        (Some(text), None) => (text, true),
        (None, Some(text)) => (text, false),
    };
    let named = parse(text, &pool)?;
    let mut left = Pool::default();
    for (host, slots) in pool.hosts() {
        let named = named.get(host).map_or(&[][..], Vec::as_slice);
        let is_used = |slot: &&usize| named.contains(slot) == is_include;
        let slots: Vec<_> = slots.iter().filter(is_used).copied().collect();
        if !slots.is_empty() {
            left.insert(host, slots);
        }
    }
    match left.is_empty() {
        true => Err(HostsError::NothingLeft),
        false => Ok(left),
    }
}

/// The slots that a filter names, by host.
fn parse<'a>(text: &'a str, pool: &Pool) -> Result<IndexMap<&'a str, Vec<usize>>> {
    let mut named: IndexMap<_, Vec<_>> = IndexMap::new();
    for part in text.split('@').map(str::trim) {
        let (host, slots) = match part.split_once(':') {
            None => (part, None),
            Some((host, slots)) => (host.trim(), Some(slots)),
        };
        let wrong = || HostsError::FilterSyntax {
            part: part.to_owned(),
        };
        if host.is_empty() {
            return Err(wrong());
        }
        let known = pool.slots(host).ok_or_else(|| HostsError::UnknownHost {
            host: host.to_owned(),
            known: pool.names(),
        })?;
        let chosen = match slots {
            None => known.to_vec(),
            Some(list) => list
                .split(',')
                .map(|slot| slot.trim().parse().map_err(|_| wrong()))
                .collect::<Result<_>>()?,
        };
        if let Some(slot) = chosen.iter().find(|slot| !known.contains(slot)) {
            return Err(HostsError::UnknownSlot {
                host: host.to_owned(),
                slot: *slot,
                slots: known.len(),
            });
        }
        named.entry(host).or_default().extend(chosen);
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        let mut pool = Pool::default();
        for host in ["w0", "w1", "w2"] {
            pool.insert(host, vec![0, 1, 2, 3]);
        }
        pool
    }

    fn shown(pool: &Pool) -> String {
        let hosts = pool.hosts().map(|(host, slots)| format!("{host}{slots:?}"));
        hosts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn inclusion_keeps_only_what_is_named_in_the_order_of_the_hostfile() {
        for (filter, left) in [
            ("w1", "w1[0, 1, 2, 3]"),
            ("w2@w0", "w0[0, 1, 2, 3] w2[0, 1, 2, 3]"),
            ("w2:3,1@w0:0", "w0[0] w2[1, 3]"),
            ("w1:0@w1:2,2", "w1[0, 2]"),
        ] {
            assert_eq!(shown(&apply(pool(), Some(filter), None).unwrap()), left);
        }
    }

    #[test]
    fn exclusion_removes_it() {
        for (filter, left) in [
            ("w1", "w0[0, 1, 2, 3] w2[0, 1, 2, 3]"),
            ("w2@w0:0,1", "w0[2, 3] w1[0, 1, 2, 3]"),
            ("w0:0,1,2,3@w1", "w2[0, 1, 2, 3]"),
        ] {
            assert_eq!(shown(&apply(pool(), None, Some(filter)).unwrap()), left);
        }
        assert_eq!(apply(pool(), None, None).unwrap(), pool());
    }

    #[test]
    fn what_a_filter_cannot_mean_is_refused() {
        let include = |filter| apply(pool(), Some(filter), None).unwrap_err().to_string();
        assert_eq!(
            include("w7"),
            "a filter names host `w7`: expected a host of the hostfile: w0,w1,w2"
        );
        assert_eq!(
            include("w0:1,4"),
            "a filter names slot 4 of host `w0`: expected a slot below 4"
        );
        for wrong in [
            "", "w0@", "@w0", "w0:", "w0:a", "w0:0;1", "w0:1-2", "w0:0:1",
        ] {
            assert!(include(wrong).starts_with("cannot read `"), "{wrong}");
        }
        let error = apply(pool(), None, Some("w0@w1@w2")).unwrap_err();
        assert!(matches!(error, HostsError::NothingLeft));
        let error = apply(pool(), Some("w0"), Some("w0")).unwrap_err();
        assert!(matches!(error, HostsError::BothFilters));
    }
}
