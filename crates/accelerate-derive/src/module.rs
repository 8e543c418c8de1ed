//! `#[derive(Module)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, DataEnum, DeriveInput, Field, Fields, FieldsNamed, Type, parse_quote};

use crate::generics::{bounded, without_borrows};
use crate::options::{FieldOptions, TypeOptions};

/// The implementation of `Module` for one type.
pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let options = TypeOptions::read(&input.attrs)?;
    match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => expand_struct(input, &options, fields),
            _ => Err(syn::Error::new(
                input.ident.span(),
                "a module needs named fields: PyTorch names every member",
            )),
        },
        Data::Enum(data) => match (&options.class, &options.extra_repr, &options.hidden_sizes) {
            (Some(class), ..) => Err(syn::Error::new(
                class.span(),
                "an enum has the class of the module it holds",
            )),
            (None, Some(function), _) => Err(syn::Error::new(
                function.span(),
                "an enum is shown as the module it holds",
            )),
            (None, None, Some(function)) => Err(syn::Error::new(
                function.span(),
                "an enum is as wide as the module it holds",
            )),
            (None, None, None) => expand_enum(input, data),
        },
        Data::Union(_) => Err(syn::Error::new(
            input.ident.span(),
            "a union cannot be a module",
        )),
    }
}

struct Member<'a> {
    field: &'a Field,
    name: String,
}

/// The fields of a struct, sorted by what they are.
struct Members<'a> {
    members: Vec<Member<'a>>,
    state: &'a Field,
}

impl<'a> Members<'a> {
    fn read(input: &'a DeriveInput, fields: &'a FieldsNamed) -> syn::Result<Self> {
        let mut members: Vec<Member<'a>> = Vec::new();
        let mut state: Option<&'a Field> = None;
        for field in &fields.named {
            let options = FieldOptions::read_module(field)?;
            if options.skip {
                continue;
            }
            if is_state(&field.ty) {
                if state.replace(field).is_some() {
                    let message = "a second `ModuleState`; a module has exactly one";
                    return Err(syn::Error::new(field.span(), message));
                }
                continue;
            }
            let name = options.member_name(field);
            if members.iter().any(|earlier| earlier.name == name) {
                let message = format!("a second member named `{name}`");
                return Err(syn::Error::new(field.span(), message));
            }
            members.push(Member { field, name });
        }
        let missing = "no `ModuleState`: a module keeps its mode and hooks in one field of this type, \
                       such as `state: accelerate::nn::ModuleState`";
        let state = state.ok_or_else(|| syn::Error::new(input.ident.span(), missing))?;
        Ok(Self { members, state })
    }
}

fn is_state(ty: &Type) -> bool {
    let Type::Path(path) = ty else { return false };
    path.path
        .segments
        .last()
        .is_some_and(|segment| segment.ident == "ModuleState")
}

fn expand_struct(
    input: &DeriveInput,
    options: &TypeOptions,
    fields: &FieldsNamed,
) -> syn::Result<TokenStream> {
    let Members { members, state } = Members::read(input, fields)?;
    let types = members.iter().map(|member| &member.field.ty);
    let field = parse_quote!(::accelerate::nn::ModuleField);
    let generics = without_borrows(bounded(&input.generics, types, &field));
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (_, type_generics, _) = input.generics.split_for_impl();
    let ident = &input.ident;
    let class = options
        .class
        .as_ref()
        .map_or_else(|| ident.to_string(), syn::LitStr::value);
    let extra_repr = options.extra_repr.as_ref().map(|function| {
        quote_spanned! {function.span()=>
            fn extra_repr(&self) -> ::std::string::String {
                #function(self)
            }
        }
    });
    let hidden_sizes = options.hidden_sizes.as_ref().map(|function| {
        quote_spanned! {function.span()=>
            fn hidden_sizes(&self) -> ::std::vec::Vec<u64> {
                #function(self)
            }
        }
    });
    let state = &state.ident;
    let by_ref = members
        .iter()
        .map(|member| visit(member, &quote!(visit), &quote!(&self)));
    let by_mut = members
        .iter()
        .map(|member| visit(member, &quote!(visit_mut), &quote!(&mut self)));
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::accelerate::nn::Module for #ident #type_generics #where_clause {
            fn class_name(&self) -> &'static str {
                #class
            }

            fn state(&self) -> ::core::option::Option<&::accelerate::nn::ModuleState> {
                ::core::option::Option::Some(&self.#state)
            }

            #extra_repr

            #hidden_sizes

            #[allow(unused_variables)]
            fn members<'member>(
                &'member self,
                visit: &mut dyn ::core::ops::FnMut(&str, ::accelerate::nn::Member<'member>),
            ) {
                #(#by_ref)*
            }

            #[allow(unused_variables)]
            fn members_mut<'member>(
                &'member mut self,
                visit: &mut dyn ::core::ops::FnMut(&str, ::accelerate::nn::MemberMut<'member>),
            ) {
                #(#by_mut)*
            }
        }
    })
}

