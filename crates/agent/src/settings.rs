//! The config properties that these agents use, checked, and the macro by which an agent declares its own
//! settings, one row each with default, name in the limits file and method. Source: lf-edge/eve
//! pkg/pillar/types/global.go.
//!
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::{Inserted as _, LiteMap};
use topics::{ConfigItemValue, ConfigItemValueMap, by_length};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Hours,
    Seconds,
    Count,
}

/// A numeric property with the controller's name and range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numeric {
    pub name: &'static str,
    pub default: u32,
    pub min: u32,
    pub max: u32,
    pub unit: Unit,
}

const fn numeric(name: &'static str, default: u32, min: u32, max: u32, unit: Unit) -> Numeric {
    Numeric { name, default, min, max, unit }
}

pub const DRAIN_TIMEOUT: Numeric = numeric("kubernetes.drain.timeout", 24, 1, u32::MAX, Unit::Hours);
/// How long the Kubernetes API may be unreachable before the drain is skipped.
pub const DRAIN_SKIP: Numeric =
    numeric("drain.skip.k8sapinotreachable.timeout", 300, 1, u32::MAX, Unit::Seconds);
/// Multiple of the config interval in which a drain of the whole cluster shows.
pub const DRAIN_ALL_NODES: Numeric =
    numeric("kubernetes.drain.allnodes.config.multiple", 2, 1, 1000, Unit::Count);
pub const CONFIG_INTERVAL: Numeric = numeric("timer.config.interval", 60, 5, 86_400, Unit::Seconds);
pub const TEST_BASE_IMAGE: Numeric = numeric("timer.test.baseimage.update", 600, 30, 3600, Unit::Seconds);
/// Time that a new image may be without controller before it falls back.
pub const UPDATE_FALLBACK: Numeric =
    numeric("timer.update.fallback.no.network", 300, 60, u32::MAX, Unit::Seconds);
/// Time that the device may be without controller before it restarts.
pub const REBOOT_NO_NETWORK: Numeric =
    numeric("timer.reboot.no.network", 604_800, 120, u32::MAX, Unit::Seconds);
pub const VAULT_CUTOFF: Numeric = numeric("timer.vault.ready.cutoff", 300, 60, u32::MAX, Unit::Seconds);
/// A change forces a fallback to the other partition.
pub const FORCE_FALLBACK: Numeric = numeric("force.fallback.counter", 0, 0, u32::MAX, Unit::Count);

/// GiB of each disk of the node that Longhorn leaves to others; the maximum means no change.
pub const DISK_RESERVE: Numeric =
    numeric("storage.longhorn.disk.reserved.gigabytes", 2, 0, 1_048_576, Unit::Count);

/// Every numeric property that an agent here reads.
pub const NUMERIC: [Numeric; 10] = [
    DRAIN_TIMEOUT,
    DRAIN_SKIP,
    DRAIN_ALL_NODES,
    CONFIG_INTERVAL,
    TEST_BASE_IMAGE,
    UPDATE_FALLBACK,
    REBOOT_NO_NETWORK,
    VAULT_CUTOFF,
    FORCE_FALLBACK,
    DISK_RESERVE,
];

/// `true` where pods that declare responders for their eviction (KEP-4563, alpha in Kubernetes 1.37) are left to those first.
pub const EVICTION_REQUESTS: &str = "kubernetes.drain.eviction.requests";
/// What Longhorn does about pods of a silent node.
pub const NODE_DOWN: &str = "storage.longhorn.node-down-pod-deletion-policy";
/// `true` where a NodeMaintenance of a node is a request for its drain.
pub const NODE_MAINTENANCE: &str = "kubernetes.drain.node.maintenance";
/// Properties that the reference does not have, texts: zedagent publishes those that are set.
pub const OWN: [&str; 3] = [EVICTION_REQUESTS, NODE_MAINTENANCE, NODE_DOWN];

/// One of them that is `true` or `false`, which it is where it is not set. Errors: a line.
pub fn is_on(map: &ConfigItemValueMap, name: &str) -> Result<bool, String> {
    let set = map.global_settings.as_ref().and_then(|all| all.get(name));
    let set = set.map_or("false", |it| it.str_value.trim());
    let found =
        |_| format!("{name}: found {}, expected true or false; what is in force stays", by_length(set));
    set.parse().map_err(found)
}

/// A missing value is the default; a bad one leaves the former value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    values: LiteMap<&'static str, u32>,
}

impl Default for Properties {
    fn default() -> Self {
        Self { values: NUMERIC.iter().map(|it| (it.name, it.default)).into_lite() }
    }
}

