//! Enums that are numbers on disk: names in code, unknown numbers kept.
//!
//! Pure: no clock, no I/O, no task.

/// Defines enums over a number type, each with `Stranger` for numbers of a newer or forged file.
///
/// Zero is the default, as it is in Go; where zero has no name, it is a stranger.
macro_rules! numbers {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $int:ident { $( $(#[doc = $vdoc:literal])* $variant:ident = $number:literal ),+ $(,)? }
    )+) => { $(
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[doc = $vdoc])* $variant, )+
            /// A number from a newer or forged file, kept as it is; never one that has a name.
            Stranger($int),
        }

        impl $name {
            /// Named variants, in the order of their numbers.
            pub const NAMED: &'static [Self] = &[$(Self::$variant),+];

            pub const fn number(self) -> $int {
                match self {
                    $(Self::$variant => $number,)+
                    Self::Stranger(number) => number,
                }
            }
        }

        impl From<$int> for $name {
            fn from(number: $int) -> Self {
                match number {
                    $($number => Self::$variant,)+
                    number => Self::Stranger(number),
                }
            }
        }

        impl From<$name> for $int {
            fn from(value: $name) -> Self {
                value.number()
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.number().serialize(serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$int as serde::Deserialize>::deserialize(deserializer).map(Self::from)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::from(0)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let names: Vec<String> =
                    Self::NAMED.iter().map(|it| format!("{} {it:?}", it.number())).collect();
                schemars::json_schema!({
                    "type": "integer",
                    "minimum": $int::MIN,
                    "maximum": $int::MAX,
                    "description": format!("{}\n\n{}", concat!($($doc),+).trim(), names.join(", "))
                })
            }
        }
    )+ };
}

pub(crate) use numbers;
