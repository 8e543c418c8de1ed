//! First values, drawn as the original draws them.
//!
//! A model's layers first draw their own default values while they are built. Then every module is
//! visited, children before parents, and given the values that the model's kind is trained from;
//! so the same seed gives the same numbers in both.

use std::collections::HashSet;

use accelerate::nn::{Factory, Init, Member, Module, init};
use accelerate::{Error, Result};
use tch::Tensor;

/// One module that gets first values.
///
/// Values that are not wanted, because a file has them, are left alone and draw no numbers.
pub struct InitNode<'m> {
    name: String,
    module: &'m dyn Module,
    wanted: &'m Wanted,
}

/// Which tensors get first values.
enum Wanted {
    All,
    /// Those of these identities.
    These(HashSet<usize>),
}

impl<'m> InitNode<'m> {
    /// The dotted name of the module; empty for the model itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The class name of the module.
    pub fn class(&self) -> &'static str {
        self.module.class_name()
    }

    /// Draws a member from the normal distribution around zero.
    ///
    /// A member is named by its dotted name below this module. An absent one is passed over, as
    /// a layer without offset has no `bias`.
    ///
    /// # Errors
    /// If `std` is negative.
    pub fn normal(&self, member: &str, std: f64) -> Result<()> {
        self.fill(member, |tensor| init::normal(tensor, 0.0, std))
    }

    /// Sets every value of a member.
    ///
    /// # Errors
    /// If the value does not fit the type.
    pub fn constant(&self, member: &str, value: f64) -> Result<()> {
        self.fill(member, |tensor| init::constant(tensor, value))
    }

    /// Sets one row of a member to zero, such as that of the padding token.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn zero_row(&self, member: &str, row: i64) -> Result<()> {
        self.fill(member, |tensor| init::zero_row(tensor, row))
    }

    /// Fills a member in any other way.
    ///
    /// # Errors
    /// What `fill` reports.
    pub fn fill(&self, member: &str, fill: impl FnOnce(&Tensor) -> Result<()>) -> Result<()> {
        let found = find(self.module, member);
        found
            .filter(|found| self.wanted.has(found.identity))
            .map_or(Ok(()), |found| fill(found.tensor))
    }

    /// Whether the module has this member.
    pub fn has(&self, member: &str) -> bool {
        find(self.module, member).is_some()
    }
}

impl std::fmt::Debug for InitNode<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InitNode")
            .field("name", &self.name)
            .field("class", &self.class())
            .finish_non_exhaustive()
    }
}

impl Wanted {
    fn has(&self, identity: usize) -> bool {
        match self {
            Self::All => true,
            Self::These(identities) => identities.contains(&identity),
        }
    }
}

/// What most models are trained from: linear and convolution layers and embeddings normal with
/// `std`, offsets zero, normalisation layers neutral.
///
/// The row of a padding token is the model's own matter: [`InitNode::zero_row`].
///
/// # Errors
/// If `std` is negative.
///
/// # Source
/// `PreTrainedModel._init_weights` of `transformers`.
pub fn usual_first_values(node: &InitNode<'_>, std: f64) -> Result<()> {
    match node.class() {
        "Linear" | "Conv1d" | "Conv2d" | "Conv3d" => {
            node.normal("weight", std)?;
            node.constant("bias", 0.0)
        }
        "Embedding" => node.normal("weight", std),
        class if is_norm(class) => {
            node.constant("weight", 1.0)?;
            node.constant("bias", 0.0)?;
            node.constant("running_mean", 0.0)?;
            node.constant("running_var", 1.0)?;
            node.constant("num_batches_tracked", 0.0)
        }
        _ => Ok(()),
    }
}

fn is_norm(class: &str) -> bool {
    ["LayerNorm", "RMSNorm", "BatchNorm", "GroupNorm"]
        .iter()
        .any(|norm| class.contains(norm))
}

/// Gives first values to every module of a model that was just built, children before parents.
///
/// Whole members named in `apart` are left out, as they have their values already. Where the
/// factory says other first values than [`Init::Layer`], nothing is done. For models that are
/// part of another and no [`PretrainedModel`](super::PretrainedModel) themselves.
///
/// # Errors
/// What `visit` reports.
pub fn draw_first_values(
    model: &dyn Module,
    factory: &Factory,
    apart: &[&str],
    visit: impl Fn(&InitNode<'_>) -> Result<()>,
) -> Result<()> {
    if factory.init() != Init::Layer {
        return Ok(());
    }
    visit_below(model, String::new(), &Wanted::All, apart, &visit)
}

/// Gives first values to the parameters of these names, and to no others.
pub(super) fn visit_named(
    model: &dyn Module,
    names: &[String],
    visit: impl Fn(&InitNode<'_>) -> Result<()>,
) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let found = names.iter().map(|name| {
        let found = find(model, name).ok_or_else(|| Error::Argument {
            operation: "first values",
            expected: "the name of a parameter".to_owned(),
            found: format!("`{name}`"),
        })?;
        Ok(found.identity)
    });
    let wanted = Wanted::These(found.collect::<Result<_>>()?);
    visit_below(model, String::new(), &wanted, &[], &visit)
}

fn visit_below<'m>(
    module: &'m dyn Module,
    name: String,
    wanted: &'m Wanted,
    apart: &[&str],
    visit: &dyn Fn(&InitNode<'_>) -> Result<()>,
) -> Result<()> {
    let mut children = Vec::new();
    module.members(&mut |member_name, member| {
        if let Member::Module(child) = member {
            children.push((dotted(&name, member_name), child));
        }
    });
    for (child_name, child) in children {
        if !apart.contains(&child_name.as_str()) {
            visit_below(child, child_name, wanted, apart, visit)?;
        }
    }
    visit(&InitNode {
        name,
        module,
        wanted,
    })
}

fn dotted(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    }
}

/// A parameter or buffer.
struct Found<'m> {
    /// The same number for all handles on one parameter.
    identity: usize,
    tensor: &'m Tensor,
}

/// The parameter or buffer of this dotted name below `module`.
fn find<'m>(module: &'m dyn Module, name: &str) -> Option<Found<'m>> {
    let (mut found, mut child) = (None, None);
    module.members(&mut |member_name, member| match member {
        Member::Parameter(parameter) if member_name == name => {
            found = Some(Found {
                identity: parameter.identity(),
                tensor: parameter.tensor(),
            });
        }
        Member::Buffer(buffer) if member_name == name => {
            found = Some(Found {
                identity: buffer.identity(),
                tensor: buffer.tensor(),
            });
        }
        Member::Module(below) => {
            let rest = name.strip_prefix(member_name);
            if let Some(rest) = rest.and_then(|rest| rest.strip_prefix('.')) {
                child = Some((below, rest.to_owned()));
            }
        }
        _ => {}
    });
    found.or_else(|| child.and_then(|(below, rest)| find(below, &rest)))
}
