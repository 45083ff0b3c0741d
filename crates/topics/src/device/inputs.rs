//! Small topics of other agents that ours read: onboarding, vault, volumes, TPM.
//!
//! Source: lf-edge/eve pkg/pillar/types/{onboarding,vaultmgr,volume,tpmmgr}types.go.
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::numbers;
use crate::{
    DataSecAtRestStatus, ErrorEntity, ErrorSeverity, GoTime, GoUuid, Kind, MaintenanceModeReason, PcrStatus,
    Topic,
};

/// Who the device is at the controller. Agents wait for it at their start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct OnboardingStatus {
    /// Identity of the device.
    #[serde(rename = "DeviceUUID")]
    pub device_uuid: GoUuid,
    /// Its hardware model as the controller calls it.
    pub hardware_model: String,
}

impl Topic for OnboardingStatus {
    const NAME: &'static str = "OnboardingStatus";
    const KIND: Kind = Kind::Persistent;
}

/// The encrypted store of the device; the key is its name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VaultStatus {
    /// Its name, `Application Data Store`.
    pub name: String,
    /// Whether it is open.
    pub status: DataSecAtRestStatus,
    /// Whether its key is sealed by the TPM.
    #[serde(rename = "PCRStatus")]
    pub pcr_status: PcrStatus,
    /// Whether the conversion of an older store is over.
    pub conversion_complete: bool,
    /// TPM registers that have changed since its key was sealed.
    #[serde(rename = "MismatchingPCRs")]
    pub mismatching_pcrs: Option<Vec<i64>>,
    /// How it was opened in this boot.
    pub unlock_method: VaultUnlockMethod,
    /// The last return of unused blocks to the disk.
    pub trim_status: VaultTrimStatus,
    /// What is wrong, or empty.
    pub error: String,
    /// Since when it is wrong.
    pub error_time: GoTime,
    /// How bad it is.
    pub error_severity: ErrorSeverity,
    /// When it will be tried again, in words.
    pub error_retry_condition: String,
    /// What it is about.
    pub error_entities: Option<Vec<ErrorEntity>>,
}

impl Topic for VaultStatus {
    const NAME: &'static str = "VaultStatus";
    const KIND: Kind = Kind::Volatile;
}

numbers! {
    /// How the vault was opened.
    VaultUnlockMethod: u8 {
        /// Not opened yet.
        None = 0,
        /// With the key that the TPM sealed.
        TpmLocalSealed = 1,
        /// With the controller's copy of the key.
        ControllerKey = 2,
        /// Without a TPM.
        NoTpm = 3,
        /// Made again; what was in it is lost.
        Recreated = 4,
    }
}

/// Return of unused blocks to the disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VaultTrimStatus {
    /// When it last began.
    pub last_start_time: GoTime,
    /// When it ended; zero while it is at work.
    pub last_end_time: GoTime,
    /// What went wrong, or empty.
    pub last_error: String,
}

/// Space for volumes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VolumeMgrStatus {
    /// Always `volumemgr`.
    pub name: String,
    /// Whether volumemgr has started; before that the space says nothing.
    pub initialized: bool,
    /// Space left, in bytes; 0 puts the device into maintenance mode.
    pub remaining_space: u64,
}

impl Topic for VolumeMgrStatus {
    const NAME: &'static str = "VolumeMgrStatus";
    const KIND: Kind = Kind::Volatile;
}

/// Health of the TPM; the key is the path of its device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct TpmSanityStatus {
    /// Path of its device.
    pub name: String,
    /// The maintenance mode that it calls for.
    pub status: MaintenanceModeReason,
    /// What is wrong, or empty.
    pub error: String,
    /// Since when it is wrong.
    pub error_time: GoTime,
    /// How bad it is.
    pub error_severity: ErrorSeverity,
    /// When it will be tried again, in words.
    pub error_retry_condition: String,
    /// What it is about.
    pub error_entities: Option<Vec<ErrorEntity>>,
}

impl Topic for TpmSanityStatus {
    const NAME: &'static str = "TpmSanityStatus";
    const KIND: Kind = Kind::Volatile;
}
