//! The stage of the whole-system tests: a device in a temporary root, agents as tasks or as real processes, and a
//! cluster, embedded or real.
//!
//! Not here: tests. Agents as tasks: `scenarios/`; processes: `crates/zedbox/tests/processes`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "made for tests: a panic is their way to fail"
)]
#![expect(clippy::missing_panics_doc, reason = "every function here fails its test by a panic")]

mod cluster;
mod crashes;
mod failing;
mod hold;
mod noted;
mod power;
mod process;
mod real;
mod roles;
mod server;
mod story;
mod tasks;
mod turns;
mod world;
mod writes;

pub use cluster::{Cluster, UUID};
pub use crashes::{
    AT_ONCE, Course, Crash, Dice, Outcome, at_once, by_chance, side_by_side, within, within_still,
};
pub use failing::{Calls, Failing, FailingCall};
pub use hold::{ALL_STATES, At};
pub use power::{Asked, cordons, folders_of_a_device, power_lost};
pub use process::{Processes, files_below, script};
pub use server::etcd::{NO_ETCD, RealEtcd, assets, etcd_programs, etcd_version};
pub use server::kubevirt::{Door, GUESTS, KubeVirt, KubeVirtPrograms, kubevirt_programs};
pub use server::longhorn::{NO_LONGHORN, RealLonghorn, at, has_own_network, longhorn_folders};
pub use server::{SKIPPED, watched};
pub use story::{Story, bring_image, with_image};
pub use tasks::PLANTED_TOKEN;
pub use turns::turns_in_trouble;
pub use world::{Agent, PENDING, World, reboot_config};
