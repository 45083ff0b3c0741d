//! Topics as events.
//!
//! Not here: their consequences. One task per topic, all owned by [`agent::Tasks`].

use agent::Tasks;
use agent::settings::{self, Properties};
use agent::wire::{self, GLOBAL, ZEDKUBE};
use pubsub::{Change, Name, TopicRoot};
use serde::Deserialize;
use topics::{
    ConfigItemValueMap, DataSecAtRestStatus, DomainStatus, MaintenanceModeReason, NodeDrainStatus,
    OutageAnswer, VaultStatus, VolumeMgrStatus, ZbootStatus, ZedAgentStatus, go_json,
};
use tracing::warn;

use crate::core::{DeviceCommand, Event, RequiredReading, Vault, Waits};

/// The vault of the applications; other vaults do not matter.
const VAULT: &str = "Application Data Store";

/// Values of zedkube, zedagent and baseosmgr stay valid when these end.
pub(crate) fn all(tasks: &mut Tasks<Event>, topic_root: &TopicRoot) {
    tasks.follow::<NodeDrainStatus>(topic_root, ZEDKUBE, |change| match change {
        Change::Put { key, value, .. } => (key == GLOBAL).then_some(Event::Drain(value)),
        Change::Synced => Some(Event::Heard(RequiredReading::Drain)),
        Change::Gone { .. } | Change::Restarted(_) | Change::Bad(_) => None,
    });
    tasks.follow::<OutageAnswer>(topic_root, ZEDKUBE, |change| change.put().map(Event::Answer));
    let zedagent = topic_root.clone();
    tasks.follow::<ZedAgentStatus>(topic_root, "zedagent", move |change| {
        let wish = wish(change.put()?);
        // The reference's holds no lock; one that cannot be checked may be that one.
        let ours = zedagent.is_published(&wire::name::<ZedAgentStatus>("zedagent"));
        Some(Event::Wish(DeviceCommand { ours: matches!(ours, Ok(Some(true))), ..wish }))
    });
    tasks.follow::<ZbootStatus>(topic_root, "baseosmgr", |change| match change {
        Change::Put { key, value, .. } => {
            Some(Event::Partition(ZbootStatus { partition_label: key, ..value }))
        }
        Change::Restarted(1..) => Some(Event::Heard(RequiredReading::Partitions)),
        Change::Gone { .. } | Change::Synced | Change::Restarted(_) | Change::Bad(_) => None,
    });
    tasks.follow::<DomainStatus>(topic_root, "domainmgr", |change| match change {
        Change::Put { key, value, .. } => Some(Event::Application { key, active: value.activated }),
        Change::Gone { key, .. } => Some(Event::Application { key, active: false }),
        Change::Synced => Some(Event::Heard(RequiredReading::Applications)),
        Change::Restarted(_) | Change::Bad(_) => None,
    });
    tasks.follow::<VaultStatus>(topic_root, "vaultmgr", |change| match change {
        Change::Put { value, .. } if value.name == VAULT => Some(Event::Vault(vault(&value))),
        Change::Gone { old, .. } if old.name == VAULT => Some(Event::Vault(Vault::Silent)),
        Change::Put { .. } | Change::Gone { .. } | Change::Synced | Change::Restarted(_) | Change::Bad(_) => {
            None
        }
    });
    tasks.follow::<VolumeMgrStatus>(topic_root, "volumemgr", |change| {
        Some(Event::Space(change.latest()?.map(|it| it.remaining_space)))
    });
    // Its key is the path of the TPM's device, so it has no file.
    if let Some(mut feed) = topic_root.socket_feed(&Name::volatile("tpmmgr", "TpmSanityStatus")) {
        tasks.events("hear tpmmgr/TpmSanityStatus", move |outbox| async move {
            loop {
                let (_, value) = feed.next().await;
                if !outbox.send(Event::Tpm { fails: value.is_some_and(|it| tpm_fails(&it)) }).await {
                    return;
                }
            }
        });
    }
    let mut properties = Properties::default();
    tasks.follow::<ConfigItemValueMap>(topic_root, "zedagent", move |change| {
        let (next, refused) = Properties::from_map(&change.put()?, &properties);
        for line in refused {
            warn!("config property {line}");
        }
        properties = next;
        Some(Event::Waits(waits(&properties)))
    });
}

pub(crate) fn waits(properties: &Properties) -> Waits {
    Waits {
        image_test: properties.time(settings::TEST_BASE_IMAGE),
        fallback: properties.time(settings::UPDATE_FALLBACK),
        no_controller: properties.time(settings::REBOOT_NO_NETWORK),
        vault: properties.time(settings::VAULT_CUTOFF),
    }
}

fn wish(status: ZedAgentStatus) -> DeviceCommand {
    DeviceCommand {
        reboot: status.reboot_cmd,
        shutdown: status.shutdown_cmd,
        poweroff: status.poweroff_cmd,
        reason: status.requested_reboot_reason,
        boot_reason: status.requested_boot_reason,
        contact: status.config_get_status,
        certs_refused: status.edge_node_certs_refused,
        ours: false,
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TpmSanityStatus {
    status: MaintenanceModeReason,
}

/// False for any other word, invalid ones included.
fn tpm_fails(value: &[u8]) -> bool {
    let status = go_json::from_slice::<TpmSanityStatus>(value).unwrap_or_else(|cause| {
        warn!(error = %step::chain(&cause), "TpmSanityStatus cannot be read");
        TpmSanityStatus::default()
    });
    status.status == MaintenanceModeReason::TpmEncryptFailure
}

fn vault(status: &VaultStatus) -> Vault {
    if status.status == DataSecAtRestStatus::Error {
        Vault::Shut(status.mismatching_pcrs.clone().unwrap_or_default())
    } else if status.conversion_complete {
        Vault::Open
    } else {
        Vault::Opening
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_the_controller_are_the_defaults_until_it_sets_others() {
        assert_eq!(waits(&Properties::default()), Waits::default());
    }

    #[test]
    fn a_vault_in_error_is_shut_and_one_without_error_is_open_once_converted() {
        let status = |status, conversion_complete| VaultStatus {
            status,
            conversion_complete,
            ..VaultStatus::default()
        };
        let changed =
            VaultStatus { mismatching_pcrs: Some(vec![4, 8]), ..status(DataSecAtRestStatus::Error, true) };
        assert_eq!(vault(&changed), Vault::Shut(vec![4, 8]));
        assert_eq!(vault(&status(DataSecAtRestStatus::Error, true)), Vault::Shut(vec![]));
        assert_eq!(vault(&status(DataSecAtRestStatus::Enabled, true)), Vault::Open);
        assert_eq!(vault(&status(DataSecAtRestStatus::Disabled, true)), Vault::Open);
        assert_eq!(vault(&status(DataSecAtRestStatus::Enabled, false)), Vault::Opening);
    }
}
