//! Names with what wrappers around a model added to them.
//!
//! Data parallelism keeps the model in a member `module`, so every name of the wrapper begins with
//! `module.`; compiled, checkpointed and sharded modules are wrapped at any depth, under names that
//! no model uses. A name is only changed where the model has the changed name. A model may have a
//! member `module` of its own: then all names together decide, and where they do not, nobody does.

use std::collections::{BTreeSet, HashSet};

use super::load::LoadOptions;

/// What a wrapper around the whole model is called in names.
const AROUND_ALL: &str = "module";

/// What wrappers around any module are called in names.
const AROUND_ANY: [&str; 3] = [
    "_orig_mod",
    "_fsdp_wrapped_module",
    "_checkpoint_wrapped_module",
];

/// How all names are read.
#[derive(Debug, PartialEq)]
pub(super) struct Names {
    /// For each name, in order.
    pub(super) readings: Vec<Reading>,
    /// What was taken out of names.
    pub(super) removed: Vec<String>,
}

/// How one name is read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Reading {
    /// The caller ignores the tensor.
    Ignored,
    /// The name of the module, which the module may not have.
    Name(String),
}

/// A name that can be read in two ways.
#[derive(Debug, PartialEq)]
pub(super) struct Doubt {
    pub(super) prefix: String,
    pub(super) name: String,
    pub(super) readings: Vec<String>,
}

/// Decides how names are read; `known` tells the module's own names.
pub(super) fn resolve<'n>(
    names: impl Iterator<Item = &'n str>,
    known: &dyn Fn(&str) -> bool,
    options: &LoadOptions<'_>,
) -> Result<Names, Doubt> {
    let names: Vec<&str> = names.collect();
    let mut guesses = vec![Guess::of(&names, Removed::default(), known, options)];
    if !options.has_exact_names() {
        for removed in Removed::possible(&names) {
            guesses.push(Guess::of(&names, removed, known, options));
        }
    }
    // Names that become one name were different tensors.
    let best = guesses
        .iter()
        .filter(|guess| guess.removed.is_nothing() || !guess.collides)
        .map(|guess| guess.matches)
        .max()
        .unwrap_or(0);
    let mut good = guesses
        .into_iter()
        .filter(|guess| guess.matches == best && (guess.removed.is_nothing() || !guess.collides));
    let Some(first) = good.next() else {
        return Ok(Names {
            readings: Vec::new(),
            removed: Vec::new(),
        });
    };
    // Nothing to choose where nothing matches, or where another guess changes no name.
    let rival = good.find(|guess| best > 0 && guess.readings != first.readings);
    match rival {
        Some(rival) => Err(doubt(&names, &first, &rival)),
        None => Ok(Names {
            removed: first.removed.shown(&names),
            readings: first.readings,
        }),
    }
}

fn doubt(names: &[&str], first: &Guess, rival: &Guess) -> Doubt {
    let mut pairs = names
        .iter()
        .zip(first.readings.iter().zip(&rival.readings))
        .filter(|(_, (one, other))| one != other);
    let (name, readings) = pairs.next().map_or_else(Default::default, |(name, pair)| {
        let shown = |reading: &Reading| match reading {
            Reading::Ignored => "ignored".to_owned(),
            Reading::Name(name) => name.clone(),
        };
        ((*name).to_owned(), vec![shown(pair.0), shown(pair.1)])
    });
    Doubt {
        prefix: rival.removed.shown(names).join("` and `"),
        name,
        readings,
    }
}

/// What is taken out of names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Removed {
    /// How many wrappers around the whole model.
    around_all: usize,
    /// Whether wrappers around any module.
    around_any: bool,
}

impl Removed {
    /// Everything that can be taken out of these names, which is nothing for most files.
    fn possible(names: &[&str]) -> Vec<Self> {
        let has_any = names
            .iter()
            .any(|name| name.split('.').any(|part| AROUND_ANY.contains(&part)));
        let mut possible = Vec::new();
        for around_any in [false, true] {
            if around_any && !has_any {
                continue;
            }
            // A wrapper around the model is in all names.
            let deepest = names
                .iter()
                .map(|name| leading(&without_any(name, around_any)))
                .min()
                .unwrap_or(0);
            for around_all in 0..=deepest {
                possible.push(Self {
                    around_all,
                    around_any,
                });
            }
        }
        possible.retain(|removed| !removed.is_nothing());
        possible
    }

    fn is_nothing(self) -> bool {
        self == Self::default()
    }

    fn from(self, name: &str) -> String {
        let name = without_any(name, self.around_any);
        name.splitn(self.around_all + 1, '.')
            .last()
            .unwrap_or_default()
            .to_owned()
    }

