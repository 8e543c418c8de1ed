//! Which modules are units, and which parameters belong to which.

use std::collections::HashMap;

use accelerate_plan::parallel::{Ignored, ParallelPlan, SizeRule, WrapPolicy};
use tch::Tensor;

use crate::nn::{Module, all_parameters};
use crate::{Error, Result};

/// A module whose parameters are gathered together, to be.
#[derive(Debug)]
pub(super) struct UnitPlan {
    /// The module's dotted name; empty for the root.
    pub(super) name: String,
    /// Every parameter once, under the first of its names.
    pub(super) parameters: Vec<(String, Tensor)>,
}

/// The units of a model: the root first, then the others, parents before children.
///
/// A parameter belongs to the innermost unit that contains all of its names; the root takes what is
/// left.
///
/// # Errors
/// [`Error::Sharding`] for classes that the model does not have, with those that it has.
pub(super) fn units(root: &dyn Module, plan: &ParallelPlan) -> Result<Vec<UnitPlan>> {
    let modules = root.named_modules();
    let callable = modules
        .iter()
        .filter(|(_, module)| module.state().is_some());
    plan.check_classes(callable.map(|(_, module)| module.class_name()))?;
    let mut names = vec![String::new()];
    names.extend(wrapped(root, &plan.wrap));
    add_leaves(&mut names, of_classes(root, &plan.leaf_classes));
    let mut units: Vec<UnitPlan> = names
        .into_iter()
        .map(|name| UnitPlan {
            name,
            parameters: Vec::new(),
        })
        .collect();
    let ignored = ignored(root, &plan.ignored)?;
    for (names, tensor) in parameters_with_names(root) {
        if names
            .iter()
            .any(|name| ignored.iter().any(|one| is_below(name, one)))
        {
            continue;
        }
        let Some(first) = names.first() else { continue };
        let around = units
            .iter_mut()
            .filter(|unit| names.iter().all(|name| is_below(name, &unit.name)))
            .max_by_key(|unit| unit.name.len());
        if let Some(unit) = around {
            unit.parameters.push((first.clone(), tensor));
        }
    }
    Ok(units)
}

/// The names of the units whose activations are computed again where a plan asks for it: those that
/// have no unit inside. What the root computes by itself is kept.
///
/// # Errors
/// [`Error::Sharding`] for classes that the model does not have, with those that it has.
pub(crate) fn innermost_units(root: &dyn Module, plan: &ParallelPlan) -> Result<Vec<String>> {
    let names: Vec<String> = units(root, plan)?
        .into_iter()
        .map(|unit| unit.name)
        .filter(|name| !name.is_empty())
        .collect();
    let has_none_inside = |name: &&String| {
        let mut others = names.iter().filter(|other| other != name);
        !others.any(|other| is_below(other, name))
    };
    Ok(names.iter().filter(has_none_inside).cloned().collect())
}

/// Every parameter once, with all of its names, in the order of the first ones.
fn parameters_with_names(root: &dyn Module) -> Vec<(Vec<String>, Tensor)> {
    let mut found: Vec<(Vec<String>, Tensor)> = Vec::new();
    let mut places = HashMap::new();
    for (name, parameter) in all_parameters(root) {
        let place = *places.entry(parameter.identity()).or_insert(found.len());
        match found.get_mut(place) {
            Some((names, _)) => names.push(name),
            None => found.push((vec![name], parameter.tensor().shallow_clone())),
        }
    }
    found
}

/// Whether a dotted name lies in the module of another, or is its name.
pub(super) fn is_below(name: &str, module: &str) -> bool {
    module.is_empty()
        || name
            .strip_prefix(module)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Adds modules whose whole inside is gathered together: nothing in them is a unit by itself.
fn add_leaves(names: &mut Vec<String>, leaves: Vec<String>) {
    names.retain(|name| !leaves.iter().any(|leaf| is_below(name, leaf)));
    names.extend(leaves);
}

/// The names of the modules below the root that a policy makes units.
fn wrapped(root: &dyn Module, policy: &WrapPolicy) -> Vec<String> {
    match policy {
        WrapPolicy::Root => Vec::new(),
        WrapPolicy::Classes(classes) => of_classes(root, classes),
        WrapPolicy::ModelBlocks => blocks(root),
        WrapPolicy::Size {
            min_num_params,
            rule,
        } => of_size(root, *min_num_params, *rule),
    }
}

fn of_classes(root: &dyn Module, classes: &[String]) -> Vec<String> {
    let modules = root.named_modules().into_iter();
    let wanted = modules.filter(|(name, module)| {
        let is_wanted = classes.iter().any(|class| class == module.class_name());
        !name.is_empty() && module.state().is_some() && is_wanted
    });
    wanted.map(|(name, _)| name).collect()
}

/// Modules that stand in a list of two or more of their class, but not inside of another of them.
fn blocks(root: &dyn Module) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (name, module) in root.named_modules() {
        if module.state().is_some() || found.iter().any(|block| is_below(&name, block)) {
            continue;
        }
        let children = module.named_children();
        let class = children.first().map(|(_, child)| child.class_name());
        let alike = children
            .iter()
            .all(|(_, child)| Some(child.class_name()) == class && child.state().is_some());
        if children.len() > 1 && alike {
            found.extend(children.iter().map(|(child, _)| below(&name, child)));
        }
    }
    found
}

