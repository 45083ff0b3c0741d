//! The nodes that a demo can have: their names, the UUIDs of their devices, and their addresses.

/// Our node: the name that the golden config's device gets.
pub(super) const NODE: &str = "edge-node-1";
/// Nodes with the UUIDs of their devices, as in the golden config.
pub(crate) const NODES: [(&str, &str); 5] = [
    (NODE, "2f6f0c2e-9b0e-4c1b-8f0f-6a0f1f0a0c11"),
    ("edge-node-2", "9f1c4b9e-6d1c-4b0c-9a57-0f6f6f0b0b22"),
    ("edge-node-3", "0d6e3c1a-1f4e-4f7e-8f7a-7d5e0c0c0c33"),
    ("edge-node-4", "5b0a7d52-3c1e-4b7a-9e2d-1c8f0d0d0d44"),
    ("edge-node-5", "c4e9f6b8-7a2d-4d11-8b3c-2e9a0e0e0e55"),
];

/// In the cluster: each machine has its own on loopback.
pub(super) fn address(at: usize) -> String {
    format!("127.0.0.{}", at + 1)
}
