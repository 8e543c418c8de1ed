//! `#[derive(Tree)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Fields, Ident, Type, parse_quote};

use crate::generics::bounded;
use crate::options::FieldOptions;

/// One shape the value can have: a struct has one, an enum one per variant.
struct Shape<'a> {
    /// The pattern that binds every walked field.
    pattern: TokenStream,
    /// The bindings, with the type of each.
    walked: Vec<(Ident, &'a Type)>,
}

/// The implementation of `Tree`, and of being its own argument, for one type.
pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let shapes = shapes(input)?;
    let types = shapes
        .iter()
        .flat_map(|shape| shape.walked.iter().map(|(_, ty)| *ty));
    let generics = bounded(
        &input.generics,
        types,
        &parse_quote!(::accelerate::tree::Tree),
    );
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (_, type_generics, _) = input.generics.split_for_impl();
    let ident = &input.ident;
    let by_ref = arms(&shapes, &quote!(visit));
    let by_mut = arms(&shapes, &quote!(visit_mut));
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::accelerate::tree::Tree for #ident #type_generics #where_clause {
            #[allow(unused_variables)]
            fn visit(
                &self,
                leaf: &mut dyn ::core::ops::FnMut(&::accelerate::tch::Tensor) -> ::accelerate::Result<()>,
            ) -> ::accelerate::Result<()> {
                match self { #by_ref }
                ::core::result::Result::Ok(())
            }

            #[allow(unused_variables)]
            fn visit_mut(
                &mut self,
                leaf: &mut dyn ::core::ops::FnMut(&mut ::accelerate::tch::Tensor) -> ::accelerate::Result<()>,
            ) -> ::accelerate::Result<()> {
                match self { #by_mut }
                ::core::result::Result::Ok(())
            }
        }

        #[automatically_derived]
        impl #impl_generics ::accelerate::nn::IntoInput<#ident #type_generics> for #ident #type_generics
        #where_clause
        {
            fn into_input(self) -> Self {
                self
            }
        }
    })
}

fn shapes(input: &DeriveInput) -> syn::Result<Vec<Shape<'_>>> {
    match &input.data {
        Data::Struct(data) => Ok(vec![shape(&quote!(Self), &data.fields)?]),
        Data::Enum(data) => data
            .variants
            .iter()
            .map(|variant| {
                let ident = &variant.ident;
                shape(&quote!(Self::#ident), &variant.fields)
            })
            .collect(),
        Data::Union(_) => Err(syn::Error::new(
            input.ident.span(),
            "a union cannot be a tree",
        )),
    }
}

fn shape<'a>(path: &TokenStream, fields: &'a Fields) -> syn::Result<Shape<'a>> {
    let mut walked = Vec::new();
    let mut bindings = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        if FieldOptions::read_tree(field)?.skip {
            continue;
        }
        let member = match &field.ident {
            Some(ident) => quote!(#ident),
            None => {
                let index = syn::Index::from(index);
                quote!(#index)
            }
        };
        let binding = format_ident!("field_{index}");
        bindings.push(quote!(#member: #binding));
        walked.push((binding, &field.ty));
    }
    Ok(Shape {
        pattern: quote!(#path { #(#bindings,)* .. }),
        walked,
    })
}

fn arms(shapes: &[Shape<'_>], method: &TokenStream) -> TokenStream {
    let arms = shapes.iter().map(|Shape { pattern, walked }| {
        let visits = walked.iter().map(|(binding, ty)| {
            quote_spanned!(ty.span()=> <#ty as ::accelerate::tree::Tree>::#method(#binding, leaf)?;)
        });
        quote!(#pattern => { #(#visits)* })
    });
    // A type without values has nothing to match; a reference to it still needs an arm.
    if shapes.is_empty() {
        quote!(_ => {})
    } else {
        quote!(#(#arms)*)
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "`parse_quote!` makes values")]
mod tests {
    use super::*;

    fn expanded(input: DeriveInput) -> String {
        expand(&input).unwrap().to_string()
    }

    #[test]
    fn skipped_fields_are_not_walked() {
        let code = expanded(parse_quote! {
            struct Batch { ids: Tensor, #[tree(skip)] path: PathBuf }
        });
        assert!(code.contains("Tensor as"), "{code}");
        assert!(!code.contains("PathBuf"), "{code}");
    }

    #[test]
    fn unknown_options_are_told() {
        let input = parse_quote! { struct Batch { #[tree(name = "x")] ids: Tensor } };
        assert_eq!(
            expand(&input).unwrap_err().to_string(),
            "unknown option, expected `skip`"
        );
    }

    #[test]
    fn generic_fields_are_bounded() {
        let code = expanded(parse_quote! { struct Pair<T>(T, Tensor); });
        assert!(
            code.contains("where T : :: accelerate :: tree :: Tree"),
            "{code}"
        );
    }
}
