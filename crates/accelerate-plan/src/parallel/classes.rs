//! Whether the classes that a plan names are those of a model.

use std::collections::BTreeSet;

use super::{MissingClass, ParallelPlan, PlanError, WrapPolicy};
use crate::config::nearest;

impl ParallelPlan {
    /// Checks that the model has every class that the plan names: those of its units, and those whose
    /// whole inside is gathered together. `present` are the class names of all modules, in any order.
    ///
    /// # Errors
    /// [`PlanError::UnknownClasses`] with every missing class, the one most like it, and all that
    /// there are.
    pub fn check_classes<'a>(
        &self,
        present: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), PlanError> {
        let present: BTreeSet<&str> = present.into_iter().collect();
        let units = match &self.wrap {
            WrapPolicy::Classes(names) => names.as_slice(),
            _ => &[],
        };
        let asked = units.iter().chain(&self.leaf_classes);
        let missing: Vec<_> = asked
            .filter(|name| !present.contains(name.as_str()))
            .map(|name| MissingClass {
                name: name.clone(),
                nearest: nearest(name, present.iter().copied()).map(str::to_owned),
            })
            .collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(PlanError::UnknownClasses {
                missing,
                present: present.into_iter().map(str::to_owned).collect(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::{
        Hint as _,
        parallel::{Mesh, Sharded},
    };

    #[test]
    fn a_missing_class_is_told_with_those_that_there_are() {
        let mesh = Mesh::sharded(NonZeroUsize::new(2).unwrap());
        let mut plan = ParallelPlan::new(mesh, Sharded::Parameters);
        let present = ["BertModel", "BertLayer", "Linear", "BertLayer"];
        plan.wrap = WrapPolicy::Classes(vec!["BertLayer".to_owned()]);
        assert!(plan.check_classes(present).is_ok());
        let names = ["BertLayer", "BertLayr", "T5Block"];
        plan.wrap = WrapPolicy::Classes(names.map(str::to_owned).to_vec());
        let error = plan.check_classes(present).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no module of the model has class `BertLayr`, `T5Block`: it has `BertLayer`, \
             `BertModel`, `Linear`"
        );
        assert_eq!(error.hint().as_deref(), Some("did you mean `BertLayer`?"));
        plan.wrap = WrapPolicy::Root;
        plan.leaf_classes = vec!["Experts".to_owned()];
        assert!(plan.check_classes(present).is_err());
    }
}
