//! Applications as this node sees them in the cluster: ENClusterAppStatus, and the logs of their containers.
//!
//! Not here: how pods and logs are read (`pods`).
//!
//! Pure: `app`, `look`, `app_table` (the status), `wanted` (their needs beside pods), `marks`, `track`, `course`,
//! `line` (the logs); `task` and `logs` wait. Neither waits for the drain, nor the drain for them. Source: D-K23.

mod app;
mod app_table;
mod course;
mod line;
mod logs;
mod look;
mod marks;
mod task;
mod track;
mod wanted;

pub use app_table::{GAP, UNREACHABLE_AFTER};
pub use logs::{BATCH_BYTES, Pipe, ROUND_BYTES};
pub use task::run;
pub use track::{AGAIN, DOUBT, ROUND};
pub use wanted::{AppRequirements, Console};

/// What tests of applications begin with.
#[cfg(test)]
mod samples {
    use std::time::Duration;

    use step::Mono;
    use topics::{AppInstanceConfig, GoUuid, VmMode};

    use crate::pods::AppPod;

    pub(super) const WEB: &str = "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c";
    pub(super) const VM: &str = "b3e2f1a0-5c4d-4e6f-8a9b-0c1d2e3f4a5b";

    pub(super) fn at(secs: u64) -> Mono {
        Mono::START + Duration::from_secs(secs)
    }

    /// Of an application with this designated node: a virtual machine, or else containers.
    pub(super) fn config(display: &str, uuid: &str, machine: bool) -> AppInstanceConfig {
        let mut config =
            AppInstanceConfig { display_name: display.to_owned(), ..AppInstanceConfig::default() };
        config.uuid_and_version.uuid = GoUuid(uuid.parse().unwrap());
        config.is_designated_node_id = true;
        config.fixed_resources.vnc_display = u32::from(machine);
        if !machine {
            config.fixed_resources.virtualization_mode = VmMode::NoHyper;
        }
        config
    }

    pub(super) fn pod(name: &str, node: &str, phase: &str) -> AppPod {
        let text = str::to_owned;
        AppPod { name: text(name), node: text(node), phase: text(phase), ..AppPod::default() }
    }
}