    /// The parts that are taken out, for people.
    fn shown(self, names: &[&str]) -> Vec<String> {
        let mut shown = BTreeSet::new();
        if self.around_all > 0 {
            shown.insert(format!("{AROUND_ALL}."));
        }
        if self.around_any {
            let parts = names.iter().flat_map(|name| name.split('.'));
            shown.extend(
                parts
                    .filter(|part| AROUND_ANY.contains(part))
                    .map(|part| format!("{part}.")),
            );
        }
        shown.into_iter().collect()
    }
}

/// How many wrappers around the whole model a name begins with; its last part is a tensor's.
fn leading(name: &str) -> usize {
    let parts: Vec<&str> = name.split('.').collect();
    let modules = parts.split_last().map_or(&[][..], |(_, modules)| modules);
    modules
        .iter()
        .take_while(|part| **part == AROUND_ALL)
        .count()
}

fn without_any(name: &str, around_any: bool) -> String {
    if !around_any {
        return name.to_owned();
    }
    let parts: Vec<&str> = name
        .split('.')
        .filter(|part| !AROUND_ANY.contains(part))
        .collect();
    parts.join(".")
}

/// One way to read all names.
struct Guess {
    removed: Removed,
    readings: Vec<Reading>,
    /// How many different names the module has.
    matches: usize,
    /// Whether two names are read as one.
    collides: bool,
}

impl Guess {
    fn of(
        names: &[&str],
        removed: Removed,
        known: &dyn Fn(&str) -> bool,
        options: &LoadOptions<'_>,
    ) -> Self {
        let readings: Vec<Reading> = names
            .iter()
            .map(|name| match options.name_for(&removed.from(name)) {
                Some(name) => Reading::Name(name),
                None => Reading::Ignored,
            })
            .collect();
        let mut seen = HashSet::new();
        let mut collides = false;
        let mut matches = 0;
        for reading in &readings {
            let Reading::Name(name) = reading else {
                continue;
            };
            if seen.insert(name.as_str()) {
                matches += usize::from(known(name));
            } else {
                collides = true;
            }
        }
        Self {
            removed,
            readings,
            matches,
            collides,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(own: &[&str], file: &[&str]) -> Result<Vec<String>, Doubt> {
        let known = |name: &str| own.contains(&name);
        let names = resolve(file.iter().copied(), &known, &LoadOptions::strict())?;
        let shown = names.readings.into_iter().map(|reading| match reading {
            Reading::Name(name) => name,
            Reading::Ignored => "-".to_owned(),
        });
        Ok(shown.collect())
    }

    #[test]
    fn a_wrapper_around_all_is_in_all_names() {
        let own = ["a.weight", "b.weight"];
        let wrapped = ["module.a.weight", "module.b.weight"];
        assert_eq!(read(&own, &wrapped).unwrap(), own);
        let twice = ["module.module.a.weight", "module.module.b.weight"];
        assert_eq!(read(&own, &twice).unwrap(), own);
        // Not all names have it, so it is none.
        let some = ["module.a.weight", "b.weight"];
        assert_eq!(read(&own, &some).unwrap(), some);
    }

    #[test]
    fn wrappers_around_any_module_may_be_in_some_names() {
        let own = ["a.weight", "b.c.weight"];
        for file in [
            ["a.weight", "b._orig_mod.c.weight"],
            ["_orig_mod.a.weight", "_orig_mod.b.c.weight"],
            ["module._orig_mod.a.weight", "module._orig_mod.b.c.weight"],
            ["_orig_mod.module.a.weight", "_orig_mod.module.b.c.weight"],
            [
                "a.weight",
                "_fsdp_wrapped_module.b._checkpoint_wrapped_module.c.weight",
            ],
        ] {
            assert_eq!(read(&own, &file).unwrap(), own, "{file:?}");
        }
    }

    #[test]
    fn names_that_fit_or_belong_to_another_model_stay() {
        let own = ["module.weight", "weight"];
        assert_eq!(read(&own, &own).unwrap(), own);
        let other = ["module.x", "module.y"];
        assert_eq!(read(&own, &other).unwrap(), other);
        assert_eq!(read(&own, &[]).unwrap(), [""; 0]);
        // A tensor may be called `module` itself.
        assert_eq!(read(&["module"], &["module"]).unwrap(), ["module"]);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let doubt = read(&["module.weight", "weight"], &["module.weight"]).unwrap_err();
        assert_eq!(doubt.prefix, "module.");
        assert_eq!(doubt.readings, ["module.weight", "weight"]);
    }

    #[test]
    fn the_callers_names_come_after() {
        let rename = |name: &str| name.strip_prefix("old.").map(str::to_owned);
        let options = LoadOptions::strict().with_rename(&rename);
        let file = ["module.old.weight", "module.step"];
        let names = resolve(file.into_iter(), &|name| name == "weight", &options).unwrap();
        let expected = [Reading::Name("weight".to_owned()), Reading::Ignored];
        assert_eq!(names.readings, expected);
        assert_eq!(names.removed, ["module."]);
    }
}
