//! The reference's words in the logs of each agent, in whole drains of real processes, and the line with the
//! seconds by the documents' command. The table of words is in docs/integrate.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use kubesim::ScriptedFault;
use scenarios::{Agent, World, bring_image, reboot_config, script, with_image};
use serde_json::{Value, json};
use topics::{DrainStatus, NodeDrainProgress, Requester};

use crate::is_here;

const DOCUMENT: &str = include_str!("../../../../docs/integrate.md");
/// Steps of the reference's drain that ours never takes.
const NEVER: &str = "drain-skip-no-schedulable-nodes";

/// A world with agents that log as in an image. Its first member has to live as long.
async fn world() -> (tempfile::TempDir, World) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("zedbox");
    let text = format!("#!/bin/sh\nexec '{}' \"$@\" --log-format json\n", env!("CARGO_BIN_EXE_zedbox"));
    script(&program, &text);
    let world = World::of_processes(&program).await;
    (dir, world)
}

/// Lines of an agent's logs; each is an object as newlogd reads it.
fn lines(world: &World, agent: Agent) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(world.topic_root.path("log")).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.to_str().unwrap().ends_with(agent.name()) {
            all.extend(fs::read_to_string(path).unwrap().lines().map(str::to_owned));
        }
    }
    for line in &all {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["msg"].is_string() && line["level"].is_string(), "{line}");
    }
    all
}

fn promised(agent: Agent) -> BTreeSet<String> {
    let row = DOCUMENT.lines().find(|it| it.starts_with(&format!("| {} | `", agent.name()))).unwrap();
    let mut words = BTreeSet::new();
    for part in row.split(';') {
        let mut quoted = part.split('`').skip(1).step_by(2).peekable();
        let is_step = quoted.peek() == Some(&"nodedrain-step:");
        let step = if is_step { quoted.next().unwrap() } else { "" };
        words.extend(quoted.map(|it| format!("{step}{it}")));
    }
    words
}

fn missing(words: BTreeSet<String>, lines: &[String]) -> Vec<String> {
    // Whole words only.
    let ends = |rest: &str| !rest.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '-');
    let has = |line: &String, word: &str| {
        line.match_indices(word).any(|(at, _)| ends(&line[at + word.len()..]) || word.ends_with(':'))
    };
    words.into_iter().filter(|word| !lines.iter().any(|it| has(it, word))).collect()
}

async fn both(world: &World, status: DrainStatus) {
    let of =
        |it: &NodeDrainProgress, by| it.answers.iter().any(|it| it.requested_by == by && it.status == status);
    let what = format!("{status:?} for reboot and update");
    world
        .until::<NodeDrainProgress>("zedkube", &what, |it| {
            it.is_some_and(|it| of(it, Requester::DeviceOp) && of(it, Requester::Update))
        })
        .await;
}

/// A drain for a reboot or an image, blocked by a budget for a while.
async fn a_good_drain(image: bool) -> (tempfile::TempDir, World) {
    let (dir, mut world) = world().await;
    world.cluster.block().await;
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    if image {
        bring_image(&world);
        world.config(&with_image(reboot_config(6)));
    } else {
        world.ask_reboot(7);
    }
    let is_held = |it: Option<&NodeDrainProgress>| it.is_some_and(|it| !it.blockers.is_empty());
    world.until::<NodeDrainProgress>("zedkube", "a pod that is held", is_held).await;
    world.cluster.unblock().await;
    world.recorded_count(1).await;
    let reason = world.recorded()[0].reason.clone();
    assert!(image || reason.contains("Drain complete and deferred Reboot Cmd"), "{reason}");
    world.kill_all().await;
    (dir, world)
}

