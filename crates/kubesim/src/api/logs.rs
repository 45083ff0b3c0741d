//! Logs of containers: `pods/log`, and the test's calls that write them.
//!
//! Each run of a container has a log of its own; the newest and the one before it can be read. The pod's status says
//! which run it is, as a kubelet does: a test may change either first.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::path::ResourcePath;
use crate::request::{SimRequest, SimResponse};
use crate::{Sim, SimShared};

type ContainerKey = (String, String, String);
/// Time and text, with the end of the line, if it has one.
type StampedLine = (Timestamp, String);

/// The run before the newest, and the newest.
type Runs = (Option<Vec<StampedLine>>, Vec<StampedLine>);

#[derive(Debug, Default)]
pub(crate) struct Logs(Mutex<BTreeMap<ContainerKey, Runs>>);

impl Logs {
    fn held(&self) -> MutexGuard<'_, BTreeMap<ContainerKey, Runs>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(namespace: &str, pod: &str, container: &str) -> ContainerKey {
    (namespace.to_owned(), pod.to_owned(), container.to_owned())
}

pub(crate) fn answer(
    shared: &SimShared,
    target: &ResourcePath,
    pod: &str,
    asked: &SimRequest,
) -> Result<SimResponse, Failure> {
    let object = shared.store().held(target, pod)?;
    let names =
        ["initContainers", "containers"].map(|it| object["spec"][it].as_array().cloned().unwrap_or_default());
    let names: Vec<&str> = names.iter().flatten().filter_map(|it| it["name"].as_str()).collect();
    let container = match (asked.given("container"), &names[..]) {
        (Some(name), _) if names.contains(&name) => Ok(name),
        (Some(name), _) => Err(format!("container {name} is not valid for pod {pod}")),
        (None, [only]) => Ok(*only),
        (None, _) => {
            Err(format!("a container name must be specified for pod {pod}, choose one of: {names:?}"))
        }
    };
    let container = container.map_err(Failure::bad_request)?;
    let since = asked.given("sinceTime").map(|text| {
        let bad = |_| Failure::bad_request(format!("sinceTime: {text:?} is no time"));
        // The API server passes whole seconds to the node.
        text.parse::<Timestamp>().map(Timestamp::as_second).map_err(bad)
    });
    let since = since.transpose()?;
    let logs = shared.logs.held();
    let held = logs.get(&place(&target.namespace, pod, container));
    let lines = if asked.is_set("previous") {
        let none = || format!("previous terminated container \"{container}\" in pod \"{pod}\" not found");
        let previous = held.and_then(|(previous, _)| previous.as_ref());
        previous.ok_or_else(|| Failure::bad_request(none()))?
    } else {
        held.map(|(_, newest)| newest).map_or(&[][..], |it| it)
    };
    let mut text = String::new();
    for (at, line) in lines.iter().filter(|(at, _)| since.is_none_or(|since| at.as_second() >= since)) {
        if asked.is_set("timestamps") {
            text.extend([format!("{at:.9}").as_str(), " "]);
        }
        text.push_str(line);
    }
    if let Some(limit) = asked.number::<usize>("limitBytes")? {
        let end =
            (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
    }
    Ok(SimResponse::Text(200, text))
}

impl Sim {
    /// The container writes a line at this moment.
    ///
    /// # Panics
    /// `at` is no time.
    pub fn log(&self, namespace: &str, pod: &str, container: &str, at: &str, line: &str) {
        self.log_part(namespace, pod, container, at, &format!("{line}\n"));
    }

    /// The container writes this, with an end of the line or without.
    ///
    /// # Panics
    /// `at` is no time.
    #[expect(clippy::panic, reason = "a time of a test that is none is the test's fault")]
    pub fn log_part(&self, namespace: &str, pod: &str, container: &str, at: &str, text: &str) {
        let Ok(at) = at.parse() else { panic!("{at} is no time") };
        let mut logs = self.shared.logs.held();
        logs.entry(place(namespace, pod, container)).or_default().1.push((at, text.to_owned()));
    }

    /// Log rotation on the node: the newest run's lines so far are no longer readable.
    pub fn rotate_log(&self, namespace: &str, pod: &str, container: &str) {
        self.shared.logs.held().entry(place(namespace, pod, container)).or_default().1.clear();
    }

    /// Starts a new run with an empty log. The pod's status does not change, see [`Sim::run_container`].
    pub fn renew_log(&self, namespace: &str, pod: &str, container: &str) {
        let mut logs = self.shared.logs.held();
        let (previous, newest) = logs.entry(place(namespace, pod, container)).or_default();
        *previous = Some(std::mem::take(newest));
    }

    /// Sets the run's number and state in the pod's status: `{"running": {}}`, `{"terminated": …}` or
    /// `{"waiting": …}`.
    pub fn run_container(&self, namespace: &str, pod: &str, container: &str, restarts: u32, state: &Value) {
        self.edit("pods", namespace, pod, |pod| {
            let spec = pod["spec"]["initContainers"].as_array().into_iter().flatten();
            let init = spec.clone().any(|it| it["name"] == container);
            let member = if init { "initContainerStatuses" } else { "containerStatuses" };
            let mut all = pod["status"][member].as_array().cloned().unwrap_or_default();
            all.retain(|it| it["name"] != container);
            let last = if restarts > 0 { json!({ "terminated": { "exitCode": 1 } }) } else { json!({}) };
            all.push(json!({
                "name": container, "image": "i", "imageID": "", "ready": true, "restartCount": restarts,
                "state": state, "lastState": last,
            }));
            pod["status"][member] = all.into();
        });
    }
}
