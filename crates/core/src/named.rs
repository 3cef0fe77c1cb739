//! Enums whose variants have names.

/// Defines an enum with the names of its variants: a new variant cannot be missing in `ALL` or lack a name.
#[macro_export]
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$note:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $name {
            $($(#[$note])* $variant,)+
        }

        impl $name {
            /// Every variant, in the order of the definition.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The name of the variant.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// The variant of this name.
            #[must_use]
            pub fn named(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|variant| variant.name() == text)
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