/// One call that places a field, with the span of its type, so that errors point there.
fn visit(member: &Member<'_>, method: &TokenStream, access: &TokenStream) -> TokenStream {
    let Member { field, name } = member;
    let (ident, ty) = (&field.ident, &field.ty);
    quote_spanned! {ty.span()=>
        <#ty as ::accelerate::nn::ModuleField>::#method(#access.#ident, #name, visit);
    }
}

fn expand_enum(input: &DeriveInput, data: &DataEnum) -> syn::Result<TokenStream> {
    let mut patterns = Vec::new();
    let mut types = Vec::new();
    for variant in &data.variants {
        let ident = &variant.ident;
        let mut fields = variant.fields.iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            let message = "a variant of a module holds exactly one module";
            return Err(syn::Error::new(variant.span(), message));
        };
        types.push(&field.ty);
        patterns.push(match &field.ident {
            Some(name) => quote!(Self::#ident { #name: module }),
            None => quote!(Self::#ident(module)),
        });
    }
    if patterns.is_empty() {
        let message = "an enum without variants cannot be a module";
        return Err(syn::Error::new(input.ident.span(), message));
    }
    let bound = parse_quote!(::accelerate::nn::Module);
    let generics = without_borrows(bounded(&input.generics, types.iter().copied(), &bound));
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (_, type_generics, _) = input.generics.split_for_impl();
    let ident = &input.ident;
    let delegate = |call: &dyn Fn(&Type) -> TokenStream| {
        let arms = patterns.iter().zip(&types).map(|(pattern, ty)| {
            let call = call(ty);
            quote!(#pattern => #call)
        });
        quote!(match self { #(#arms,)* })
    };
    let method = |name: TokenStream, arguments: TokenStream| {
        delegate(
            &|ty| quote_spanned!(ty.span()=> <#ty as ::accelerate::nn::Module>::#name(module #arguments)),
        )
    };
    let class_name = method(quote!(class_name), quote!());
    let state = method(quote!(state), quote!());
    let members = method(quote!(members), quote!(, visit));
    let members_mut = method(quote!(members_mut), quote!(, visit));
    let extra_repr = method(quote!(extra_repr), quote!());
    let hidden_sizes = method(quote!(hidden_sizes), quote!());
    let inner = method(quote!(inner), quote!());
    let batch_norm_sync = method(quote!(batch_norm_sync), quote!());
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::accelerate::nn::Module for #ident #type_generics #where_clause {
            fn class_name(&self) -> &'static str {
                #class_name
            }

            fn state(&self) -> ::core::option::Option<&::accelerate::nn::ModuleState> {
                #state
            }

            fn members<'member>(
                &'member self,
                visit: &mut dyn ::core::ops::FnMut(&str, ::accelerate::nn::Member<'member>),
            ) {
                #members
            }

            fn members_mut<'member>(
                &'member mut self,
                visit: &mut dyn ::core::ops::FnMut(&str, ::accelerate::nn::MemberMut<'member>),
            ) {
                #members_mut
            }

            fn extra_repr(&self) -> ::std::string::String {
                #extra_repr
            }

            fn hidden_sizes(&self) -> ::std::vec::Vec<u64> {
                #hidden_sizes
            }

            fn inner(&self) -> &dyn ::accelerate::nn::Module {
                #inner
            }

            fn batch_norm_sync(
                &self,
            ) -> ::core::option::Option<&::accelerate::nn::BatchNormSync> {
                #batch_norm_sync
            }
        }
    })
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "`parse_quote!` makes values")]
mod tests {
    use super::*;

    fn error(input: DeriveInput) -> String {
        expand(&input).unwrap_err().to_string()
    }

    fn expanded(input: DeriveInput) -> String {
        expand(&input).unwrap().to_string()
    }

    #[test]
    fn a_module_has_exactly_one_state() {
        let none = error(parse_quote! { struct Layer { weight: Parameter } });
        assert!(none.starts_with("no `ModuleState`"), "{none}");
        let two = error(parse_quote! {
            struct Layer { a: ModuleState, b: nn::ModuleState }
        });
        assert!(two.starts_with("a second `ModuleState`"), "{two}");
    }

