//! Lists of host names in the short form of SLURM.

/// More hosts than any cluster has. A list that names more of them is a mistake.
const MOST_HOSTS: usize = 1 << 16;

/// Why a text is no list of host names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostListError {
    /// A bracket without its counterpart.
    #[error("brackets do not match")]
    Brackets,

    /// A name, or an item between brackets, without a character.
    #[error("an item is empty")]
    EmptyItem,

    /// Something else than a number or a range between brackets.
    #[error("`{item}` is no number and no range of numbers")]
    NotARange {
        /// The item found.
        item: String,
    },

    /// A range that ends before it begins.
    #[error("the range `{item}` ends before it begins")]
    Reversed {
        /// The range found.
        item: String,
    },

    /// More names than any cluster has.
    #[error("it names more than {MOST_HOSTS} hosts")]
    TooMany,
}

/// The names that a list such as `n[01-03,7],gpu2` stands for, in order.
///
/// A number keeps the width of the first number of its range: `[08-10]` is `08`, `09`, `10`. A name
/// may hold several brackets, of which the last one counts fastest.
///
/// # Errors
/// [`HostListError`] if the text is no such list.
pub fn expand_host_list(text: &str) -> Result<Vec<String>, HostListError> {
    let mut hosts = Vec::new();
    for item in split_outside_brackets(text)? {
        let names = expand_name(item)?;
        if hosts.len() + names.len() > MOST_HOSTS {
            return Err(HostListError::TooMany);
        }
        hosts.extend(names);
    }
    Ok(hosts)
}

