//! Enums whose variants have a word for files, logs and metrics.

/// Declares an enum with its words: all variants in `ALL`, in their order, and the word of each by `text`.
#[macro_export]
macro_rules! named {
    ($($(#[$about:meta])* pub enum $name:ident { $($(#[$of:meta])* $variant:ident = $word:literal,)+ })+) => { $(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$of])* $variant,)+ }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            pub const WORDS: &[&str] = &[$($word,)+];

            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    )+ };
}
