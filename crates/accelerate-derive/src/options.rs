//! What the `#[module(..)]` and `#[tree(..)]` attributes say.

use syn::ext::IdentExt as _;
use syn::{Attribute, Field, LitStr, Path};

/// The options on a type.
#[derive(Default)]
pub(crate) struct TypeOptions {
    /// The class name to use instead of the type's own.
    pub(crate) class: Option<LitStr>,
    /// The function that tells what stands in the parentheses when the module is shown.
    pub(crate) extra_repr: Option<Path>,
    /// The function that tells how wide the hidden states are.
    pub(crate) hidden_sizes: Option<Path>,
}

/// The options on a field.
#[derive(Default)]
pub(crate) struct FieldOptions {
    /// The member name to use instead of the field's own.
    pub(crate) name: Option<LitStr>,
    /// Whether the field is plain data.
    pub(crate) skip: bool,
}

impl TypeOptions {
    /// Reads `#[module(class = "..", extra_repr = .., hidden_sizes = ..)]`.
    pub(crate) fn read(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut options = Self::default();
        for attribute in named(attributes, "module") {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("class") {
                    options.class = Some(meta.value()?.parse()?);
                    return Ok(());
                }
                if meta.path.is_ident("extra_repr") {
                    options.extra_repr = Some(meta.value()?.parse()?);
                    return Ok(());
                }
                if meta.path.is_ident("hidden_sizes") {
                    options.hidden_sizes = Some(meta.value()?.parse()?);
                    return Ok(());
                }
                Err(meta.error(
                    "unknown option, expected `class = \"..\"`, `extra_repr = path::to::function` or \
                     `hidden_sizes = path::to::function`",
                ))
            })?;
        }
        Ok(options)
    }
}

impl FieldOptions {
    /// Reads `#[module(name = "..")]` and `#[module(skip)]`.
    pub(crate) fn read_module(field: &Field) -> syn::Result<Self> {
        let options = Self::read(&field.attrs, "module", "`name = \"..\"` or `skip`")?;
        match &options.name {
            Some(name) if options.skip => Err(syn::Error::new(
                name.span(),
                "a skipped field is no member and has no name",
            )),
            Some(name) if name.value().is_empty() || name.value().contains('.') => {
                Err(syn::Error::new(
                    name.span(),
                    "expected a name that is not empty and has no dot",
                ))
            }
            _ => Ok(options),
        }
    }

    /// Reads `#[tree(skip)]`.
    pub(crate) fn read_tree(field: &Field) -> syn::Result<Self> {
        Self::read(&field.attrs, "tree", "`skip`")
    }

    fn read(attributes: &[Attribute], attribute: &str, allowed: &str) -> syn::Result<Self> {
        let mut options = Self::default();
        for found in named(attributes, attribute) {
            found.parse_nested_meta(|meta| {
                if meta.path.is_ident("skip") {
                    options.skip = true;
                    return Ok(());
                }
                if meta.path.is_ident("name") && attribute == "module" {
                    options.name = Some(meta.value()?.parse()?);
                    return Ok(());
                }
                Err(meta.error(format!("unknown option, expected {allowed}")))
            })?;
        }
        Ok(options)
    }

    /// The member's name: the given one, else the field's.
    pub(crate) fn member_name(&self, field: &Field) -> String {
        let own = || field.ident.as_ref().map(|ident| ident.unraw().to_string());
        self.name
            .as_ref()
            .map(LitStr::value)
            .or_else(own)
            .unwrap_or_default()
    }
}

fn named<'a>(attributes: &'a [Attribute], name: &'a str) -> impl Iterator<Item = &'a Attribute> {
    attributes
        .iter()
        .filter(move |attribute| attribute.path().is_ident(name))
}
