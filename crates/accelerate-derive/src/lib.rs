//! The derive macros of Accelerate for Rust.
//!
//! | macro | implements | for |
//! | --- | --- | --- |
//! | [`Module`](macro@Module) | `accelerate::nn::Module` | layers and models: names, class names, members |
//! | [`Tree`](macro@Tree) | `accelerate::tree::Tree` | batches, arguments and outputs made of tensors |
//!
//! Both are re-exported where their traits live; nobody needs to name this crate.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

mod generics;
mod module;
mod options;
mod tree;

/// Implements `accelerate::nn::Module`: a struct of named fields becomes a node of the module tree.
///
/// Every field is a parameter, a buffer, a child module, a list or map of those, the one
/// `ModuleState`, or marked `#[module(skip)]`; a field of any other type does not compile.
/// Members are visited in the order of declaration and are named like their fields, as
/// PyTorch's `register_module` does. An enum whose variants hold one module each stands for the
/// module of the variant at hand.
///
/// | attribute | on | meaning |
/// | --- | --- | --- |
/// | `#[module(class = "GPT2Block")]` | struct | the class name, where it is not the struct's name |
/// | `#[module(extra_repr = Self::shown)]` | struct | a `fn(&Self) -> String` for the parentheses when the module is shown |
/// | `#[module(hidden_sizes = Self::widths)]` | struct | a `fn(&Self) -> Vec<u64>` for the widths of the hidden states |
/// | `#[module(name = "LayerNorm")]` | field | the member's name, where Rust cannot spell it |
/// | `#[module(skip)]` | field | plain data, no member |
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    expand(parse_macro_input!(input as DeriveInput), module::expand)
}

/// Implements `accelerate::tree::Tree`: every field is walked in the order of declaration.
///
/// Works for structs (named, tuple and unit) and enums. A field marked `#[tree(skip)]` is left
/// out of the walk; all others need to be trees themselves.
#[proc_macro_derive(Tree, attributes(tree))]
pub fn derive_tree(input: TokenStream) -> TokenStream {
    expand(parse_macro_input!(input as DeriveInput), tree::expand)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "both ends of a macro own their tokens"
)]
fn expand(
    input: DeriveInput,
    expand: fn(&DeriveInput) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    expand(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