fn of_size(root: &dyn Module, least: u64, rule: SizeRule) -> Vec<String> {
    let least = usize::try_from(least).unwrap_or(usize::MAX);
    match rule {
        // A least size of nothing is no policy.
        SizeRule::RestAtLeast if least == 0 => Vec::new(),
        SizeRule::RestAtLeast => {
            let mut found = Vec::new();
            rest_at_least(root, "", least, &mut found);
            found.retain(|name| !name.is_empty());
            // Children were found before their parents.
            found.reverse();
            found
        }
        SizeRule::TotalAbove => root
            .named_modules()
            .into_iter()
            .filter(|(name, module)| {
                let is_callable = !name.is_empty() && module.state().is_some();
                is_callable && module.num_parameters() > least
            })
            .map(|(name, _)| name)
            .collect(),
    }
}

/// A class whose inside the first version of FSDP does not look at: it computes with the weights of its
/// parts, and does not call these.
const ATTENTION: &str = "MultiheadAttention";

/// Finds units below `module` and whether it is one; answers how many parameters are in units.
fn rest_at_least(module: &dyn Module, name: &str, least: usize, found: &mut Vec<String>) -> usize {
    let all = module.num_parameters();
    if all < least {
        return 0;
    }
    let inside = match module.class_name() {
        ATTENTION => 0,
        _ => {
            let children = module.named_children().into_iter();
            children
                .map(|(child, module)| rest_at_least(module, &below(name, &child), least, found))
                .sum::<usize>()
        }
    };
    if module.state().is_some() && all.saturating_sub(inside) >= least {
        found.push(name.to_owned());
        return all;
    }
    inside
}

fn below(name: &str, child: &str) -> String {
    match name {
        "" => child.to_owned(),
        name => format!("{name}.{child}"),
    }
}