/// Failed drains for both, in cordon and evictions, and one without the API.
async fn bad_drains(agent: &mut Vec<(Agent, Vec<String>)>) {
    for (method, path, code, status) in [
        ("PATCH", "/api/v1/nodes/edge-node-1", 409, DrainStatus::FailedCordon),
        ("POST", "/eviction", 403, DrainStatus::FailedDrain),
    ] {
        let (_dir, mut world) = world().await;
        // The preflight would find refusals before the drain.
        for (limit, value) in
            [("preflight", json!(false)), ("drain_tries", json!(2)), ("cordon_tries", json!(2))]
        {
            world.limits["zedkube"][limit] = value;
        }
        world.cluster.sim().faults().script(method, path, u32::MAX, ScriptedFault::status(code, "Refused"));
        world.start_all();
        world.status(DrainStatus::NotRequested).await;
        bring_image(&world);
        world.config(&with_image(reboot_config(7)));
        both(&world, status).await;
        let given_up = if status == DrainStatus::FailedDrain { &["drain-failure-givingup"][..] } else { &[] };
        for (agent, steps) in [
            (Agent::Zedkube, given_up),
            (Agent::Zedagent, &["drain-failed-handler"]),
            (Agent::Baseosmgr, &["drain-failed-handler"]),
        ] {
            world.until_logged(&log_of(&world, agent), steps).await;
        }
        world.kill_all().await;
        agent.extend(Agent::ALL.map(|it| (it, lines(&world, it))));
    }
    let (_dir, mut world) = world().await;
    // They would prevent the drain before the API counts as away, the turn for a random time.
    for limit in ["preflight", "take_turns"] {
        world.limits["zedkube"][limit] = false.into();
    }
    let mut config = reboot_config(6);
    config["configItems"] = json!([{ "key": "drain.skip.k8sapinotreachable.timeout", "value": "1" }]);
    world.config(&config);
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    for method in ["GET", "POST", "PATCH"] {
        world.cluster.sim().faults().script(method, "/", u32::MAX, ScriptedFault::Cut);
    }
    config["reboot"]["counter"] = 7.into();
    world.config(&config);
    world.until_logged(&log_of(&world, Agent::Zedkube), &["isExtendedKubeAPIUnreachable"]).await;
    world.kill_all().await;
    agent.extend(Agent::ALL.map(|it| (it, lines(&world, it))));
}

fn log_of(world: &World, agent: Agent) -> String {
    let all = fs::read_dir(world.topic_root.path("log"))
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap());
    let newest = all.filter(|it| it.ends_with(agent.name())).max().unwrap();
    format!("log/{newest}")
}

#[tokio::test]
async fn o6_every_agent_logs_the_words_of_the_reference_and_its_command_reads_the_seconds() {
    let mut said = Vec::new();
    for image in [true, false] {
        let (_dir, world) = a_good_drain(image).await;
        said.extend(Agent::ALL.map(|it| (it, lines(&world, it))));
    }
    let seconds = said.iter().find(|it| it.0 == Agent::Zedkube).unwrap().1.clone();
    bad_drains(&mut said).await;
    for agent in Agent::ALL {
        let all: Vec<String> = said.iter().filter(|it| it.0 == agent).flat_map(|it| it.1.clone()).collect();
        let words = promised(agent);
        assert!(words.len() >= 3, "{agent:?}: {words:?}");
        assert_eq!(missing(words, &all), [""; 0], "{agent:?} never says");
        assert!(!all.iter().any(|it| it.contains(NEVER)), "{agent:?}");
    }
    reads_seconds(&seconds);
}

/// The documents' command, on newlogd's form of these lines.
fn reads_seconds(lines: &[String]) {
    if !["zgrep", "jq"].into_iter().all(is_here) {
        return;
    }
    let command = DOCUMENT.lines().find(|it| it.starts_with("zgrep 'kubevirt_node_drain")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (plain, packed) = (dir.path().join("dev.log"), dir.path().join("dev.log.gz"));
    // Each record of newlogd contains an agent's whole line.
    let record =
        |line: &String| json!({ "severity": "info", "source": "zedkube", "content": line }).to_string();
    let text = lines.iter().map(record).collect::<Vec<_>>().join("\n") + "\n";
    pubsub::store::replace(&plain, text.as_bytes()).unwrap();
    assert!(Command::new("gzip").arg(&plain).status().unwrap().success());
    let named = command.split_whitespace().find(|it| it.strip_suffix(".gz").is_some()).unwrap();
    let command = command.replace(named, path(&packed));
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<&str> = said.lines().collect();
    assert_eq!(figures.len(), 1, "{said} {}", String::from_utf8_lossy(&output.stderr));
    let (whole, parts) = figures[0].split_once('.').unwrap();
    assert!(parts.len() == 6 && whole.parse::<u64>().is_ok() && parts.parse::<u64>().is_ok(), "{said}");
}

fn path(it: &Path) -> &str {
    it.to_str().unwrap()
}
