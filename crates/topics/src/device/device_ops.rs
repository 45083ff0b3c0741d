//! Orders of zedagent for the machine, and nodeagent's reports.
//!
//! Not here: zedagent's record of them (`drain::progress`). Source: lf-edge/eve
//! pkg/pillar/types/zedagenttypes.go. Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{GoTime, topic};

numbers! {
    /// How the last reading of the device config went.
    ConfigGetStatus: u8 {
        Never = 0, Success = 1, Fail = 2, TemporaryFail = 3,
        /// The copy of the last good one is in force.
        ReadSaved = 4,
    }

    /// What the device is about.
    DeviceState: u8 {
        Unspecified = 0, Online = 1, Rebooting = 2, Maintenance = 3, BaseOsUpdating = 4,
        Booting = 5,
        /// Applications go down.
        PreparingPoweroff = 6,
        PoweringOff = 7,
        /// Applications are down.
        PreparedPoweroff = 8,
    }

    /// Why a device is in maintenance mode.
    MaintenanceModeReason: i32 {
        None = 0, UserRequested = 1, VaultLockedUp = 2, LowDiskSpace = 3, TpmEncryptFailure = 4,
        TpmQuoteFailure = 5, EdgeNodeCertsRefused = 6,
    }

    /// Why a device started.
    BootReason: u8 {
        None = 0, First = 1, RebootCmd = 2, Update = 3,
        /// Back to the former image.
        Fallback = 4,
        /// No controller for long.
        Disconnect = 5,
        /// An agent ended badly.
        Fatal = 6,
        OOM = 7,
        /// An agent hung.
        WatchdogHung = 8,
        /// An agent was gone.
        WatchdogPid = 9,
        /// The kernel gave up, or a reset.
        Kernel = 10,
        PowerFail = 11, Unknown = 12, VaultFailure = 13, PoweroffCmd = 14,
        /// Change of the cluster kind.
        KubeTransition = 15,
        HWWatchdog = 16,
        /// The stored reason makes no sense.
        ParseFail = 255,
    }

    /// How far the proof to the controller is that the device is what it was.
    AttestState: i32 {
        None = 0, NonceWait = 1,
        /// Waits for the TPM's quote.
        InternalQuoteWait = 2,
        /// Waits for the key to be handed over for safe keeping.
        InternalEscrowWait = 3,
        /// Waits for the controller to judge the quote.
        AttestWait = 4,
        /// Waits for the controller to take the key.
        AttestEscrowWait = 5,
        RestartWait = 6, Complete = 7,
        /// No state; stands for all of them in rules.
        Any = 8,
    }

    /// Whether the encrypted store is open.
    DataSecAtRestStatus: i32 {
        Unknown = 0, Disabled = 1, Enabled = 2,
        /// Cannot be opened.
        Error = 4,
    }

    /// Whether a key is sealed by the TPM.
    PcrStatus: i32 { Unknown = 0, Enabled = 1, Disabled = 2 }
}

/// Radio silence as the local profile server wants it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct RadioSilence {
    /// Whether it is in force.
    pub imposed: bool,
    /// Whether it is being changed.
    pub change_in_progress: bool,
    /// When the change was asked for.
    pub change_requested_at: GoTime,
    /// What went wrong with it.
    pub config_error: String,
}

/// What zedagent wants and how the device is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct ZedAgentStatus {
    /// Always `zedagent`.
    pub name: String,
    /// How the last reading of the config went.
    pub config_get_status: ConfigGetStatus,
    /// Restart now.
    pub reboot_cmd: bool,
    /// Take the applications down now.
    pub shutdown_cmd: bool,
    /// Switch off now.
    pub poweroff_cmd: bool,
    /// Why, for the log of the next boot.
    pub requested_reboot_reason: String,
    /// Why, as a number.
    pub requested_boot_reason: BootReason,
    /// Whether the device waits for help.
    pub maintenance_mode: bool,
    /// Why it does.
    pub maintenance_mode_reasons: Option<Vec<MaintenanceModeReason>>,
    /// Whether the controller refuses the certificates.
    pub edge_node_certs_refused: bool,
    /// A change forces a fallback to the other partition.
    pub force_fallback_counter: u32,
    /// Name of the profile in force.
    pub current_profile: String,
    /// Radio silence.
    pub radio_silence: RadioSilence,
    /// What the device is about.
    pub device_state: DeviceState,
    /// How far the attestation is.
    pub attest_state: AttestState,
    /// What went wrong with it.
    pub attest_error: String,
    /// Whether the vault is open.
    pub vault_status: DataSecAtRestStatus,
    /// Whether the vault's key is sealed by the TPM.
    #[serde(rename = "PCRStatus")]
    pub pcr_status: PcrStatus,
    /// What went wrong with the vault.
    pub vault_err: String,
    /// Whether there is no controller by design.
    pub airgap_mode: bool,
    /// Address of the local operator console.
    #[serde(rename = "LOCUrl")]
    pub loc_url: String,
}

topic!(ZedAgentStatus: Volatile, key Some("zedagent"),
    cut requested_reboot_reason current_profile attest_error vault_err);

/// What nodeagent does, and why the device started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeAgentStatus {
    /// Always `nodeagent`.
    pub name: String,
    /// Partition of this boot, `IMGA` or `IMGB`.
    pub cur_part: String,
    /// Whether the image of this boot is still in test.
    pub update_inprogress: bool,
    /// Nanoseconds until its test ends.
    pub remaining_test_time: i64,
    /// A restart is on its way.
    pub device_reboot: bool,
    /// The applications go down.
    pub device_shutdown: bool,
    /// Power-off is on its way.
    pub device_poweroff: bool,
    /// All applications are down.
    pub all_domains_halted: bool,
    /// Why the device went down last time.
    pub reboot_reason: String,
    /// The same as a number.
    pub boot_reason: BootReason,
    /// Trace of an agent that ended badly.
    pub reboot_stack: String,
    /// When the device went down.
    pub reboot_time: GoTime,
    /// How often it had started before.
    pub restart_counter: u32,
    /// Partition that it went down from.
    pub reboot_image: String,
    /// Whether nodeagent asks for help.
    pub local_maintenance_mode: bool,
    /// Why it does.
    pub local_maintenance_mode_reasons: Option<Vec<MaintenanceModeReason>>,
    /// Whether the image runs Kubernetes.
    #[serde(rename = "HVTypeKube")]
    pub hv_type_kube: bool,
    /// The drain for a device operation is not complete.
    pub wait_drain_in_progress: bool,
}

topic!(NodeAgentStatus: Volatile, key Some("nodeagent"), cut reboot_reason reboot_stack reboot_image);

/// Counter file of a device operation, `/persist/status/rebootConfig` and `shutdownConfig`; no topic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeviceOpsCmd {
    /// The last counter that was carried out.
    pub counter: u32,
    /// As the controller gave it.
    pub desired_state: bool,
    /// As the controller gave it.
    pub ops_time: String,
}