/// The names of modules that stay whole.
fn ignored(root: &dyn Module, ignored: &Ignored) -> Result<Vec<String>> {
    match ignored {
        Ignored::Nothing => Ok(Vec::new()),
        Ignored::Named(names) => {
            for name in names {
                let _found = root.get_submodule(name)?;
            }
            Ok(names.clone())
        }
        Ignored::Matching(pattern) => Err(Error::Argument {
            operation: "sharding",
            expected: "ignored modules by their dotted names".to_owned(),
            found: format!("the regular expression `{pattern}`"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use accelerate_plan::parallel::{Mesh, Sharded};

    use super::*;
    use crate::nn::{Factory, Linear, ModuleState, Parameter, Sequential};

    #[derive(Debug, Module)]
    struct Block {
        first: Linear,
        second: Linear,
        state: ModuleState,
    }

    #[derive(Debug, Module)]
    struct Model {
        embedding: Parameter,
        blocks: Vec<Block>,
        head: Sequential,
        state: ModuleState,
    }

    fn model() -> Result<Model> {
        let factory = Factory::default();
        let linear = |inputs, outputs| Linear::without_bias(inputs, outputs, &factory);
        let block = || -> Result<Block> {
            Ok(Block {
                first: linear(2, 10)?,
                second: linear(10, 2)?,
                state: ModuleState::default(),
            })
        };
        let last = linear(2, 30)?;
        Ok(Model {
            embedding: last.weight.clone(),
            blocks: vec![block()?, block()?],
            head: Sequential::new().with(last),
            state: ModuleState::default(),
        })
    }

    fn found(wrap: WrapPolicy) -> Result<Vec<(String, Vec<String>)>> {
        let mut plan = ParallelPlan::new(Mesh::sharded(NonZeroUsize::MIN), Sharded::Parameters);
        plan.wrap = wrap;
        let names = |unit: UnitPlan| {
            let own = unit.parameters.into_iter().map(|(name, _)| name);
            (unit.name, own.collect())
        };
        Ok(units(&model()?, &plan)?.into_iter().map(names).collect())
    }

    fn named(name: &str, parameters: &[&str]) -> (String, Vec<String>) {
        let parameters = parameters.iter().map(|&one| one.to_owned());
        (name.to_owned(), parameters.collect())
    }

    #[test]
    fn the_root_takes_what_is_in_no_unit_and_what_is_tied_across_units() -> Result<()> {
        let expected = [
            named("", &["embedding"]),
            named(
                "blocks.0",
                &["blocks.0.first.weight", "blocks.0.second.weight"],
            ),
            named(
                "blocks.1",
                &["blocks.1.first.weight", "blocks.1.second.weight"],
            ),
        ];
        assert_eq!(
            found(WrapPolicy::Classes(vec!["Block".to_owned()]))?,
            expected
        );
        assert_eq!(found(WrapPolicy::ModelBlocks)?, expected);
        let all = found(WrapPolicy::Root)?;
        assert_eq!((all.len(), all[0].1.len()), (1, 5));
        Ok(())
    }

    #[test]
    fn units_inside_of_units_have_their_own() -> Result<()> {
        let classes = ["Block", "Linear"].map(str::to_owned);
        let names: Vec<_> = found(WrapPolicy::Classes(classes.to_vec()))?
            .into_iter()
            .map(|(name, parameters)| (name, parameters.len()))
            .collect();
        let expected = [
            ("", 1),
            ("blocks.0", 0),
            ("blocks.0.first", 1),
            ("blocks.0.second", 1),
            ("blocks.1", 0),
            ("blocks.1.first", 1),
            ("blocks.1.second", 1),
            ("head.0", 0),
        ];
        assert_eq!(
            names,
            expected.map(|(name, count)| (name.to_owned(), count))
        );
        Ok(())
    }

    #[test]
    fn sizes_count_as_each_version_of_fsdp_counts_them() -> Result<()> {
        let names = |least, rule| -> Result<Vec<String>> {
            let wrap = WrapPolicy::Size {
                min_num_params: least,
                rule,
            };
            Ok(found(wrap)?.into_iter().map(|(name, _)| name).collect())
        };
        // A block has 40 parameters, each half 20; the head 60.
        let rest = SizeRule::RestAtLeast;
        assert_eq!(names(30, rest)?, ["", "head.0", "blocks.1", "blocks.0"]);
        let halves = names(20, rest)?;
        assert_eq!(halves.len(), 6);
        assert!(halves.contains(&"blocks.1.second".to_owned()));
        assert_eq!(names(0, rest)?, [""]);
        let total = SizeRule::TotalAbove;
        assert_eq!(
            names(30, total)?,
            ["", "blocks.0", "blocks.1", "head", "head.0"]
        );
        assert_eq!(names(40, total)?, ["", "head", "head.0"]);
        Ok(())
    }

    #[derive(Debug, Module)]
    struct MultiheadAttention {
        inputs: Linear,
        outputs: Linear,
        state: ModuleState,
    }

    #[derive(Debug, Module)]
    struct Attends {
        attention: MultiheadAttention,
        linear: Linear,
        state: ModuleState,
    }

    #[test]
    fn by_size_nothing_inside_of_an_attention_is_a_unit() -> Result<()> {
        let factory = Factory::default();
        let linear = |inputs, outputs| Linear::without_bias(inputs, outputs, &factory);
        let model = Attends {
            attention: MultiheadAttention {
                inputs: linear(4, 12)?,
                outputs: linear(4, 4)?,
                state: ModuleState::default(),
            },
            linear: linear(4, 12)?,
            state: ModuleState::default(),
        };
        let rest = |least| of_size(&model, least, SizeRule::RestAtLeast);
        assert_eq!(rest(40), ["linear", "attention"]);
        assert_eq!(rest(60), ["attention"]);
        Ok(())
    }

    #[test]
    fn innermost_units_are_computed_again() -> Result<()> {
        let mut plan = ParallelPlan::new(Mesh::sharded(NonZeroUsize::MIN), Sharded::Parameters);
        let innermost = |plan: &ParallelPlan| innermost_units(&model()?, plan);
        assert!(innermost(&plan)?.is_empty());
        plan.wrap = WrapPolicy::Classes(vec!["Block".to_owned()]);
        assert_eq!(innermost(&plan)?, ["blocks.0", "blocks.1"]);
        plan.wrap = WrapPolicy::Classes(["Block", "Sequential"].map(str::to_owned).to_vec());
        assert_eq!(innermost(&plan)?, ["blocks.0", "blocks.1", "head"]);
        let both = ["Block", "Linear"].map(str::to_owned).to_vec();
        plan.wrap = WrapPolicy::Classes(both);
        let expected = [
            "blocks.0.first",
            "blocks.0.second",
            "blocks.1.first",
            "blocks.1.second",
            "head.0",
        ];
        assert_eq!(innermost(&plan)?, expected);
        Ok(())
    }

    #[test]
    fn an_unknown_class_is_told_with_those_there_are() {
        let classes = ["Block", "Liner"].map(str::to_owned);
        let error = found(WrapPolicy::Classes(classes.to_vec())).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("no module of the model has class `Liner`"),
            "{text}"
        );
        assert!(text.contains("did you mean `Linear`?"), "{text}");
        assert!(
            text.contains("`Block`, `Linear`, `Model`, `Sequential`"),
            "{text}"
        );
    }

    #[test]
    fn the_inside_of_a_leaf_is_gathered_together() -> Result<()> {
        let mut plan = ParallelPlan::new(Mesh::sharded(NonZeroUsize::MIN), Sharded::Parameters);
        plan.wrap = WrapPolicy::Classes(vec!["Linear".to_owned()]);
        plan.leaf_classes = vec!["Block".to_owned()];
        let names: Vec<_> = units(&model()?, &plan)?
            .into_iter()
            .map(|unit| (unit.name, unit.parameters.len()))
            .collect();
        let expected = [("", 1), ("head.0", 0), ("blocks.0", 2), ("blocks.1", 2)];
        assert_eq!(
            names,
            expected.map(|(name, count)| (name.to_owned(), count))
        );
        Ok(())
    }
}
