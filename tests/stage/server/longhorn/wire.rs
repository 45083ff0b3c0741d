//! Messages between the real manager and instance managers: the members used here.
//!
//! Numbers are those of `longhorn/types`: `instance.proto`, `imrpc.proto`, `proxy.proto`, `controller.proto`,
//! `syncagent.proto`. A call with an empty answer needs no message.

use std::collections::BTreeMap;

use prost::Message;

/// Mode of a replica that is being built, and of a healthy one.
pub(super) const WRITE_ONLY: i32 = 0;
pub(super) const READ_WRITE: i32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Spec {
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) kind: String,
    #[prost(string, tag = "4")]
    pub(super) volume: String,
    #[prost(int32, tag = "5")]
    pub(super) port_count: i32,
    #[prost(message, optional, tag = "7")]
    pub(super) process: Option<Command>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Command {
    #[prost(string, repeated, tag = "2")]
    pub(super) words: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct State {
    #[prost(string, tag = "1")]
    pub(super) phase: String,
    #[prost(int32, tag = "3")]
    pub(super) port_start: i32,
    #[prost(int32, tag = "4")]
    pub(super) port_end: i32,
    #[prost(string, tag = "11")]
    pub(super) uuid: String,
}

/// A process of an engine or a replica: wanted and present state.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Instance {
    #[prost(message, optional, tag = "1")]
    pub(super) spec: Option<Spec>,
    #[prost(message, optional, tag = "2")]
    pub(super) state: Option<State>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Named {
    #[prost(string, tag = "2")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Instances {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) all: BTreeMap<String, Instance>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Versions {
    #[prost(int64, tag = "4")]
    pub(super) api: i64,
    #[prost(int64, tag = "5")]
    pub(super) api_min: i64,
    #[prost(int64, tag = "6")]
    pub(super) proxy: i64,
    #[prost(int64, tag = "7")]
    pub(super) proxy_min: i64,
}

/// Of the health check: 1 is serving.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Health {
    #[prost(int32, tag = "1")]
    pub(super) status: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ToEngine {
    #[prost(string, tag = "3")]
    pub(super) engine: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ToReplica {
    #[prost(message, optional, tag = "1")]
    pub(super) to: Option<ToEngine>,
    /// As `tcp://IP:PORT`.
    #[prost(string, tag = "2")]
    pub(super) address: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Wrapped<T: Message + Default + std::fmt::Debug> {
    #[prost(message, optional, tag = "1")]
    pub(super) inner: Option<T>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct VolumeInfo {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int64, tag = "2")]
    pub(super) size: i64,
    #[prost(string, tag = "4")]
    pub(super) endpoint: String,
    #[prost(string, tag = "5")]
    pub(super) frontend: String,
    #[prost(string, tag = "6")]
    pub(super) frontend_state: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Replicas {
    #[prost(message, repeated, tag = "1")]
    pub(super) all: Vec<ReplicaMode>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ReplicaMode {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
    #[prost(int32, tag = "2")]
    pub(super) mode: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(string, tag = "1")]
    pub(super) address: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Rebuilds {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(super) all: BTreeMap<String, Rebuild>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Rebuild {
    #[prost(bool, tag = "1")]
    pub(super) goes_on: bool,
    #[prost(int32, tag = "3")]
    pub(super) percent: i32,
    #[prost(string, tag = "4")]
    pub(super) state: String,
}
