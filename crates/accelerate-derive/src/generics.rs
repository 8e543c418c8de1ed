//! Bounds for generic types: asked of each field, not of each parameter.

use quote::ToTokens;
use syn::visit::Visit;
use syn::{Generics, Ident, Path, Type, parse_quote};

/// The generics of a type, with `field: bound` for every field whose type names a type parameter.
///
/// A bound on the field is what the generated code needs: `Vec<T>` may have the trait where `T`
/// has not.
pub(crate) fn bounded<'a>(
    generics: &Generics,
    fields: impl Iterator<Item = &'a Type>,
    bound: &Path,
) -> Generics {
    let mut bounded = generics.clone();
    let parameters: Vec<&Ident> = generics
        .type_params()
        .map(|parameter| &parameter.ident)
        .collect();
    for field in fields.filter(|field| names_one_of(field, &parameters)) {
        bounded
            .make_where_clause()
            .predicates
            .push(parse_quote!(#field: #bound));
    }
    bounded
}

/// With every type parameter bounded to types that borrow nothing, as modules are.
pub(crate) fn without_borrows(mut generics: Generics) -> Generics {
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!('static));
    }
    generics
}

fn names_one_of(field: &Type, parameters: &[&Ident]) -> bool {
    let mut search = Search {
        parameters,
        found: false,
    };
    search.visit_type(field);
    search.found
}

struct Search<'a> {
    parameters: &'a [&'a Ident],
    found: bool,
}

impl<'ast> Visit<'ast> for Search<'_> {
    fn visit_path(&mut self, path: &'ast Path) {
        // `T` itself and `T::Item` begin with the parameter.
        let first = path.segments.first().map(|segment| &segment.ident);
        self.found |= first.is_some_and(|first| self.parameters.contains(&first));
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, macro_: &'ast syn::Macro) {
        // The tokens of a macro cannot be looked into; a bound too many does no harm.
        self.found |= !macro_.tokens.to_token_stream().is_empty();
    }
}
