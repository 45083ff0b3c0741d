//! Scripted faults in place of answers, and a record of requests.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// Recorded answers of real components, with their versions.
const ANSWERS: &str = include_str!("../../../tests/golden/answers.json");

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptedFault {
    Status {
        code: u16,
        reason: String,
        message: String,
        retry_after: Option<u64>,
    },
    Recorded {
        code: u16,
        status: Value,
        retry_after: Option<u64>,
    },
    /// The real answer, later.
    Delay(Duration),
    /// Done at once, answered later: its watch event comes first.
    LateReply(Duration),
    /// The connection is cut.
    Cut,
    Hang,
}

impl ScriptedFault {
    /// An error answer; a 403 looks like a missing role.
    pub fn status(code: u16, reason: &str) -> Self {
        let mut message = format!("scripted {reason}");
        if code == 403 {
            message.push_str(": User \"scripted\" cannot use resource \"scripted\"");
        }
        Self::Status { code, reason: reason.to_owned(), message, retry_after: None }
    }

    /// By name in `tests/golden/answers.json`; `None` where there is none.
    pub fn recorded(name: &str) -> Option<Self> {
        let rows: Vec<Value> = serde_json::from_str(ANSWERS).ok()?;
        let row = rows.into_iter().find(|it| it["Name"] == name)?;
        let mut status = row["Status"].clone();
        for (member, value) in [("kind", "Status"), ("apiVersion", "v1"), ("status", "Failure")] {
            status[member] = value.into();
        }
        status["code"] = row["Code"].clone();
        status["metadata"] = json!({});
        let code = u16::try_from(row["Code"].as_u64()?).ok()?;
        Some(Self::Recorded { code, status, retry_after: row["RetryAfter"].as_u64() })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiRequest {
    pub method: String,
    pub uri: String,
    pub body: Vec<u8>,
}

impl ApiRequest {
    pub fn is_dry(&self) -> bool {
        self.uri.contains("dryRun=All") || String::from_utf8_lossy(&self.body).contains("\"dryRun\"")
    }
}

#[derive(Debug)]
struct FaultRule {
    method: String,
    path: String,
    left: u32,
    fault: ScriptedFault,
}

#[derive(Debug, Default)]
pub struct Faults {
    rules: Mutex<Vec<FaultRule>>,
    seen: Mutex<Vec<ApiRequest>>,
    evicted: Mutex<Vec<String>>,
}

impl Faults {
    /// The next `times` requests of `method` with a path that contains `path` get `fault`. Rules apply in
    /// their order. A dry run gets the next request's fault, and does not count.
    pub fn script(&self, method: &str, path: &str, times: u32, fault: ScriptedFault) {
        let rule = FaultRule { method: method.to_owned(), path: path.to_owned(), left: times, fault };
        lock(&self.rules).push(rule);
    }

    pub fn clear(&self) {
        lock(&self.rules).clear();
    }

    pub fn requests(&self) -> Vec<ApiRequest> {
        lock(&self.seen).clone()
    }

    /// Requests of `method` with a path that contains `path`, without dry runs.
    pub fn count(&self, method: &str, path: &str) -> usize {
        let is_it = |it: &&ApiRequest| it.method == method && it.uri.contains(path) && !it.is_dry();
        lock(&self.seen).iter().filter(is_it).count()
    }

    /// UIDs of the accepted evictions, in order, with repetitions.
    pub fn evicted(&self) -> Vec<String> {
        lock(&self.evicted).clone()
    }

    pub(crate) fn note_evicted(&self, uid: &str) {
        lock(&self.evicted).push(uid.to_owned());
    }

    pub(crate) fn meet(&self, method: &str, uri: &str, body: &[u8]) -> Option<ScriptedFault> {
        let seen = ApiRequest { method: method.to_owned(), uri: uri.to_owned(), body: body.to_vec() };
        let dry = seen.is_dry();
        lock(&self.seen).push(seen);
        let mut rules = lock(&self.rules);
        let path = uri.split('?').next().unwrap_or_default();
        let rule =
            rules.iter_mut().find(|it| it.left > 0 && it.method == method && path.contains(&it.path))?;
        rule.left -= u32::from(!dry);
        Some(rule.fault.clone())
    }
}

pub(crate) fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
