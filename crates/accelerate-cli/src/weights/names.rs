//! Choosing tensors by patterns of their names.

use super::error::{Result, WeightsError};

/// Patterns in which `*` stands for any text and `?` for one character.
#[derive(Debug, Clone, Default)]
pub(super) struct Patterns(Vec<Vec<char>>);

impl Patterns {
    /// # Errors
    /// [`WeightsError::Pattern`] if one is empty.
    pub(super) fn new(patterns: &[String]) -> Result<Self> {
        let patterns = patterns.iter().map(|pattern| {
            if pattern.is_empty() {
                return Err(WeightsError::Pattern {
                    pattern: pattern.clone(),
                });
            }
            Ok(pattern.chars().collect())
        });
        patterns.collect::<Result<_>>().map(Self)
    }

    /// Whether one of them fits the whole name, or there are none.
    pub(super) fn fit(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        self.0.is_empty() || self.0.iter().any(|pattern| fits(pattern, &name))
    }
}

/// Goes through both once, and back to the last `*` where they part.
fn fits(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(char) = name.get(read) {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, read));
                at += 1;
            }
            Some('?') => (at, read) = (at + 1, read + 1),
            Some(wanted) if wanted == char => (at, read) = (at + 1, read + 1),
            _ => match &mut star {
                Some((place, taken)) => {
                    *taken += 1;
                    (at, read) = (*place + 1, *taken);
                }
                None => return false,
            },
        }
    }
    pattern
        .get(at..)
        .is_some_and(|rest| rest.iter().all(|&char| char == '*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        let fit =
            |pattern: &str, name: &str| Patterns::new(&[pattern.to_owned()]).unwrap().fit(name);
        for (pattern, name) in [
            ("*", ""),
            ("*.weight", "a.b.weight"),
            ("layer.*.bias", "layer.10.x.bias"),
            ("h.?.w", "h.3.w"),
            ("*a*b*", "xxaybz"),
            ("a*a", "aa"),
        ] {
            assert!(fit(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("weight", "a.weight"),
            ("a*a", "a"),
            ("h.?.w", "h.10.w"),
            ("*.bias", "bias.x"),
        ] {
            assert!(!fit(pattern, name), "{pattern} {name}");
        }
        assert!(Patterns::default().fit("anything"));
        assert!(Patterns::new(&[String::new()]).is_err());
        // No pattern takes long.
        let hostile = "*a".repeat(30) + "b";
        assert!(!fit(&hostile, &"a".repeat(2000)));
    }
}
