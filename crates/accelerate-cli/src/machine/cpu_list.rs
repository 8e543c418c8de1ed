//! Lists of CPUs in the form of the kernel, such as `0-3,8`.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

/// Numbers of CPUs, each once and in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct CpuList(BTreeSet<usize>);

impl CpuList {
    /// More CPUs than any machine has.
    const MOST: usize = 1 << 16;

    /// Reads a list such as `0-3,8`; `None` if the text is none. No text is the empty list.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut cpus = BTreeSet::new();
        for item in text.split(',').map(str::trim) {
            if item.is_empty() {
                continue;
            }
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            if last < first || last >= Self::MOST {
                return None;
            }
            cpus.extend(first..=last);
        }
        Some(Self(cpus))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// The CPUs that are in both lists.
    pub(crate) fn common(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The CPUs that are in one of several lists.
    pub(crate) fn union<'a>(lists: impl IntoIterator<Item = &'a Self>) -> Self {
        Self(lists.into_iter().flat_map(Self::iter).collect())
    }
}

impl FromIterator<usize> for CpuList {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        let items = ranges.iter().map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        f.write_str(&items.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_written() {
        for text in ["", "0", "0-3,8", "1-2,4-5,7"] {
            assert_eq!(CpuList::parse(text).unwrap().to_string(), text);
        }
        let list = CpuList::parse("3,1-2, 2\n").unwrap();
        assert_eq!(list.to_string(), "1-3");
        assert_eq!(list.len(), 3);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["a", "3-1", "1-", "-1", "0-99999999999", "0-1000000"] {
            assert_eq!(CpuList::parse(text), None, "{text}");
        }
    }
}
