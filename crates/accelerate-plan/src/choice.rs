//! Enums whose values have names.

/// Defines enums with one name per value, and further spellings that are read.
macro_rules! named {
    ($(
        $(#[$doc:meta])*
        $name:ident {
            $(#[$first_doc:meta])*
            $first:ident = $first_text:literal $(| $first_alias:literal)*,
            $(
                $(#[$value_doc:meta])*
                $value:ident = $text:literal $(| $alias:literal)*,
            )*
        }
    )+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[$first_doc])*
            $first,
            $(
                $(#[$value_doc])*
                $value,
            )*
        }

        impl $name {
            /// All values, in the order in which messages list them.
            pub const ALL: &'static [Self] = &[Self::$first, $(Self::$value),*];

            /// The names of all values.
            pub const NAMES: &'static [&'static str] = &[$first_text, $($text),*];

            /// The name of the value.
            pub const fn name(self) -> &'static str {
                match self {
                    Self::$first => $first_text,
                    $(Self::$value => $text,)*
                }
            }

            /// The value of a name, in any case; other spellings that people used are understood.
            pub fn from_name(text: &str) -> Option<Self> {
                let is = |name: &str| name.eq_ignore_ascii_case(text.trim());
                if is($first_text) $(|| is($first_alias))* {
                    return Some(Self::$first);
                }
                $(
                    if is($text) $(|| is($alias))* {
                        return Some(Self::$value);
                    }
                )*
                None
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    )+};
}

/// Defines such enums for settings: their names are those used in flags, files and variables, and
/// they have a text format.
macro_rules! choices {
    ($(
        $(#[$doc:meta])*
        $name:ident ($kind:literal) {
            $(#[$first_doc:meta])*
            $first:ident = $first_text:literal $(| $first_alias:literal)*,
            $(
                $(#[$value_doc:meta])*
                $value:ident = $text:literal $(| $alias:literal)*,
            )*
        }
    )+) => {
        $crate::choice::named! {$(
            $(#[$doc])*
            $name {
                $(#[$first_doc])*
                $first = $first_text $(| $first_alias)*,
                $(
                    $(#[$value_doc])*
                    $value = $text $(| $alias)*,
                )*
            }
        )+}

        $(
            impl $name {
                pub(crate) const FORMAT: $crate::env::Format<Self> = $crate::env::Format {
                    kind: $kind,
                    expected: concat!("one of `", $first_text, "`" $(, ", `", $text, "`")*),
                    choices: Self::NAMES,
                    parse: |text| Self::from_name(text).ok_or($crate::env::Refused::Invalid),
                    render: |value| value.name().to_owned(),
                };
            }

            impl $crate::settings::Scalar for $name {
                fn to_value(&self) -> $crate::config::Value {
                    self.name().into()
                }
            }
        )+
    };
}

pub(crate) use choices;
pub(crate) use named;