impl Properties {
    /// Reads the map that zedagent publishes. Returns the properties now in force and a line for each refused
    /// value: its name, what was found and what is kept.
    pub fn from_map(map: &ConfigItemValueMap, last: &Self) -> (Self, Vec<String>) {
        let mut now = Self::default();
        let mut refused = Vec::new();
        for property in NUMERIC {
            let Some(item) = map.global_settings.as_ref().and_then(|all| all.get(property.name)) else {
                continue;
            };
            match accept(property, item) {
                Ok(value) => {
                    now.values.insert(property.name, value);
                }
                Err(found) => {
                    let kept = last.count(property);
                    now.values.insert(property.name, kept);
                    refused.push(format!(
                        "{}: {found}, expected {} to {}; {kept} stays in force",
                        property.name, property.min, property.max
                    ));
                }
            }
        }
        (now, refused)
    }

    pub fn count(&self, property: Numeric) -> u32 {
        self.values.get(property.name).copied().unwrap_or(property.default)
    }

    /// A bare count is taken as seconds. Never overflows (D-K11).
    pub fn time(&self, property: Numeric) -> Duration {
        let count = u64::from(self.count(property));
        match property.unit {
            Unit::Hours => Duration::from_secs(count * 3600),
            Unit::Seconds | Unit::Count => Duration::from_secs(count),
        }
    }

    /// For tests, and for a first value before any map is read.
    #[must_use]
    pub fn with(mut self, property: Numeric, value: u32) -> Self {
        self.values.insert(property.name, value);
        self
    }
}

fn accept(property: Numeric, item: &ConfigItemValue) -> Result<u32, String> {
    if item.item_type != topics::ConfigItemType::Int {
        return Err(format!("found a value of type {:?}", item.item_type));
    }
    if (property.min..=property.max).contains(&item.int_value) {
        Ok(item.int_value)
    } else {
        Err(format!("found {}", item.int_value))
    }
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
        fixed_waits { $($(#[$fixed_about:meta])* $fixed:ident, $fixed_ms:ident = $fixed_default:expr;)* }
        fixed { $($(#[$count_about:meta])* $count:ident: $count_kind:ty = $count_default:expr;)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$wait_about])* pub $member_ms: u64,)*
            $($(#[$member_about])* pub $member: $kind,)*
            $($(#[$fixed_about])* pub $fixed_ms: u64,)*
            $($(#[$count_about])* pub $count: $count_kind,)*
        }

        // The name only: dozens of constant numbers would hide the changing state of a core.
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($member_ms: $default_ms,)* $($member: $default,)*
                    $($fixed_ms: $fixed_default,)* $($count: $count_default,)*
                }
            }
        }

        impl $name {
            /// Members of its object in the limits file.
            pub const MEMBERS: &[&str] = &[$(stringify!($member_ms),)* $(stringify!($member),)*];
            /// Not set on devices: tests and the demo shorten them.
            pub const FIXED: &[&str] = &[$(stringify!($fixed_ms),)* $(stringify!($count),)*];

            $(pub(crate) const fn $wait(&self) -> ::std::time::Duration {
                ::std::time::Duration::from_millis(self.$member_ms)
            })*
            $(pub(crate) const fn $fixed(&self) -> ::std::time::Duration {
                ::std::time::Duration::from_millis(self.$fixed_ms)
            })*
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(name: &str, value: u32) -> ConfigItemValueMap {
        ConfigItemValueMap::of([ConfigItemValue::number(name, value)])
    }

    #[test]
    fn a_missing_name_is_its_default_and_a_set_one_counts() {
        let (now, refused) =
            Properties::from_map(&map("kubernetes.drain.timeout", 3), &Properties::default());
        assert_eq!(refused, [""; 0]);
        assert_eq!(now.time(DRAIN_TIMEOUT), Duration::from_secs(3 * 3600));
        assert_eq!(now.time(DRAIN_SKIP), Duration::from_mins(5));
    }

    #[test]
    fn a_value_out_of_range_leaves_the_one_before_it_and_is_told() {
        let last = Properties::default().with(CONFIG_INTERVAL, 7);
        let (now, refused) = Properties::from_map(&map("timer.config.interval", 4), &last);
        assert_eq!(now.count(CONFIG_INTERVAL), 7);
        assert_eq!(refused, ["timer.config.interval: found 4, expected 5 to 86400; 7 stays in force"]);
    }

    #[test]
    fn d_k11_the_longest_timeout_in_hours_does_not_overflow() {
        let longest = Properties::default().with(DRAIN_TIMEOUT, u32::MAX);
        assert_eq!(longest.time(DRAIN_TIMEOUT).as_secs(), u64::from(u32::MAX) * 3600);
        assert_eq!(
            step::Mono::START + longest.time(DRAIN_TIMEOUT),
            step::Mono::from_start(longest.time(DRAIN_TIMEOUT))
        );
    }
}
