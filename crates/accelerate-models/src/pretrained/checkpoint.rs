//! Which names of a file mean which parameters.

use std::collections::HashSet;
use std::path::Path;

use accelerate::big_model::{
    LoadAndDispatchOptions, LoadedAndDispatched, load_checkpoint_and_dispatch,
};
use accelerate::checkpoint::{LoadOptions, LoadReport, Weights, load_weights};
use accelerate::nn::{Member, Module};

/// How public checkpoints name the parameters of a model, and what they may lack or have beside.
///
/// A name of a file is first brought up to date (`renamed_ends`). Then it is taken as it is if
/// the model has it; else with the base prefix added or taken away, whichever the model has. So a
/// model with a head reads a bare checkpoint, and a bare model one with a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    base: &'static str,
    heads: &'static [&'static str],
    ignored: &'static [&'static str],
    renamed_ends: &'static [(&'static str, &'static str)],
    renamed_parts: &'static [(&'static str, &'static str)],
}

impl Checkpoint {
    /// The names of the model itself, nothing more and nothing less. `base` is what models with
    /// heads call the bare model, such as `bert`, `transformer` or `model`; it may be empty.
    pub const fn new(base: &'static str) -> Self {
        Self {
            base,
            heads: &[],
            ignored: &[],
            renamed_ends: &[],
            renamed_parts: &[],
        }
    }

    /// Members of the model (dotted names) that a checkpoint may lack; they are then new. One of
    /// which it has a part is damaged, and not new.
    #[must_use]
    pub const fn with_heads(self, heads: &'static [&'static str]) -> Self {
        Self { heads, ..self }
    }

    /// Tensors of a checkpoint that the model may do without: a name that ends in `.` stands for
    /// everything below it, any other for every tensor whose dotted name ends so.
    #[must_use]
    pub const fn with_ignored(self, ignored: &'static [&'static str]) -> Self {
        Self { ignored, ..self }
    }

    /// Ends of names that older checkpoints have, with what they are called now.
    #[must_use]
    pub const fn with_renamed_ends(
        self,
        renamed_ends: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            renamed_ends,
            ..self
        }
    }

    /// Parts of dotted names that older checkpoints have, with what they are called now; each ends
    /// in `.`, and they are replaced one after the other.
    #[must_use]
    pub const fn with_renamed_parts(
        self,
        renamed_parts: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            renamed_parts,
            ..self
        }
    }

    /// What models with heads call the bare model.
    pub const fn base(&self) -> &'static str {
        self.base
    }

    /// Copies weights into a model, and warns of parameters that are new.
    ///
    /// # Errors
    /// [`accelerate::Error::WeightsDoNotFit`] naming everything that does not fit.
    pub fn load(&self, model: &dyn Module, weights: &Weights) -> accelerate::Result<LoadReport> {
        let own = names(model);
        let rename = |name: &str| self.name_for(name, &own);
        let found: HashSet<String> = weights.names().filter_map(rename).collect();
        let is_absent = |head: &&&str| !found.iter().any(|name| is_below(name, head));
        let absent = self.heads.iter().filter(is_absent);
        let strict = LoadOptions::strict().with_rename(&rename);
        let options = absent.fold(strict, |options, head| options.with_optional(*head));
        let report = load_weights(model, weights, &options)?;
        tell(&report, model.class_name(), weights.path());
        Ok(report)
    }

    /// As [`load`](Self::load) into an empty model, each weight to its place; no head may be missing.
    ///
    /// # Errors
    /// Those of [`load_checkpoint_and_dispatch`].
    pub fn load_and_dispatch(
        &self,
        model: &dyn Module,
        checkpoint: &Path,
        options: &LoadAndDispatchOptions<'_>,
    ) -> accelerate::Result<LoadedAndDispatched> {
        let own = names(model);
        let rename = |name: &str| self.name_for(name, &own);
        let fit = LoadOptions::strict().with_rename(&rename);
        let options = options.clone().with_fit(fit);
        load_checkpoint_and_dispatch(model, checkpoint, &options)
    }

    /// The model's name for a name in a checkpoint; none for what it may do without.
    pub(super) fn name_for(&self, name: &str, own: &HashSet<String>) -> Option<String> {
        let name = self.current(name);
        if own.contains(&name) {
            return Some(name);
        }
        let with_base = format!("{}.{name}", self.base);
        if own.contains(&with_base) {
            return Some(with_base);
        }
        let below = |rest: &str| rest.strip_prefix('.').map(str::to_owned);
        match name.strip_prefix(self.base).and_then(below) {
            Some(bare) if own.contains(&bare) => Some(bare),
            _ if self.ignores(&name) => None,
            // Unknown: told by the file's own name.
            _ => Some(name),
        }
    }

    fn current(&self, name: &str) -> String {
        let renamed =
            |(old, new): &(&str, &str)| name.strip_suffix(old).map(|start| format!("{start}{new}"));
        let found = self.renamed_ends.iter().find_map(renamed);
        let name = found.unwrap_or_else(|| name.to_owned());
        self.renamed_parts.iter().fold(name, replaced_part)
    }

    fn ignores(&self, name: &str) -> bool {
        self.ignored.iter().any(|pattern| {
            if pattern.ends_with('.') {
                return name.starts_with(pattern);
            }
            name.strip_suffix(pattern)
                .is_some_and(|start| start.is_empty() || start.ends_with('.'))
        })
    }
}

