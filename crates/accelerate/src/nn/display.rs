//! A module as text.

use std::fmt;

use super::{Module, walk};

/// Shows a module as PyTorch prints it; made by [`Module::display`].
///
/// ```
/// use accelerate::nn::{Dropout, Factory, Linear, Module, Sequential};
///
/// let model = Sequential::new().with(Linear::new(4, 2, &Factory::default())?).with(Dropout::new(0.1)?);
/// let expected = "Sequential(\n  (0): Linear(in_features=4, out_features=2, bias=True)\n  (1): Dropout(p=0.1, inplace=False)\n)";
/// assert_eq!(model.display().to_string(), expected);
/// # Ok::<(), accelerate::Error>(())
/// ```
///
/// # Source
/// `Module.__repr__` and `ModuleList.__repr__`, which joins neighbours that look the same.
/// Differs: lists of parameters have no entry.
#[derive(Clone, Copy)]
pub struct ModuleText<'m>(&'m dyn Module);

impl<'m> ModuleText<'m> {
    pub(super) fn new(module: &'m dyn Module) -> Self {
        Self(module)
    }
}

impl fmt::Display for ModuleText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(self.0))
    }
}

impl fmt::Debug for ModuleText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn text(module: &dyn Module) -> String {
    let class = module.class_name();
    let extra = module.extra_repr();
    let children: Vec<(String, String)> = walk::children(module)
        .into_iter()
        .map(|(name, child)| (name, text(child)))
        .collect();
    if children.is_empty() && !extra.contains('\n') {
        return format!("{class}({extra})");
    }
    let children = if class == "ModuleList" {
        joined(children)
    } else {
        children
            .into_iter()
            .map(|(name, text)| format!("({name}): {text}"))
            .collect()
    };
    let extra = extra.lines().map(str::to_owned);
    let lines: Vec<String> = extra
        .chain(children.iter().map(|child| indented(child)))
        .collect();
    format!("{class}(\n  {}\n)", lines.join("\n  "))
}

/// The entries of a list, neighbours that look the same as one: `(0-2): 3 x Linear(..)`.
fn joined(children: Vec<(String, String)>) -> Vec<String> {
    let mut runs: Vec<(String, String, usize, String)> = Vec::new();
    for (name, text) in children {
        match runs.last_mut() {
            Some((_, last, count, shown)) if *shown == text => {
                *last = name;
                *count += 1;
            }
            _ => runs.push((name.clone(), name, 1, text)),
        }
    }
    runs.into_iter()
        .map(|(first, last, count, text)| match count {
            1 => format!("({first}): {text}"),
            _ => format!("({first}-{last}): {count} x {text}"),
        })
        .collect()
}

/// All lines but the first moved in by two.
fn indented(text: &str) -> String {
    text.replace('\n', "\n  ")
}