    #[test]
    fn members_keep_order_and_names() {
        let code = expanded(parse_quote! {
            struct Block {
                #[module(name = "self")]
                self_: Attention,
                r#type: Linear,
                #[module(skip)]
                heads: i64,
                state: ModuleState,
            }
        });
        let at = |text: &str| {
            code.find(text)
                .unwrap_or_else(|| panic!("`{text}` not in {code}"))
        };
        assert!(at("\"self\"") < at("\"type\""));
        assert!(at("\"Block\"") < at("\"self\""));
        assert!(!code.contains("heads"));
    }

    #[test]
    fn a_class_name_can_be_given() {
        let code = expanded(parse_quote! {
            #[module(class = "GPT2Block")]
            struct Gpt2Block { state: ModuleState }
        });
        assert!(code.contains("\"GPT2Block\""), "{code}");
    }

    #[test]
    fn every_field_is_placed_whatever_its_type() {
        // Placing is a call of the trait, so a type without the trait stops the compiler there.
        let code = expanded(parse_quote! {
            struct Layer { scale: f64, weight: tch::Tensor, inner: Vec<Linear>, state: ModuleState }
        });
        for ty in ["f64", "tch :: Tensor", "Vec < Linear >"] {
            for method in ["visit", "visit_mut"] {
                let call = format!("< {ty} as :: accelerate :: nn :: ModuleField > :: {method}");
                assert!(code.contains(&call), "`{call}` not in {code}");
            }
        }
    }

    #[test]
    fn what_is_shown_can_be_given() {
        let code = expanded(parse_quote! {
            #[module(extra_repr = Self::shown)]
            struct Layer { state: ModuleState }
        });
        assert!(code.contains("Self :: shown (self)"), "{code}");
        let message = error(parse_quote! {
            #[module(extra_repr = shown)]
            enum Layer { A(Linear) }
        });
        assert_eq!(message, "an enum is shown as the module it holds");
    }

    #[test]
    fn widths_can_be_given_and_an_enum_passes_them_on() {
        let code = expanded(parse_quote! {
            #[module(hidden_sizes = crate::widths)]
            struct Model { state: ModuleState }
        });
        assert!(code.contains("crate :: widths (self)"), "{code}");
        let code = expanded(parse_quote! { enum Either { A(Linear), B(Model) } });
        let call = "< Model as :: accelerate :: nn :: Module > :: hidden_sizes (module)";
        assert!(code.contains(call), "{code}");
        let message = error(parse_quote! {
            #[module(hidden_sizes = widths)]
            enum Either { A(Linear) }
        });
        assert_eq!(message, "an enum is as wide as the module it holds");
    }

    #[test]
    fn wrong_options_are_told() {
        let unknown = error(parse_quote! {
            struct Layer { #[module(nmae = "x")] a: Linear, state: ModuleState }
        });
        assert_eq!(
            unknown,
            "unknown option, expected `name = \"..\"` or `skip`"
        );
        let dotted = error(parse_quote! {
            struct Layer { #[module(name = "a.b")] a: Linear, state: ModuleState }
        });
        assert!(dotted.contains("no dot"), "{dotted}");
        let both = error(parse_quote! {
            struct Layer { #[module(name = "b", skip)] a: Linear, state: ModuleState }
        });
        assert!(both.contains("no member"), "{both}");
        let class =
            error(parse_quote! { #[module(klass = "X")] struct Layer { state: ModuleState } });
        assert!(
            class.starts_with("unknown option, expected `class = \"..\"`, `extra_repr"),
            "{class}"
        );
    }

    #[test]
    fn two_members_of_one_name_are_refused() {
        let message = error(parse_quote! {
            struct Layer { a: Linear, #[module(name = "a")] b: Linear, state: ModuleState }
        });
        assert_eq!(message, "a second member named `a`");
    }

    #[test]
    fn what_is_no_module_is_refused() {
        assert!(error(parse_quote! { struct Layer(Linear); }).contains("named fields"));
        assert!(error(parse_quote! { enum Layer { A(Linear), B } }).contains("exactly one module"));
        assert!(error(parse_quote! { enum Layer {} }).contains("without variants"));
        assert!(error(parse_quote! { union Layer { a: u8 } }).contains("union"));
    }

    #[test]
    fn generic_fields_are_bounded_and_others_are_not() {
        let code = expanded(parse_quote! {
            struct Wrapper<N: Debug> { inner: Vec<N>, plain: Linear, state: ModuleState }
        });
        assert!(
            code.contains("Vec < N > : :: accelerate :: nn :: ModuleField"),
            "{code}"
        );
        assert!(!code.contains("Linear : "), "{code}");
    }
}
