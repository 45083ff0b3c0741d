//! What an application runs on: virtual machine settings and assigned devices.
//!
//! Parts of AppInstanceConfig and DomainStatus; no topic.
//! Source: lf-edge/eve pkg/pillar/types/{domainmgrtypes,zedmanagertypes,assignableadapters}.go.
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::is_zero;
use crate::numbers::numbers;

/// Settings of a virtual machine. DomainStatus has the same members inline.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct VmConfig {
    /// Kernel to boot, or empty.
    pub kernel: String,
    /// Initial RAM disk, or empty.
    pub ramdisk: String,
    /// Memory in kilobytes.
    pub memory: i64,
    /// Memory at most, in kilobytes.
    pub max_mem: i64,
    /// CPUs.
    #[serde(rename = "VCpus")]
    pub vcpus: i64,
    /// CPUs at most.
    pub max_cpus: i64,
    /// Device of the root file system.
    pub root_dev: String,
    /// More kernel arguments.
    pub extra_args: String,
    /// Boot loader, or empty.
    pub boot_loader: String,
    /// CPUs that it is pinned to.
    #[serde(rename = "CPUs")]
    pub cpus: Option<Vec<u32>>,
    /// Device tree, or empty.
    pub device_tree: String,
    /// Nodes of the device tree that it is given.
    pub dt_dev: Option<Vec<String>>,
    /// Interrupts that it is given.
    #[serde(rename = "IRQs")]
    pub irqs: Option<Vec<i64>>,
    /// I/O memory that it is given, as `0xf7020,1`.
    #[serde(rename = "IOMem")]
    pub io_mem: Option<Vec<String>>,
    /// Kind of virtualization.
    pub virtualization_mode: VmMode,
    /// Whether it has a console.
    pub enable_vnc: bool,
    /// Number of the console; its TCP port is 5900 more.
    pub vnc_display: u32,
    /// Password of the console: a secret.
    pub vnc_passwd: String,
    /// Whether its CPUs are its own.
    #[serde(rename = "CPUsPinned")]
    pub cpus_pinned: bool,
    /// Memory that the hypervisor may use for it, in kilobytes.
    #[serde(rename = "VMMMaxMem")]
    pub vmm_max_mem: i64,
    /// Whether the helper machine around it has a console.
    #[serde(rename = "EnableVncShimVM")]
    pub enable_vnc_shim_vm: bool,
    /// Whether its network interfaces keep the order of the config.
    pub enforce_network_interface_order: bool,
    /// Whether it is given the licence key of the hardware.
    pub enable_oem_win_license_key: bool,
    /// Whether it has no virtual TPM.
    #[serde(rename = "DisableVirtualTPM")]
    pub disable_virtual_tpm: bool,
    /// Which devices it tries to boot first.
    pub boot_order: BootOrder,
}

numbers! {
    /// Kind of virtualization.
    VmMode: u8 {
        /// Paravirtualized.
        Pv = 0,
        /// Hardware-assisted.
        Hvm = 1,
        /// Made by the reference to fill a gap.
        Filler = 2,
        /// Hardware-assisted with firmware that knows assigned devices.
        Fml = 3,
        /// None: a native container.
        NoHyper = 4,
        /// Hardware-assisted with old firmware.
        Legacy = 5,
    }
}

numbers! {
    /// Which devices a machine tries to boot first.
    BootOrder: i32 {
        /// Not said.
        Unspecified = 0,
        /// USB devices first.
        Usb = 1,
        /// No USB devices.
        NoUsb = 2,
    }
}

numbers! {
    /// What kind of runtime an application is.
    AppRuntimeType: i64 {
        /// Not said.
        Unspecified = 0,
        /// Docker Compose.
        Docker = 1,
    }
}

/// A device that is assigned to an application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct IoAdapter {
    /// Its kind.
    pub r#type: IoType,
    /// Its name, such as `COM1` or `eth1-2`.
    pub name: String,
    /// The virtual function, when it is one.
    pub eth_vf: EthVf,
    /// Place among all network interfaces of the application.
    pub intf_order: u32,
}

/// A virtual function of a network card. Zero members are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct EthVf {
    /// Its number on the card.
    #[serde(skip_serializing_if = "is_zero")]
    pub index: u8,
    /// Its PCI address.
    #[serde(skip_serializing_if = "is_zero")]
    pub pci_long: String,
    /// Its MAC address as text.
    #[serde(skip_serializing_if = "is_zero")]
    pub mac: String,
    /// Its VLAN.
    #[serde(rename = "VlanID", skip_serializing_if = "is_zero")]
    pub vlan_id: u16,
}

numbers! {
    /// Kind of an assigned device.
    IoType: u8 {
        /// Not said.
        Nop = 0,
        /// Ethernet.
        NetEth = 1,
        /// USB.
        Usb = 2,
        /// Serial port.
        Com = 3,
        /// Sound.
        Audio = 4,
        /// Wireless LAN.
        NetWlan = 5,
        /// Cellular.
        NetWwan = 6,
        /// Screen.
        Hdmi = 7,
        /// NVMe storage.
        NvmeStorage = 9,
        /// SATA storage.
        SataStorage = 10,
        /// Physical function of a network card.
        NetEthPf = 11,
        /// Virtual function of a network card.
        NetEthVf = 12,
        /// USB controller.
        UsbController = 13,
        /// USB device.
        UsbDevice = 14,
        /// CAN bus.
        Can = 15,
        /// Virtual CAN bus.
        Vcan = 16,
        /// Linked CAN bus.
        Lcan = 17,
        /// Any other.
        Other = 255,
    }
}
