//! Why each part of a model is where it is.

use std::fmt;

use super::{MemorySize, Placement};

/// One decision on the way to a device map.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A part was placed.
    Placed {
        /// Its name.
        name: String,
        /// Its size, with that of the parts that came along.
        size: MemorySize,
        /// Where it is.
        place: Placement,
        /// Other parts that share a tensor with it and so came along.
        along: Vec<String>,
        /// What the place can still hold, room for the largest part excluded; [`None`] if anything.
        left: Option<MemorySize>,
    },
    /// A part did not fit in one piece, and its own parts are looked at one by one.
    Split {
        /// Its name.
        name: String,
        /// Its size.
        size: MemorySize,
        /// Where it did not fit.
        place: Placement,
        /// What that place could hold at that time.
        left: MemorySize,
        /// The part that shares a tensor with this one and did not fit along with it, if that is why.
        tied_to: Option<String>,
    },
    /// A smaller part is placed before one that does not fit an empty place.
    Advanced {
        /// The smaller part.
        name: String,
        /// Its size, with that of the parts that come along.
        size: MemorySize,
        /// The part that did not fit.
        before: String,
        /// The place.
        place: Placement,
    },
    /// A place takes no more.
    Full {
        /// The place.
        place: Placement,
        /// The part that did not fit.
        name: String,
        /// Its size, with that of the parts that would have come along.
        size: MemorySize,
        /// Why it could not be split.
        whole: Whole,
        /// What the place holds.
        used: MemorySize,
        /// What is kept free there for the largest part that still may have to be computed there.
        reserved: MemorySize,
        /// What the place may hold.
        limit: MemorySize,
    },
}

/// Why a part is not looked at part by part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Whole {
    /// It has no parts.
    Leaf,
    /// Its class may not be split.
    NoSplit {
        /// The class.
        class: String,
    },
    /// It would fit, but not together with these parts, which share a tensor with it.
    Tied {
        /// Their names.
        names: Vec<String>,
    },
}

/// Why each part of a model is where it is: every decision, in the order in which they were made.
///
/// Its text has one line for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The decisions.
    pub steps: Vec<Step>,
    /// Classes that may not be split and that no module has.
    pub unused_classes: Vec<String>,
}

impl Explanation {
    /// The decisions that say what did not fit.
    pub fn not_fitting(&self) -> impl Iterator<Item = &Step> {
        let steps = self.steps.iter();
        steps.filter(|step| !matches!(step, Step::Placed { .. }))
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for class in &self.unused_classes {
            writeln!(f, "no module has class `{class}`, which may not be split")?;
        }
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placed {
                name,
                size,
                place,
                along,
                left,
            } => {
                write!(f, "{place}: `{name}` ({size})")?;
                if !along.is_empty() {
                    write!(f, " with {}, which shares a tensor", listed(along))?;
                }
                match left {
                    Some(left) => write!(f, "; {left} left"),
                    None => Ok(()),
                }
            }
            Self::Split {
                name,
                size,
                place,
                left,
                tied_to,
            } => {
                write!(f, "{place}: `{name}` ({size}) is taken apart: {left} left")?;
                match tied_to {
                    Some(tied) => write!(
                        f,
                        ", too little along with `{tied}`, which needs a part of it"
                    ),
                    None => Ok(()),
                }
            }
            Self::Advanced {
                name,
                size,
                before,
                place,
            } => write!(
                f,
                "{place}: `{name}` ({size}) comes before `{before}`, which does not fit"
            ),
            Self::Full {
                place,
                name,
                size,
                whole,
                used,
                reserved,
                limit,
            } => {
                write!(f, "{place} is full: `{name}` ({size}) does not fit")?;
                write!(f, " into the limit of {limit}, of which {used} are used")?;
                if *reserved > MemorySize::ZERO {
                    write!(f, " and {reserved} kept for the largest part")?;
                }
                write!(f, "; {whole}")
            }
        }
    }
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaf => write!(f, "it has no parts"),
            Self::NoSplit { class } => write!(f, "`{class}` may not be split"),
            Self::Tied { names } => write!(f, "it shares a tensor with {}", listed(names)),
        }
    }
}

fn listed(names: &[String]) -> String {
    let names = names.iter().map(|name| format!("`{name}`"));
    names.collect::<Vec<_>>().join(", ")
}
