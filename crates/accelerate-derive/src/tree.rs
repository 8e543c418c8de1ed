//! `#[derive(Tree)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Fields, Ident, Type, parse_quote};

use crate::generics::bounded;
use crate::options::FieldOptions;

/// One shape the value can have: a struct has one, an enum one per variant.
struct Shape<'a> {
    /// The pattern that binds every walked field.
    pattern: TokenStream,
    walked: Vec<Walked<'a>>,
    /// The path of the struct or variant and the members' names, to put one together.
    path: TokenStream,
    members: Vec<TokenStream>,
    /// Whether every field is walked, so that the value can be put together from them.
    whole: bool,
}

/// One field that is walked.
struct Walked<'a> {
    /// What the pattern binds it to.
    binding: Ident,
    ty: &'a Type,
    /// The way from the value to the field, as an expression over `path`.
    step: TokenStream,
}

/// The implementation of `Tree`, and of being its own argument, for one type.
pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let shapes = shapes(input)?;
    let types = shapes
        .iter()
        .flat_map(|shape| shape.walked.iter().map(|field| field.ty));
    let generics = bounded(
        &input.generics,
        types,
        &parse_quote!(::accelerate::tree::Tree),
    );
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (_, type_generics, _) = input.generics.split_for_impl();
    let ident = &input.ident;
    let by_ref = arms(&shapes, &quote!(visit), Paths::Without);
    let by_mut = arms(&shapes, &quote!(visit_mut), Paths::Without);
    let paths_by_ref = arms(&shapes, &quote!(visit_paths), Paths::With);
    let paths_by_mut = arms(&shapes, &quote!(visit_paths_mut), Paths::With);
    let sent = packing(&shapes);
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

            #[allow(unused_variables)]
            fn visit_paths(
                &self,
                path: &::accelerate::tree::TreePath<'_>,
                leaf: &mut dyn ::core::ops::FnMut(
                    &::accelerate::tree::TreePath<'_>,
                    &::accelerate::tch::Tensor,
                ) -> ::accelerate::Result<()>,
            ) -> ::accelerate::Result<()> {
                match self { #paths_by_ref }
                ::core::result::Result::Ok(())
            }

            #[allow(unused_variables)]
            fn visit_paths_mut(
                &mut self,
                path: &::accelerate::tree::TreePath<'_>,
                leaf: &mut dyn ::core::ops::FnMut(
                    &::accelerate::tree::TreePath<'_>,
                    &mut ::accelerate::tch::Tensor,
                ) -> ::accelerate::Result<()>,
            ) -> ::accelerate::Result<()> {
                match self { #paths_by_mut }
                ::core::result::Result::Ok(())
            }

            #sent
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
        Data::Struct(data) => Ok(vec![shape(&quote!(Self), &quote!(path), &data.fields)?]),
        Data::Enum(data) => data
            .variants
            .iter()
            .map(|variant| {
                let ident = &variant.ident;
                let name = ident.unraw().to_string();
                shape(
                    &quote!(Self::#ident),
                    &quote!(path.field(#name)),
                    &variant.fields,
                )
            })
            .collect(),
        Data::Union(_) => Err(syn::Error::new(
            input.ident.span(),
            "a union cannot be a tree",
        )),
    }
}

fn shape<'a>(
    pattern: &TokenStream,
    inside: &TokenStream,
    fields: &'a Fields,
) -> syn::Result<Shape<'a>> {
    let mut walked = Vec::new();
    let mut bindings = Vec::new();
    let mut members = Vec::new();
    let mut whole = true;
    for (index, field) in fields.iter().enumerate() {
        if FieldOptions::read_tree(field)?.skip {
            whole = false;
            continue;
        }
        let (member, step) = match &field.ident {
            Some(ident) => {
                let name = ident.unraw().to_string();
                (quote!(#ident), quote!(#inside.field(#name)))
            }
            None => {
                let number = syn::Index::from(index);
                (quote!(#number), quote!(#inside.index(#index)))
            }
        };
        let binding = format_ident!("field_{index}");
        bindings.push(quote!(#member: #binding));
        members.push(member);
        let ty = &field.ty;
        walked.push(Walked { binding, ty, step });
    }
    Ok(Shape {
        pattern: quote!(#pattern { #(#bindings,)* .. }),
        walked,
        path: pattern.clone(),
        members,
        whole,
    })
}

/// Whether a method is told the way to each tensor.
#[derive(Clone, Copy)]
enum Paths {
    With,
    Without,
}

fn arms(shapes: &[Shape<'_>], method: &TokenStream, paths: Paths) -> TokenStream {
    let arms = shapes.iter().map(
        |Shape {
             pattern, walked, ..
         }| {
            let visits = walked.iter().map(|Walked { binding, ty, step }| {
                let path = match paths {
                    Paths::With => quote!(&#step,),
                    Paths::Without => quote!(),
                };
                quote_spanned! {ty.span()=>
                    <#ty as ::accelerate::tree::Tree>::#method(#binding, #path leaf)?;
                }
            });
            quote!(#pattern => { #(#visits)* })
        },
    );
    // A type without values has nothing to match; a reference to it still needs an arm.
    if shapes.is_empty() {
        quote!(_ => {})
    } else {
        quote!(#(#arms)*)
    }
}

/// `pack` and `unpack`; nothing, so that the trait's own refuse, where fields are skipped.
fn packing(shapes: &[Shape<'_>]) -> TokenStream {
    if shapes.is_empty() || shapes.iter().any(|shape| !shape.whole) {
        return TokenStream::new();
    }
    let packs = shapes.iter().enumerate().map(|(number, shape)| {
        let Shape {
            pattern, walked, ..
        } = shape;
        let packs = walked.iter().map(|Walked { binding, ty, .. }| {
            quote_spanned!(ty.span()=> <#ty as ::accelerate::tree::Tree>::pack(#binding, parcel)?;)
        });
        quote!(#pattern => {
            parcel.push(::accelerate::tree::Part::Count(#number));
            #(#packs)*
        })
    });
    let unpacks = shapes.iter().enumerate().map(|(number, shape)| {
        let (path, members) = (&shape.path, &shape.members);
        let values = shape.walked.iter().map(|Walked { ty, .. }| {
            quote_spanned!(ty.span()=> <#ty as ::accelerate::tree::Tree>::unpack(parcel)?)
        });
        quote!(#number => ::core::result::Result::Ok(#path { #(#members: #values,)* }),)
    });
    quote! {
        fn pack(&self, parcel: &mut ::accelerate::tree::Parcel) -> ::accelerate::Result<()> {
            match self { #(#packs)* }
            ::core::result::Result::Ok(())
        }

        fn unpack(parcel: &mut ::accelerate::tree::Parcel) -> ::accelerate::Result<Self> {
            match parcel.count()? {
                #(#unpacks)*
                other => ::core::result::Result::Err(
                    ::accelerate::tree::Parcel::unknown_variant(other),
                ),
            }
        }
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
        assert!(!code.contains("unpack"), "{code}");
    }

    #[test]
    fn a_whole_type_can_be_put_together() {
        let code = expanded(parse_quote! { enum Answer { No, Yes(Tensor), Both { a: Tensor } } });
        assert!(code.contains("2usize => "), "{code}");
        assert!(code.contains("Self :: No { }"), "{code}");
        assert!(code.contains("a : < Tensor as"), "{code}");
    }

    #[test]
    fn tensors_are_named_by_variant_and_field() {
        let code = expanded(parse_quote! {
            enum Output { Pair { r#type: Tensor }, Both(Tensor, Tensor) }
        });
        assert!(
            code.contains(r#"path . field ("Pair") . field ("type")"#),
            "{code}"
        );
        assert!(
            code.contains(r#"path . field ("Both") . index (1usize)"#),
            "{code}"
        );
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
