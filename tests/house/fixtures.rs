//! The trees in `run-fixtures`: their files are exact, agree with each other, and use the agents' words.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test binary: a panic is its way to fail")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use topics::{
    ClusterDecision, ConfigMembership, DeviceOpPending, DrainHistory, DrainJournal, DrainStatus,
    EdgeNodeClusterConfig, EdgeNodeInfo, K3sUpdate, KubeStatsState, LeavePhase, NodeAgentStatus,
    NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, NodeLeave, OperationPause, OutageAnswer,
    OutageQuestion, PAUSE_FILE, Topic, ZedAgentStatus, go_json,
};

use crate::{files, is_of_tests, product, sources};

fn trees() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../run-fixtures")
}

fn names() -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(trees()).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Reads a file of a tree; its bytes must equal the written form.
fn exact<T: Topic>(tree: &str, path: &str) -> Option<T> {
    let text = fs::read_to_string(trees().join(tree).join(path)).ok()?;
    let value: T =
        go_json::from_slice(text.as_bytes()).unwrap_or_else(|error| panic!("{tree}/{path}: {error}"));
    assert_eq!(String::from_utf8(go_json::to_vec(&value).unwrap()).unwrap(), text, "{tree}/{path}");
    Some(value)
}

#[test]
fn every_tree_but_the_malformed_one_holds_exact_topic_files_that_agree() {
    let mut statuses = Vec::new();
    for tree in names().iter().filter(|name| *name != "malformed") {
        let status: NodeDrainStatus = exact(tree, "run/zedkube/NodeDrainStatus/global.json").unwrap();
        let progress: NodeDrainProgress = exact(tree, "run/zedkube/NodeDrainProgress/global.json").unwrap();
        assert_eq!(status.status, progress.status, "{tree}");
        let counts = progress.counts;
        assert_eq!(counts.total, counts.gone + counts.going + counts.waiting + counts.blocked, "{tree}");
        let history = exact::<DrainHistory>(tree, "persist/status/zedkube/DrainHistory/global.json");
        assert_eq!(history.is_some_and(|it| it.drains.len() == 2), tree == "cluster-idle", "{tree}");
        if let Some(request) = exact::<NodeDrainRequest>(tree, "run/zedagent/NodeDrainRequest/global.json") {
            assert_eq!(progress.answer(request.id()).unwrap().status, status.status, "{tree}");
            assert!(exact::<DrainJournal>(tree, "persist/status/zedkube/DrainJournal/global.json").is_some());
            let pending = "persist/status/zedagent/DeviceOpPending/reboot.json";
            let pending = exact::<DeviceOpPending>(tree, pending).unwrap();
            // The words are the agents' own (`requester::LatestAnswers::words`).
            if let Some(of) = pending.waiting_for.strip_prefix("drain of this node: ") {
                assert_eq!(of, status.status.text(), "{tree}");
            }
        }
        let pause = exact::<OperationPause>(tree, PAUSE_FILE);
        assert_eq!(pause.unwrap_or_default(), progress.pause, "{tree}");
        assert_eq!(progress.pause.is_set(), tree == "paused", "{tree}");
        let cluster: EdgeNodeClusterConfig =
            exact(tree, "run/zedagent/EdgeNodeClusterConfig/global.json").unwrap();
        assert_eq!(cluster.valid, status.status != DrainStatus::NotSupported, "{tree}");
        let decided = exact::<ClusterDecision>(tree, "run/zedagent/ClusterDecision/global.json").unwrap();
        assert_eq!(decided.membership == ConfigMembership::Member, cluster.valid, "{tree}");
        let leave = exact::<NodeLeave>(tree, "persist/status/zedkube/NodeLeave/global.json");
        assert_eq!(
            leave.map(|it| it.phase),
            (tree == "cluster-idle").then_some(LeavePhase::Member),
            "{tree}"
        );
        let report = exact::<KubeStatsState>(tree, "run/zedkube/KubeStatsState/global.json");
        assert_eq!(report, (tree == "cluster-idle").then(KubeStatsState::default), "{tree}");
        let question = exact::<OutageQuestion>(tree, "run/nodeagent/OutageQuestion/global.json");
        let answer = exact::<OutageAnswer>(tree, "run/zedkube/OutageAnswer/global.json");
        assert_eq!(question.is_some(), tree == "drain-9-held", "{tree}");
        assert_eq!(
            question.map(|it| (it.number, it.held, it.next_step)),
            answer.map(|it| (it.number, it.why, it.next_step)),
            "{tree}"
        );
        assert!(exact::<EdgeNodeInfo>(tree, "run/zedagent/EdgeNodeInfo/global.json").is_some());
        assert!(exact::<ZedAgentStatus>(tree, "run/zedagent/ZedAgentStatus/zedagent.json").is_some());
        let nodeagent: NodeAgentStatus = exact(tree, "run/nodeagent/NodeAgentStatus/nodeagent.json").unwrap();
        let waits = (3..=8).contains(&status.status.number()) && status.requested_by.number() == 2;
        assert_eq!(nodeagent.wait_drain_in_progress, waits, "{tree}");
        statuses.push(status.status.number());
    }
    statuses.sort_unstable();
    statuses.dedup();
    assert_eq!(statuses, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

const WORDS: [&str; 9] =
    ["Reason", "NextStep", "WaitingFor", "Words", "Text", "Effect", "Skip", "Left", "Held"];
/// Objects with a person's own texts, and the names, words and numbers that agents fill into theirs.
const PERSONS: [&str; 2] = ["Pause", "Pauses"];
const FILLED_IN: [&str; 9] = ["by", "field", "root", "shop", "application", "reboot", "no", "pods", "UTC"];

fn texts(value: &Value, member: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members
                .iter()
                .filter(|(name, _)| !PERSONS.contains(&name.as_str()))
                .for_each(|(name, it)| texts(it, name, into));
        }
        Value::Array(items) => items.iter().for_each(|it| texts(it, member, into)),
        Value::String(text) if WORDS.contains(&member) => into.push(text.clone()),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Runs of two or more words without a name, a number, a command or a mark in between.
fn runs(text: &str) -> Vec<String> {
    let plain =
        |it: &str| it.chars().all(|it| it.is_ascii_alphabetic() || it == '-') && !FILLED_IN.contains(&it);
    let mut all: Vec<Vec<&str>> = vec![Vec::new()];
    for word in text.split('`').step_by(2).flat_map(|it| it.split(' ').chain([""])) {
        let bare = word.trim_matches(|it: char| it.is_ascii_punctuation());
        if bare.is_empty() || !plain(bare) {
            all.push(Vec::new());
            continue;
        }
        if word.starts_with(|it: char| it.is_ascii_punctuation()) {
            all.push(Vec::new());
        }
        all.last_mut().unwrap().push(bare);
        if word.ends_with(|it: char| it.is_ascii_punctuation()) {
            all.push(Vec::new());
        }
    }
    all.into_iter().filter(|it| it.len() > 1).map(|it| it.join(" ")).collect()
}

/// Texts that agents no longer use must not be in a tree: documents, pages and tests show them as theirs.
#[test]
fn the_texts_of_the_trees_are_in_the_words_of_the_agents() {
    let sources = sources().into_iter().filter(|(path, _)| !is_of_tests(path)).map(|(_, text)| {
        let lines = product(&text).lines().filter(|it| !it.trim_start().starts_with("//"));
        // A text of several lines is one.
        lines.map(|it| it.trim_start().trim_end_matches('\\')).collect::<String>()
    });
    let said: String = sources.collect();
    let mut looked_at = 0;
    for tree in names().iter().filter(|name| *name != "malformed") {
        for (path, text) in files(&[&format!("run-fixtures/{tree}")], "json") {
            let by_agents = ["run/zed", "run/nodeagent", "run/baseosmgr", "persist/status"];
            if !by_agents.iter().any(|it| path.to_string_lossy().contains(&format!("{tree}/{it}"))) {
                continue;
            }
            let mut all = Vec::new();
            texts(&serde_json::from_str(&text).unwrap(), "", &mut all);
            // A person's text is not the agents'.
            for text in all.iter().filter(|it| *it != "server is lost") {
                for run in runs(text) {
                    looked_at += 1;
                    assert!(said.contains(&run), "{}: no agent says `{run}`: {text}", path.display());
                }
            }
        }
    }
    assert!(looked_at > 100, "{looked_at} runs of words only");
}

#[test]
fn every_file_of_the_malformed_tree_is_refused_and_none_is_a_panic() {
    let file = |path: &str| fs::read(trees().join("malformed").join(path)).unwrap();
    for name in ["global", "empty", "wrong-type"] {
        let bytes = file(&format!("run/zedkube/NodeDrainStatus/{name}.json"));
        assert!(go_json::from_slice::<NodeDrainStatus>(&bytes).is_err(), "{name}");
    }
    let cluster = file("run/zedagent/EdgeNodeClusterConfig/global.json");
    assert!(
        go_json::from_slice::<EdgeNodeClusterConfig>(&cluster).unwrap_err().to_string().contains("Valid")
    );
    let config = zedagent::device_config::parse(&file("persist/config/edge-dev-config.json"));
    assert_eq!(config.unwrap_err().line, 2);
    let force = topics::read_force(&file("persist/kube-status/force-NodeDrainStatus-global.json"));
    assert!(force.unwrap_err().to_string().contains("RequestedBy 2"));
}

/// A value with an unknown member in each of its objects, as a newer version may write it.
fn newer(value: &Value) -> Value {
    match value {
        // Members of maps are names of things.
        Value::Object(members)
            if members.keys().all(|it| it.starts_with(|it: char| it.is_ascii_uppercase())) =>
        {
            let strange = ("LaterThanThis".to_owned(), json!({ "Any": [1, null, "text"] }));
            members.iter().map(|(name, it)| (name.clone(), newer(it))).chain([strange]).collect()
        }
        Value::Array(items) => items.iter().map(newer).collect(),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            value.clone()
        }
    }
}

/// Files that survive a boot, written by another version: with all members of `T` and unknown ones, and
/// without each one.
fn of_other_versions<T: Topic + PartialEq + std::fmt::Debug>(path: &str) {
    let sample = trees().join("../crates/topics/tests/filled").join(format!("{path}.json"));
    let text = fs::read_to_string(sample).unwrap();
    let read = |value: &Value| go_json::from_slice::<T>(value.to_string().as_bytes());
    let plain: Value = serde_json::from_str(&text).unwrap();
    let strange = newer(&plain);
    assert_ne!(strange, plain);
    assert_eq!(read(&strange).unwrap(), read(&plain).unwrap(), "{path}");
    let members = plain.as_object().unwrap();
    assert!(!members.is_empty());
    for name in members.keys() {
        let mut older = plain.clone();
        older.as_object_mut().unwrap().remove(name);
        let shorter = read(&older).unwrap_or_else(|error| panic!("{path} without {name}: {error}"));
        let again: Value = serde_json::from_slice(&go_json::to_vec(&shorter).unwrap()).unwrap();
        for (other, value) in members.iter().filter(|(other, _)| *other != name) {
            assert_eq!(again.get(other), Some(value), "{path} without {name}");
        }
    }
}

#[test]
fn x4_what_survives_a_boot_is_read_by_a_newer_and_by_an_older_version() {
    of_other_versions::<DeviceOpPending>("DeviceOpPending");
    of_other_versions::<DrainHistory>("DrainHistory");
    of_other_versions::<DrainJournal>("DrainJournal");
    of_other_versions::<K3sUpdate>("K3sUpdate");
    of_other_versions::<NodeLeave>("NodeLeave");
    // A status that only a newer version knows is kept, and no operation goes ahead for it.
    let status: NodeDrainStatus = go_json::from_slice(br#"{"Status":42,"RequestedBy":2,"Later":1}"#).unwrap();
    assert_eq!(status.status, DrainStatus::Stranger(42));
    assert_eq!(go_json::to_vec(&status).unwrap(), br#"{"Status":42,"RequestedBy":2}"#);
}