fn split_outside_brackets(text: &str) -> Result<Vec<&str>, HostListError> {
    let mut items = Vec::new();
    let mut start = 0;
    let mut inside = false;
    for (position, letter) in text.char_indices() {
        match (letter, inside) {
            ('[', false) => inside = true,
            (']', true) => inside = false,
            ('[', true) | (']', false) => return Err(HostListError::Brackets),
            (',', false) => {
                items.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    items.push(&text[start..]);
    match inside {
        true => Err(HostListError::Brackets),
        false => Ok(items.into_iter().map(str::trim).collect()),
    }
}

/// The names that one item stands for; its brackets are known to match.
fn expand_name(item: &str) -> Result<Vec<String>, HostListError> {
    if item.is_empty() {
        return Err(HostListError::EmptyItem);
    }
    let mut names = vec![String::new()];
    let mut rest = item;
    while let Some((text, tail)) = rest.split_once('[') {
        let (ranges, after) = tail.split_once(']').ok_or(HostListError::Brackets)?;
        let numbers = expand_ranges(ranges)?;
        if names.len().saturating_mul(numbers.len()) > MOST_HOSTS {
            return Err(HostListError::TooMany);
        }
        names = names
            .iter()
            .flat_map(|name| {
                numbers
                    .iter()
                    .map(move |number| format!("{name}{text}{number}"))
            })
            .collect();
        rest = after;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

fn expand_ranges(ranges: &str) -> Result<Vec<String>, HostListError> {
    let mut numbers = Vec::new();
    for item in ranges.split(',').map(str::trim) {
        if item.is_empty() {
            return Err(HostListError::EmptyItem);
        }
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (from, to) = (number(first, item)?, number(last, item)?);
        if to < from {
            return Err(HostListError::Reversed {
                item: item.to_owned(),
            });
        }
        if to - from >= MOST_HOSTS as u64 {
            return Err(HostListError::TooMany);
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
        if numbers.len() > MOST_HOSTS {
            return Err(HostListError::TooMany);
        }
    }
    Ok(numbers)
}

fn number(digits: &str, item: &str) -> Result<u64, HostListError> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .parse()
        .ok()
        .filter(|_| is_number)
        .ok_or_else(|| HostListError::NotARange {
            item: item.to_owned(),
        })
}

/// The number of tasks on each machine that a list such as `2(x3),1` stands for, in order; `None`
/// if the text is no such list.
pub(super) fn expand_counts(text: &str) -> Option<Vec<usize>> {
    let mut counts = Vec::new();
    for item in text.split(',').map(str::trim) {
        let (count, times) = match item.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (item, 1),
        };
        if counts.len().saturating_add(times) > MOST_HOSTS {
            return None;
        }
        let count = count.parse::<usize>().ok().filter(|count| *count > 0)?;
        counts.extend(std::iter::repeat_n(count, times));
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts(text: &str) -> Vec<String> {
        expand_host_list(text).unwrap()
    }

    #[test]
    fn brackets_stand_for_several_names() {
        assert_eq!(
            hosts("n[01-03,7],gpu2"),
            ["n01", "n02", "n03", "n7", "gpu2"]
        );
        assert_eq!(hosts("n[8-10]"), ["n8", "n9", "n10"]);
        assert_eq!(hosts("n[008-010]-ib"), ["n008-ib", "n009-ib", "n010-ib"]);
        assert_eq!(hosts("r[1-2]n[1-2]"), ["r1n1", "r1n2", "r2n1", "r2n2"]);
        assert_eq!(hosts("login-1.site.org"), ["login-1.site.org"]);
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_reason() {
        let reason = |text: &str| expand_host_list(text).unwrap_err();
        assert_eq!(reason("n[1-2"), HostListError::Brackets);
        assert_eq!(reason("n1-2]"), HostListError::Brackets);
        assert_eq!(reason("n[[1]]"), HostListError::Brackets);
        assert_eq!(reason("n1,,n2"), HostListError::EmptyItem);
        assert_eq!(reason(""), HostListError::EmptyItem);
        assert_eq!(reason("n[]"), HostListError::EmptyItem);
        let item = "3-1".to_owned();
        assert_eq!(reason("n[3-1]"), HostListError::Reversed { item });
        for item in ["a", "1-", "-2", "1-2-3", "+1"] {
            let text = format!("n[{item}]");
            let item = item.to_owned();
            assert_eq!(reason(&text), HostListError::NotARange { item });
        }
        assert_eq!(reason("n[0-99999999999]"), HostListError::TooMany);
        assert_eq!(reason("n[1-999]m[1-999]"), HostListError::TooMany);
    }

    #[test]
    fn counts_may_be_repeated() {
        assert_eq!(expand_counts("2(x3),1"), Some(vec![2, 2, 2, 1]));
        assert_eq!(expand_counts("8"), Some(vec![8]));
        for wrong in ["", "2(x", "2(x3", "2x3", "0", "-1", "2,,1", "1(x99999999)"] {
            assert_eq!(expand_counts(wrong), None, "{wrong}");
        }
    }

    /// The short form of names with one prefix and numbers of one width.
    fn shorten(prefix: &str, width: usize, ranges: &[(u64, u64)]) -> (String, Vec<String>) {
        let items: Vec<_> = ranges
            .iter()
            .map(|(from, to)| match from == to {
                true => format!("{from:0width$}"),
                false => format!("{from:0width$}-{to:0width$}"),
            })
            .collect();
        let names = ranges
            .iter()
            .flat_map(|(from, to)| *from..=*to)
            .map(|number| format!("{prefix}{number:0width$}"));
        (format!("{prefix}[{}]", items.join(",")), names.collect())
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r"[a-z0-9\[\],()x -]{0,40}|.{0,20}") {
            let _ = expand_host_list(&text);
            let _ = expand_counts(&text);
        }

        #[test]
        fn plain_names_stand_for_themselves(
            names in prop::collection::vec("[a-z][a-z0-9.-]{0,8}", 1..20),
        ) {
            prop_assert_eq!(hosts(&names.join(",")), names);
        }

        #[test]
        fn a_shortened_list_gives_all_names_back(
            groups in prop::collection::vec(
                ("[a-z]{1,4}", 1..5usize, prop::collection::vec((0..9000u64, 0..30u64), 1..5)),
                1..5,
            ),
        ) {
            let (texts, names): (Vec<_>, Vec<_>) = groups
                .into_iter()
                .map(|(prefix, width, ranges)| {
                    let ranges: Vec<_> =
                        ranges.into_iter().map(|(from, more)| (from, from + more)).collect();
                    shorten(&prefix, width, &ranges)
                })
                .unzip();
            prop_assert_eq!(hosts(&texts.join(",")), names.concat());
        }
    }
}
