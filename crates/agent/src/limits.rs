//! How an agent declares its waits: each is one row with its default, its name in a limits file and its method.

use std::time::Duration;

/// A pause that is `first` after the first of `failures` and doubles with each further one, up to `most`.
pub fn doubled(first: Duration, most: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.saturating_sub(1).min(31)).min(most)
}

/// Declares a struct of settings. `waits` are milliseconds under the second name, and a [`std::time::Duration`] by the
/// method of the first; `others` are members of any type.
#[macro_export]
macro_rules! limits {
    (
        $(#[$about:meta])*
        pub struct $name:ident;
        waits { $($(#[$wait_about:meta])* $wait:ident, $member_ms:ident = $default_ms:expr;)* }
        others { $($(#[$member_about:meta])* $member:ident: $kind:ty = $default:expr;)* }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$wait_about])* pub $member_ms: u64,)*
            $($(#[$member_about])* pub $member: $kind,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($member_ms: $default_ms,)* $($member: $default,)* }
            }
        }

        impl $name {
            $(pub(crate) const fn $wait(&self) -> ::std::time::Duration {
                ::std::time::Duration::from_millis(self.$member_ms)
            })*
        }
    };
}
