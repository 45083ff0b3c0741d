//! Whether a cluster is well again after an outage: each layer with what was read, what is not well, and what to do.
//!
//! `read` asks the cluster, once for each kind of object. Not here: this machine (`local`), probes and words for a person
//! (zedbox). Sources: spec/cluster-lock.md 7, 7.1 and 8; goals V1. Pure: no clock, no I/O, no task.

mod read;
#[cfg(test)]
mod tests;

use kubeapi::Error;
use topics::{VerifyFinding, VerifyLayer, VerifyResult};

pub use read::{look, rotation};

use crate::{Finding, Severity};

/// The layers, lowest first, as they are named in reports.
pub const LAYERS: [&str; 15] = [
    "devices",
    "certificates",
    "clock",
    "network",
    "etcd",
    "api",
    "nodes",
    "taints",
    "turns",
    "storage",
    "system",
    "applications",
    "budgets",
    "machines",
    "probes",
];

/// Why a layer is unknown while the API does not answer, and the next step.
pub const NO_API: &str = "not checked, as the Kubernetes API cannot be used";
/// See [`NO_API`].
pub const SEE_API: &str = "see layer api";

/// A layer while it is looked at.
#[derive(Debug, Default)]
pub struct LayerCheck {
    read: Vec<String>,
    found: Vec<Finding>,
}

impl LayerCheck {
    /// What was read, as `3 nodes`.
    pub fn read(&mut self, what: impl Into<String>) -> &mut Self {
        self.read.push(what.into());
        self
    }

    /// What was found in it.
    pub fn found(&mut self, found: impl IntoIterator<Item = Finding>) -> &mut Self {
        self.found.extend(found);
        self
    }

    /// Judges a list by `rule`, or says that it could not be read.
    pub fn list<T>(
        &mut self,
        what: &str,
        read: Result<&[T], &Error>,
        rule: impl FnOnce(&[T]) -> Vec<Finding>,
    ) -> &mut Self {
        match read {
            Ok(all) => self.read(format!("{} {what}", all.len())).found(rule(all)),
            Err(error) => self.found([Finding::unreadable(what, error)]),
        }
    }

    /// The layer, with the worst first.
    pub fn layer(&mut self, layer: &str) -> VerifyLayer {
        let mut findings: Vec<VerifyFinding> =
            std::mem::take(&mut self.found).into_iter().map(shown).collect();
        findings.sort_by_key(|it| std::cmp::Reverse(it.result));
        findings.dedup();
        let worst = findings.iter().map(|it| it.result).max();
        let unread = if self.read.is_empty() { VerifyResult::Skipped } else { VerifyResult::Pass };
        VerifyLayer {
            layer: layer.to_owned(),
            result: worst.unwrap_or(unread),
            read: self.read.join(", "),
            findings,
        }
    }
}

/// A layer that was not looked at, and why.
pub fn skipped(layer: &str, why: &str) -> VerifyLayer {
    VerifyLayer { layer: layer.to_owned(), read: why.to_owned(), ..VerifyLayer::default() }
}

/// A layer that cannot be looked at while one below it does not work.
pub fn unknown(layer: &str, why: &str, next_step: &str) -> VerifyLayer {
    let result = VerifyResult::Unknown;
    let finding = VerifyFinding { result, text: why.to_owned(), next_step: next_step.to_owned() };
    VerifyLayer { layer: layer.to_owned(), result, read: String::new(), findings: vec![finding] }
}

fn shown(finding: Finding) -> VerifyFinding {
    let result = match finding.severity {
        _ if finding.unread => VerifyResult::Unknown,
        Severity::Blocks => VerifyResult::Fail,
        Severity::Warns => VerifyResult::Warn,
        Severity::Hint => VerifyResult::Pass,
    };
    VerifyFinding { result, text: finding.text, next_step: finding.next }
}
