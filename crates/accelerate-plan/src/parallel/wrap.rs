//! What is gathered together.

use std::fmt;

/// Which modules become units. A unit's parameters are gathered and released together; what lies
/// in no other unit belongs to the unit of the root.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WrapPolicy {
    /// Modules of these classes. A class that the model does not have is an error that names those
    /// that it has.
    Classes(Vec<String>),
    /// Modules of the classes that the model itself names as its blocks; only the root where it
    /// names none.
    ModelBlocks,
    /// Modules with many parameters, found from the leaves up.
    Size {
        /// The number to compare with, in parameters.
        min_num_params: u64,
        /// What is compared with it.
        rule: SizeRule,
    },
    /// Only the root.
    Root,
}

/// What is compared with the least size of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SizeRule {
    /// A module is a unit if its parameters that are in no unit yet are at least as many (FSDP 1). A
    /// module with fewer in all is not looked into; attention with several heads is not either; lists
    /// and maps of modules are never units.
    RestAtLeast,
    /// A module is a unit if all its parameters, also those that are in units already, are more
    /// (FSDP 2).
    TotalAbove,
}

impl fmt::Display for WrapPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Classes(names) => write!(f, "modules of class {}", names.join(", ")),
            Self::ModelBlocks => f.pad("the blocks that the model names"),
            Self::Size {
                min_num_params,
                rule: SizeRule::RestAtLeast,
            } => write!(
                f,
                "modules with at least {min_num_params} parameters that are in no unit yet"
            ),
            Self::Size {
                min_num_params,
                rule: SizeRule::TotalAbove,
            } => write!(f, "modules with more than {min_num_params} parameters"),
            Self::Root => f.pad("the whole model is one"),
        }
    }
}

/// Which modules stay whole on every rank, outside of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// None.
    Nothing,
    /// Those whose whole dotted name matches this regular expression.
    Matching(String),
    /// Those with these dotted names.
    Named(Vec<String>),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.pad("none"),
            Self::Matching(pattern) => write!(f, "names that match `{pattern}`"),
            Self::Named(names) => write!(f, "{}", names.join(", ")),
        }
    }
}