/// The name with one part under its new name, if it has the old one.
fn replaced_part(name: String, (old, new): &(&str, &str)) -> String {
    let found = name
        .match_indices(old)
        .find(|(at, _)| *at == 0 || name.as_bytes().get(at - 1) == Some(&b'.'));
    match found {
        Some((at, _)) => format!("{}{new}{}", &name[..at], &name[at + old.len()..]),
        None => name,
    }
}

fn is_below(name: &str, member: &str) -> bool {
    name.strip_prefix(member)
        .is_some_and(|rest| rest.starts_with('.'))
}

fn tell(report: &LoadReport, class: &str, path: &Path) {
    if !report.newly_initialized.is_empty() {
        tracing::warn!(
            path = %path.display(),
            model = class,
            parameters = ?report.newly_initialized,
            "the checkpoint has no weights for the head: these parameters are new and need training"
        );
    }
    if !report.ignored.is_empty() {
        tracing::debug!(
            path = %path.display(),
            model = class,
            tensors = ?report.ignored,
            "tensors this model does not have"
        );
    }
}

/// Every name of a parameter or persistent buffer, a tied one under each of its names.
pub(super) fn names(model: &dyn Module) -> HashSet<String> {
    let mut found = HashSet::new();
    collect(model, "", &mut found);
    found
}

fn collect(module: &dyn Module, prefix: &str, found: &mut HashSet<String>) {
    module.members(&mut |name, member| {
        let name = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}.{name}")
        };
        match member {
            Member::Module(child) => collect(child, &name, found),
            Member::Buffer(buffer) if !buffer.is_persistent() => {}
            _ => {
                found.insert(name);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Checkpoint = Checkpoint::new("bert")
        .with_ignored(&["cls.", "embeddings.position_ids"])
        .with_renamed_ends(&[("LayerNorm.gamma", "LayerNorm.weight")]);

    fn own(names: &[&str]) -> HashSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_model_with_a_head_reads_both_kinds_of_checkpoints() {
        let own = own(&[
            "bert.pooler.bias",
            "bert.LayerNorm.weight",
            "classifier.bias",
        ]);
        for (name, expected) in [
            ("pooler.bias", "bert.pooler.bias"),
            ("bert.pooler.bias", "bert.pooler.bias"),
            ("LayerNorm.gamma", "bert.LayerNorm.weight"),
            ("bert.LayerNorm.gamma", "bert.LayerNorm.weight"),
            ("classifier.bias", "classifier.bias"),
            ("stray.bias", "stray.bias"),
        ] {
            assert_eq!(NAMES.name_for(name, &own).as_deref(), Some(expected));
        }
    }

    #[test]
    fn parts_of_names_are_brought_up_to_date_in_turn() {
        let names = Checkpoint::new("vit").with_renamed_parts(&[
            ("encoder.layer.", "layers."),
            ("attention.output.dense.", "attention.o_proj."),
            ("output.dense.", "mlp.fc2."),
        ]);
        for (old, new) in [
            (
                "vit.encoder.layer.11.attention.output.dense.bias",
                "vit.layers.11.attention.o_proj.bias",
            ),
            ("encoder.layer.0.output.dense.bias", "layers.0.mlp.fc2.bias"),
            ("other_encoder.layer.0.bias", "other_encoder.layer.0.bias"),
        ] {
            assert_eq!(names.current(old), new);
        }
    }

    #[test]
    fn a_bare_model_reads_a_checkpoint_with_heads() {
        let own = own(&["pooler.bias"]);
        let name_for = |name| NAMES.name_for(name, &own);
        assert_eq!(name_for("bert.pooler.bias").as_deref(), Some("pooler.bias"));
        assert_eq!(name_for("cls.predictions.bias"), None);
        assert_eq!(name_for("bert.embeddings.position_ids"), None);
        assert_eq!(name_for("embeddings.position_ids"), None);
        // Not below the base, and no end of a dotted name.
        assert_eq!(
            name_for("bertpooler.bias").as_deref(),
            Some("bertpooler.bias")
        );
        let stray = "other_embeddings.position_ids";
        assert_eq!(name_for(stray).as_deref(), Some(stray));
    }
}
