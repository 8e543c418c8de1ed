//! The name of a model on the hub.

use std::fmt;
use std::str::FromStr;

/// The longest name of a repository, with its owner, in characters.
const LONGEST: usize = 96;
/// The branch that is meant where none is named.
const MAIN: &str = "main";

/// A model on the hub: `name` or `owner/name`, and behind an `@` a branch, tag or commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HubId {
    owner: Option<Box<str>>,
    name: Box<str>,
    revision: Option<Box<str>>,
}

impl HubId {
    /// Whose repository it is; none for the first models of the hub, such as `gpt2`.
    pub fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// The name of the repository, without its owner.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The branch, tag or commit; `main` where the id names none.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(MAIN)
    }
}

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(owner) = &self.owner {
            write!(f, "{owner}/")?;
        }
        f.write_str(&self.name)?;
        match &self.revision {
            Some(revision) => write!(f, "@{revision}"),
            None => Ok(()),
        }
    }
}

/// Why a text is no id of the hub.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HubIdFault {
    /// The name, its owner or the revision has no characters.
    #[error("its {part} is empty")]
    Empty {
        /// Which part.
        part: &'static str,
    },
    /// There is more than an owner and a name.
    #[error("it has {slashes} slashes where `owner/name` has one")]
    Slashes {
        /// How many there are.
        slashes: usize,
    },
    /// A character that no id has.
    #[error("its {part} has the character {character:?}")]
    Character {
        /// Which part.
        part: &'static str,
        /// The first of them.
        character: char,
    },
    /// A place where a dot or a dash may not be.
    #[error("its {part} starts or ends with `-` or `.`, or has `--` or `..` inside")]
    Punctuation {
        /// Which part.
        part: &'static str,
    },
    /// The revision is none that git takes.
    #[error("git knows no revision like `{revision}`")]
    Revision {
        /// What it says.
        revision: String,
    },
    /// More characters than an id has.
    #[error("it has {found} characters, the longest has {LONGEST}")]
    Long {
        /// How many, without the revision.
        found: usize,
    },
}

impl FromStr for HubId {
    type Err = HubIdFault;

    fn from_str(text: &str) -> Result<Self, HubIdFault> {
        let (repository, revision) = match text.split_once('@') {
            Some((repository, revision)) => (repository, Some(revision)),
            None => (text, None),
        };
        let (owner, name) = match repository.split_once('/') {
            Some((owner, name)) => (Some(owner), name),
            None => (None, repository),
        };
        if name.contains('/') {
            let slashes = repository.matches('/').count();
            return Err(HubIdFault::Slashes { slashes });
        }
        owner.map_or(Ok(()), |owner| check_name("owner", owner))?;
        check_name("name", name)?;
        revision.map_or(Ok(()), check_revision)?;
        if repository.len() > LONGEST {
            return Err(HubIdFault::Long {
                found: repository.len(),
            });
        }
        Ok(Self {
            owner: owner.map(Box::from),
            name: name.into(),
            revision: revision.map(Box::from),
        })
    }
}

fn check_name(part: &'static str, text: &str) -> Result<(), HubIdFault> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() {
        return Err(HubIdFault::Empty { part });
    }
    if let Some(character) = text.chars().find(|&c| !allowed(c)) {
        return Err(HubIdFault::Character { part, character });
    }
    let doubled = text.contains("--") || text.contains("..");
    if doubled || text.starts_with(['-', '.']) || text.ends_with(['-', '.']) {
        return Err(HubIdFault::Punctuation { part });
    }
    Ok(())
}

/// A revision becomes a part of an address and of a path in the cache: it may not leave either.
fn check_revision(revision: &str) -> Result<(), HubIdFault> {
    if revision.is_empty() {
        return Err(HubIdFault::Empty { part: "revision" });
    }
    let refused = |c: char| c.is_whitespace() || c.is_control() || r"~^:?*[\@{".contains(c);
    let segment = |s: &str| s.is_empty() || s.starts_with('.') || s.ends_with('.');
    if revision.contains(refused) || revision.contains("..") || revision.split('/').any(segment) {
        let revision = revision.to_owned();
        return Err(HubIdFault::Revision { revision });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> HubIdFault {
        text.parse::<HubId>().unwrap_err()
    }

    #[test]
    fn reads_owner_name_and_revision() {
        let id: HubId = "sentence-transformers/all-MiniLM-L6_v2.1@refs/pr/21"
            .parse()
            .unwrap();
        assert_eq!(id.owner(), Some("sentence-transformers"));
        assert_eq!(id.name(), "all-MiniLM-L6_v2.1");
        assert_eq!(id.revision(), "refs/pr/21");

        let id: HubId = "gpt2".parse().unwrap();
        assert_eq!(
            (id.owner(), id.name(), id.revision()),
            (None, "gpt2", "main")
        );
    }

    #[test]
    fn is_written_as_it_is_read() {
        for text in ["gpt2", "a/b", "gpt2@v1.0", "a/b@feature/x"] {
            assert_eq!(text.parse::<HubId>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn paths_are_no_ids() {
        assert_eq!(fault("/bert"), HubIdFault::Empty { part: "owner" });
        assert_eq!(fault("models/"), HubIdFault::Empty { part: "name" });
        assert_eq!(fault(""), HubIdFault::Empty { part: "name" });
        assert_eq!(fault("a/b/c"), HubIdFault::Slashes { slashes: 2 });
        assert_eq!(fault("./bert"), HubIdFault::Punctuation { part: "owner" });
        assert_eq!(fault("../bert"), HubIdFault::Punctuation { part: "owner" });
        assert_eq!(
            fault(r"models\bert"),
            HubIdFault::Character {
                part: "name",
                character: '\\'
            }
        );
        assert_eq!(
            fault("~/bert"),
            HubIdFault::Character {
                part: "owner",
                character: '~'
            }
        );
    }

    #[test]
    fn names_that_the_hub_refuses_are_refused() {
        for text in ["a--b", "a..b", "-a", "a.", "o/-a", "o-/a"] {
            assert!(
                matches!(fault(text), HubIdFault::Punctuation { .. }),
                "{text}"
            );
        }
        let long = format!("owner/{}", "n".repeat(91));
        assert_eq!(fault(&long), HubIdFault::Long { found: 97 });
        assert!(long[..96].parse::<HubId>().is_ok());
    }

    #[test]
    fn a_revision_stays_inside_its_folder() {
        assert_eq!(fault("a/b@"), HubIdFault::Empty { part: "revision" });
        for revision in [
            "/etc", "../x", "a/../b", "a//b", "a/", "x y", r"a\b", "a@b", ".x", "a\0",
        ] {
            let text = format!("a/b@{revision}");
            assert!(
                matches!(fault(&text), HubIdFault::Revision { .. }),
                "{text:?}"
            );
        }
    }
}
