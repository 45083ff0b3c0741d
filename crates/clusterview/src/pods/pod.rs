//! A pod of an application as a fact.
//!
//! Members of a wrong type count as missing: one odd pod must not break the others.
//! Pure: no clock, no I/O, no task.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppPod {
    pub name: String,
    pub uid: String,
    /// Empty before it is scheduled.
    pub node: String,
    /// `status.phase`, as `Running`.
    pub phase: String,
    pub ending: bool,
    /// Its containers and init containers, if its node has reported them.
    pub containers: Vec<Container>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub name: String,
    /// One of the init containers, such as the one that prints the console of a virtual machine.
    pub init: bool,
    /// Number of restarts. With the pod's UID it identifies one run of the container.
    pub restarts: u32,
    pub state: ContainerState,
}

/// Of the newest run of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    /// Not begun: there is no log.
    Waiting,
    Running,
    /// Not restarted so far.
    Ended,
    /// Ended, and waiting for a restart: the run before it is gone.
    BackingOff,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPod {
    metadata: Value,
    spec: Value,
    status: Value,
}

/// No two whole objects of a list are in memory at the same time.
impl<'de> Deserialize<'de> for AppPod {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let RawPod { metadata, spec, status, .. } = RawPod::deserialize(from)?;
        let list = |name: &str, init: bool| {
            let items = status[name].as_array().map(Vec::as_slice).unwrap_or_default();
            items.iter().map(|it| container(it, init)).collect::<Vec<_>>()
        };
        let mut containers = list("initContainerStatuses", true);
        containers.extend(list("containerStatuses", false));
        Ok(Self {
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            node: text(&spec["nodeName"]),
            phase: text(&status["phase"]),
            ending: !metadata["deletionTimestamp"].is_null(),
            containers,
        })
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn container(status: &Value, init: bool) -> Container {
    let state = &status["state"];
    let state = if !state["running"].is_null() {
        ContainerState::Running
    } else if !state["terminated"].is_null() {
        ContainerState::Ended
    } else if !status["lastState"]["terminated"].is_null() {
        ContainerState::BackingOff
    } else {
        ContainerState::Waiting
    };
    Container {
        name: text(&status["name"]),
        init,
        restarts: status["restartCount"].as_u64().and_then(|it| u32::try_from(it).ok()).unwrap_or_default(),
        state,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(object: Value) -> AppPod {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_pod_is_read_with_all_its_containers() {
        let ended = json!({ "terminated": { "exitCode": 1 } });
        let pod = read(json!({
            "metadata": { "name": "web-11111-0-abcde", "uid": "u1", "deletionTimestamp": "2026-03-14T09:30:00Z" },
            "spec": { "nodeName": "n1" },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [{ "name": "i", "restartCount": 0, "state": { "running": {} } }],
                "containerStatuses": [
                    { "name": "a", "restartCount": 3, "state": { "waiting": {} }, "lastState": ended },
                    { "name": "b", "restartCount": 0, "state": ended },
                    { "name": "c", "restartCount": 0, "state": { "waiting": {} }, "lastState": {} },
                ],
            },
        }));
        let container =
            |name: &str, init, restarts, state| Container { name: name.to_owned(), init, restarts, state };
        let expected = AppPod {
            name: "web-11111-0-abcde".to_owned(),
            uid: "u1".to_owned(),
            node: "n1".to_owned(),
            phase: "Running".to_owned(),
            ending: true,
            containers: vec![
                container("i", true, 0, ContainerState::Running),
                container("a", false, 3, ContainerState::BackingOff),
                container("b", false, 0, ContainerState::Ended),
                container("c", false, 0, ContainerState::Waiting),
            ],
        };
        assert_eq!(pod, expected);
    }

    #[test]
    fn what_is_missing_or_odd_is_empty() {
        let odd = json!({ "metadata": { "name": 7 }, "spec": null, "status": { "containerStatuses": "x" } });
        assert_eq!(read(odd), AppPod::default());
    }
}
