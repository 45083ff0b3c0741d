//! `zedbox demo`: the story of each scenario, to its end; and with `--keep`, each printed line is run.

mod api;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use api::{Api, Nodes, is_at_rest};

use crate::drain_cmd::node::{Ended, Reader, has, words};

const NODES: [&str; 3] = ["edge-node-1", "edge-node-2", "edge-node-3"];
/// Repetitions of a watch that ends with its `--timeout` before the drain is blocked, as on a busy machine.
const LOOKS: usize = 12;
/// Sentences of a story, at most.
const SENTENCES: usize = 10;
/// Words of the agents and their files, in small letters: no word of a story.
const STRANGE: &str = "cmd counter deviceop drainrequest drainstatus fence gate nodeagent pending preflight rebootconfig \
    run/ waitdrain zedagent zedkube";
const SEARCH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Whether a line that is typed finds this program.
fn found(program: &str) -> bool {
    SEARCH.split(':').any(|it| Path::new(it).join(program).exists())
}

/// A running demo, and its output so far.
struct Demo {
    told: Reader,
    dir: TempDir,
}

impl Demo {
    fn start(words: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let errors = std::fs::File::create(dir.path().join("errors")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_zedbox"));
        command.arg("demo").arg("--dir").arg(dir.path().join("demo")).args(words);
        // Without this machine's environment.
        let told = Reader::of(command.env_clear().env("PATH", SEARCH).stderr(errors));
        Self { told, dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("demo")
    }

    /// What it has said on standard error.
    fn errors(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("errors")).unwrap()
    }

    /// The lines with a time; wrapped ones whole.
    fn story(&self) -> Vec<String> {
        let told = self.told.read.iter().take_while(|it| !it.is_empty());
        let mut story: Vec<String> = Vec::new();
        for line in told {
            match line.split_once(" s  ") {
                Some((secs, text)) if secs.trim().parse::<f64>().is_ok() => story.push(text.to_owned()),
                _ => {
                    // Not a count.
                    let more = line.strip_prefix("          ").filter(|it| !it.contains(" s until "));
                    if let (Some(last), Some(more)) = (story.last_mut(), more) {
                        last.push(' ');
                        last.push_str(more);
                    }
                }
            }
        }
        story
    }

    /// Runs a printed line in a shell after `before`.
    fn shell(&self, before: &str, line: &str) -> Ended {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{before}\n{line}")]).current_dir("/");
        Ended::of(shell.env_clear().env("PATH", SEARCH).env("HOME", self.dir.path()))
    }

    /// `drained`: some node was, and its history is shown.
    fn leaves_what_it_says(&self, drained: bool) {
        let left = self.told.read.iter().position(|it| it == "Left for a look:").unwrap();
        let rest = &self.told.read[left..];
        let shown = rest.iter().position(|it| it.starts_with("$ zedbox history"));
        assert_eq!(shown.is_some(), drained, "{rest:?}");
        let (looks, history) = rest.split_at(shown.unwrap_or(rest.len()));
        let lines: Vec<&str> = looks.iter().filter_map(|it| it.strip_prefix("  ")).collect();
        assert!(lines.len() == 4 && lines[3].contains(" demo --keep "), "{looks:?}");
        for line in &lines[..3] {
            if line.starts_with("jq ") && !found("jq") {
                continue;
            }
            let ended = self.shell("", line);
            assert!(ended.code == 0 && !ended.out.is_empty(), "{line}: {ended:?}");
        }
        // The printed history is the one on disk.
        let history: Vec<&String> = history.iter().collect();
        let blocks = history.split(|it| it.starts_with("$ zedbox ")).skip(1);
        let heads = history.iter().filter(|it| it.starts_with("$ zedbox "));
        for (head, block) in heads.zip(blocks) {
            let line = head.strip_prefix("$ ").unwrap();
            let now = self.shell(&format!("PATH={}/bin:$PATH", self.root().display()), line).out;
            let then: Vec<&str> = block.iter().map(|it| it.as_str()).collect();
            assert_eq!(then.join("\n").trim_end(), now.trim_end(), "{line}");
        }
        Ended::of(Command::new(env!("CARGO_BIN_EXE_zedbox")).arg("check").arg(self.root())).ends(0);
    }

    /// The state of a node's drain.
    fn status(&self, node: &str) -> Ended {
        let mut status = Command::new(env!("CARGO_BIN_EXE_zedbox"));
        Ended::of(status.args(["status", "--root"]).arg(self.root().join(node)))
    }
}

/// Runs a scenario: its story is `told`, a sentence for each, which contains those words.
fn scenario(words: &[&str], told: &[&str], counter: u32) -> Demo {
    let mut demo = Demo::start(words);
    assert_eq!(demo.told.end(), 0, "{}\n{}", demo.told.read.join("\n"), demo.errors());
    assert_eq!(demo.errors(), "");
    let story = demo.story();
    assert!(story.len() <= SENTENCES && story.len() == told.len(), "{}: {story:#?}", story.len());
    for (sentence, words) in story.iter().zip(told) {
        assert!(sentence.contains(words) && sentence.ends_with('.'), "`{words}` is not in `{sentence}`");
        let small = sentence.to_lowercase();
        let strange: Vec<&str> = STRANGE.split(' ').filter(|it| small.contains(it)).collect();
        let times =
            small.contains(|it: char| it.is_ascii_digit()) && small.contains(':') && small.contains('z');
        assert!(strange.is_empty() && !times && !sentence.contains("EVE"), "{strange:?}: {sentence}");
    }
    let machines = if words.contains(&"site-stop") { NODES.len() } else { 1 };
    for node in NODES.iter().take(machines).filter(|it| demo.root().join(it).exists()) {
        demo.status(node).ends(0).begins("IN SERVICE");
        let file = demo.root().join(node).join("persist/status/rebootConfig");
        let executed = std::fs::read_to_string(file).unwrap();
        assert!(executed.contains(&format!("\"Counter\":{counter},")), "{node}: {executed}");
    }
    demo.leaves_what_it_says(!words.contains(&"site-stop"));
    demo
}

fn counts(demo: &Demo, what: &str) -> usize {
    demo.told.read.iter().filter(|it| it.ends_with(&format!(" s until {what}"))).count()
}

#[test]
fn x1_a_reboot_is_blocked_by_a_budget_and_goes_ahead_once_that_is_open() {
    let told = [
        "3 nodes run a shop",
        "The controller wants edge-node-1 to reboot",
        "edge-node-1 is cordoned: no new pod starts there",
        "3 of 4 pods have left; shop/web-5f7d-",
        "An operator lowers the budget: 2 of 3",
        "edge-node-1 is proved empty",
        "edge-node-1 reboots (only written down",
        "edge-node-1 is healthy again",
    ];
    let demo = scenario(&[], &told, 7);
    assert!(demo.story()[3].ends_with(" may not: its budget requires 3 of 3."), "{:?}", demo.story());
}

#[test]
fn x1_a_failed_drain_keeps_the_machine_up_and_the_next_one_lets_it_reboot() {
    let told = [
        "The controller wants edge-node-1 to reboot",
        "edge-node-1 is cordoned",
        "may not: its budget requires 3 of 3",
        "the drain is given up after 10 s: edge-node-1 stays up",
        "The next try is in 5 s; meanwhile an operator lowers the budget",
        "edge-node-1 is cordoned again",
        "edge-node-1 is proved empty",
        "edge-node-1 reboots",
        "edge-node-1 is healthy again",
    ];
    let demo = scenario(&["--scenario", "failed-drain"], &told, 7);
    assert!(counts(&demo, "the drain is given up") > 0, "{:?}", demo.told.read);
    let text = words(&demo.told.read.join(" "));
    let (_, history) = text.split_once("$ zedbox ").unwrap();
    has(history, &["COMPLETE (9), drained, verified", "FAILEDDRAIN (8), gave up"]);
}

#[test]
fn x1_an_os_update_waits_for_its_drain_and_the_new_image_runs() {
    let told = [
        "The controller wants edge-node-1 to run version 14.5.1-lts-kubevirt-amd64 of its OS",
        "edge-node-1 is cordoned",
        "edge-node-1 is proved empty",
        "edge-node-1 reboots",
        "edge-node-1 is healthy again",
        "It runs 14.5.1-lts-kubevirt-amd64, which has to hold for 30 s",
        "Version 14.5.1-lts-kubevirt-amd64 has held, and is kept",
    ];
    let demo = scenario(&["--scenario", "os-update"], &told, 6);
    assert!(counts(&demo, "the new version is kept") >= 4, "{:?}", demo.told.read);
}

#[test]
fn x1_a_site_is_switched_off_and_comes_back() {
    let told = [
        "3 nodes run 5 virtual machines",
        "An operator shuts the whole site down",
        "All nodes are cordoned",
        "The virtual machines are stopped",
        "The disks are detached",
        "the nodes switch themselves off",
        "All nodes are off, and somebody switches them on again",
        "All nodes are healthy again",
        "What was stopped is started again",
        "The site is back: all nodes take pods, and all virtual machines run",
    ];
    scenario(&["--scenario", "site-stop"], &told, 6);
}

#[test]
fn x1_virtual_machines_move_before_their_node_reboots() {
    let told = [
        "edge-node-1 runs two virtual machines, shop/camera and shop/till",
        "The controller wants edge-node-1 to reboot",
        "edge-node-1 is cordoned",
        "shop/",
        "shop/",
        "shop/",
        "shop/",
        "edge-node-1 is proved empty",
        "edge-node-1 reboots",
        "edge-node-1 is healthy again",
    ];
    let demo = scenario(&["--scenario", "moving-machines"], &told, 7);
    for machine in ["shop/camera", "shop/till"] {
        let moves: Vec<String> = demo.story().into_iter().filter(|it| it.starts_with(machine)).collect();
        let target = moves[0].strip_prefix(&format!("{machine} moves to ")).unwrap();
        let target = target.strip_suffix(" while it runs.").unwrap();
        assert_ne!(target, "edge-node-1");
        assert_eq!(moves[1], format!("{machine} has arrived on {target}; it was never stopped."));
    }
}

#[test]
fn x1_a_demo_has_one_to_five_nodes_or_says_why_not() {
    for nodes in ["1", "2", "5"] {
        let mut demo = Demo::start(&["--nodes", nodes]);
        assert_eq!(demo.told.end(), 0, "{nodes}: {}", demo.told.read.join("\n"));
        let story = demo.story();
        assert!(story[0].starts_with(&format!("{nodes} node")), "{story:?}");
        assert!(story[3].ends_with(&format!(" its budget requires {nodes} of {nodes}.")), "{story:?}");
        assert!(story[7].starts_with("edge-node-1 is healthy again"), "{story:?}");
    }
    let other = "a machine moves to another node; use --nodes 2 or more";
    for (nodes, scenario, why) in [("1", "moving-machines", other), ("6", "reboot", "6 is not in 1..=5")] {
        let mut demo = Demo::start(&["--nodes", nodes, "--scenario", scenario]);
        assert_ne!(demo.told.end(), 0);
        assert!(demo.errors().contains(why), "{}", demo.errors());
    }
}

/// A numbered thing to try.
struct Item {
    title: String,
    lines: Vec<String>,
}

/// The printed guide: its beginning, and the five things to try.
fn guide(printed: &[String]) -> (Vec<String>, Vec<Item>) {
    let from = printed.iter().position(|it| it.contains("In another terminal:")).unwrap();
    let (mut first, mut items): (Vec<String>, Vec<Item>) = (Vec::new(), Vec::new());
    for line in &printed[from..] {
        if let Some(command) = line.strip_prefix("  ") {
            items.last_mut().map_or(&mut first, |it| &mut it.lines).push(command.to_owned());
        } else if line.starts_with(|it: char| it.is_ascii_digit()) {
            items.push(Item { title: line.clone(), lines: Vec::new() });
        }
    }
    (first, items)
}

/// A kept demo, a second terminal, and the demo's guide.
struct Kept {
    demo: Demo,
    api: Api,
    /// Typed first in the second terminal.
    setup: String,
    looks: Vec<String>,
    items: Vec<Item>,
    kubectl: bool,
}

impl Kept {
    fn start(scenario: &str) -> Self {
        let mut demo = Demo::start(&["--keep", "--scenario", scenario]);
        demo.told.until("Ctrl-C ends the demo");
        let (first, items) = guide(&demo.told.read);
        let (setup, looks): (Vec<String>, Vec<String>) =
            first.into_iter().partition(|it| it.starts_with("cd ") || it.starts_with("export "));
        let looks = looks.into_iter().filter(|it| it.starts_with("kubectl ")).collect();
        let api = Api::of(&demo.root().join("edge-node-1/run/.kube/k3s/k3s.yaml"));
        assert_eq!(items.len(), 5, "what to try");
        Self { setup: setup.join("\n"), looks, items, api, kubectl: found("kubectl"), demo }
    }

    /// Types the lines of the things to try with these titles.
    fn try_all(&self, titles: &[&str]) {
        for title in titles {
            let item = self.items.iter().find(|it| it.title.contains(title));
            self.try_it(item.unwrap_or_else(|| panic!("no `{title}` in {:?}", self.demo.told.read)));
        }
    }

    fn run(&self, line: &str) -> (i32, String) {
        if line.contains("kubectl ") && !self.kubectl {
            return (0, self.api.stands_in(line));
        }
        let Ended { code, out, err } = self.demo.shell(&self.setup, line);
        (code, out + &err)
    }

    /// A line with `--timeout`: on a busy machine the drain may be in progress then (3), and blocked (4) later.
    fn until_blocked(&self, line: &str) -> (i32, String) {
        let node = line.split("--root ").nth(1).unwrap().split(' ').next().unwrap();
        let again = format!("zedbox watch --timeout 10s --root {node}");
        let looks = std::iter::once(line).chain(std::iter::repeat_n(again.as_str(), LOOKS));
        looks.map(|it| self.run(it)).find(|(code, _)| *code != 3).unwrap()
    }

    /// Types all lines of one thing to try, and waits until the cluster is as before.
    fn try_it(&self, item: &Item) {
        let mut nodes = Nodes::watch(&self.api);
        let text = item.lines.join("\n");
        for line in &item.lines {
            let blocked = text.contains(" --timeout ")
                && (line.contains(" --timeout ") || line.contains("zedbox status"));
            let (code, said) = if blocked { self.until_blocked(line) } else { self.run(line) };
            let flat = words(&said);
            // The machine's own disk may be nearly full; `doctor` is right to warn then.
            let is_disk = line.contains("zedbox doctor")
                && flat.contains("/persist has ")
                && flat.contains(" 1 layer with warnings");
            assert_eq!(code, if blocked || is_disk { 4 } else { 0 }, "{}: {line}: {said}", item.title);
            let shows = match line {
                _ if line.contains("zedbox status") && text.contains("pause") => "PAUSED",
                _ if blocked => "shop/web",
                _ if line.contains("describe node") => "cpu 0 (0%)",
                _ if line.contains(" history ") => "COMPLETE (9)",
                _ if line.contains("vmi,vmim") => "Succeeded",
                _ if line.contains("apply -f -") => "serviceaccount/pillar-rs created",
                _ if line.contains("agents get nodes") => "edge-node-3 Ready",
                _ => "",
            };
            let is_run = self.kubectl || !line.contains("kubectl ");
            assert!(!is_run || flat.contains(shows), "{line}: {said}");
        }
        let all = ["edge-node-$n", "site restart", "site shutdown"].iter().any(|it| text.contains(it));
        let acts = ["zedbox drain ", "reboot", "shutdown", "restart"].iter().any(|it| text.contains(it));
        let named = |it: &&str| acts && (all || text.contains(*it));
        let drained: Vec<&str> = NODES.into_iter().filter(named).collect();
        if text.contains(" shutdown ") {
            nodes.until_on(&drained);
        } else {
            let goes = text.contains("zedbox reboot ") || text.contains("site restart");
            nodes.until_back(&drained, if goes { &drained } else { &[] });
        }
        is_at_rest(&self.api);
    }

    /// Reboots of each machine, with the story's own.
    fn reboots(&self) -> [usize; 3] {
        NODES.map(|node| {
            let record = self.demo.root().join(node).join("persist/device/recorded.jsonl");
            let recorded = std::fs::read_to_string(record).unwrap_or_default();
            recorded.lines().filter(|it| it.contains("\"reboot\"")).count()
        })
    }

    /// Ends it, and passes on its output.
    fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.demo.told.child), Signal::INT).unwrap();
        assert_eq!(self.demo.told.end(), 0);
        for node in NODES {
            let status = self.demo.status(node).ends(0).out;
            let stopped = status.lines().any(|it| it.starts_with("zedkube ") && it.contains("not running"));
            assert!(stopped, "{node}: {status}");
        }
        self.demo.leaves_what_it_says(true);
        words(&self.demo.told.read.join(" "))
    }
}

#[test]
fn x1_a_cluster_that_is_kept_drains_as_its_printed_lines_say() {
    let kept = Kept::start("reboot");
    let demo = &kept.demo;
    let root = demo.root().display().to_string();
    for line in demo.told.read.iter().filter(|it| !it.contains(&root)) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(kept.setup.contains("export KUBECONFIG="), "{}", kept.setup);
    for line in &kept.looks {
        let (code, said) = kept.run(line);
        assert_eq!(code, 0, "{line}: {said}");
        assert!(NODES.iter().all(|it| said.contains(it)), "{line}: {said}");
    }
    let printed = demo.told.read.iter().flat_map(|it| it.split_whitespace());
    let pages: Vec<&str> = printed.filter(|it| it.starts_with("http://")).collect();
    assert_eq!(pages.len(), 3, "{pages:?}");
    for (page, node) in pages.iter().zip(NODES) {
        let (status, body) = api::get(page);
        assert_eq!(status, 200, "{page}");
        assert!(body.contains("<title>") && body.contains(node), "{page}: {body}");
    }

    kept.try_all(&["Look first", "A budget", "for work on it", "Keep operations away"]);
    // The story's own.
    assert_eq!(kept.reboots(), [1, 0, 0]);
    kept.try_all(&["Reboot all nodes at once"]);
    assert_eq!(kept.reboots(), [2, 1, 1]);
    kept.end();
}

#[test]
fn x1_a_blocked_reboot_of_a_cluster_that_is_kept_is_forced_and_a_zedkube_that_is_killed_continues() {
    let kept = Kept::start("failed-drain");
    let pid = || std::fs::read_to_string(kept.demo.root().join("edge-node-3/run/zedkube.pid")).unwrap();
    let killed = pid();
    kept.try_all(&["Go past a drain", "Kill an agent", "Make what an installation needs"]);
    assert_ne!(pid(), killed, "zedkube was not killed");
    let (_, forced) = kept.run("zedbox history --root edge-node-2");
    assert!(forced.contains("smoke"), "{forced}");
    // The story's own and the forced one.
    assert_eq!(kept.reboots(), [1, 1, 0]);
    assert!(kept.end().contains("zedkube of edge-node-3 ended (signal: 9 (SIGKILL)); it is started again"));
}

#[test]
fn x1_a_site_that_is_kept_comes_back_once_it_is_off_and_its_nodes_restart_in_turn() {
    let kept = Kept::start("site-stop");
    kept.try_all(&["Switch one machine off", "Restart the site", "Shut the whole site down"]);
    kept.end();
}

#[test]
fn x1_machines_of_a_cluster_that_is_kept_move_when_their_node_is_drained() {
    let kept = Kept::start("moving-machines");
    kept.try_all(&["Drain the node of a virtual machine"]);
    kept.end();
}

#[test]
fn x1_agents_of_a_demo_end_with_it_however_it_ends() {
    let mut demo = Demo::start(&["--keep", "--scenario", "moving-machines"]);
    demo.told.until("Ctrl-C ends the demo");
    demo.told.child.kill().unwrap();
    let (sender, ended) = mpsc::channel();
    let locks = NODES.map(|it| demo.root().join(it).join("run/zedkube/NodeDrainStatus.lock"));
    std::thread::spawn(move || {
        for lock in locks {
            // Held while the agent lives.
            flock(std::fs::File::open(lock).unwrap(), FlockOperation::LockExclusive).unwrap();
        }
        sender.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(30)).unwrap();
}

#[test]
fn x1_ctrl_c_in_the_middle_of_a_scenario_leaves_the_tree_and_says_how_to_continue() {
    let mut demo = Demo::start(&["--verbose"]);
    for words in
        ["3 nodes run a shop", "asks for a drain: NodeDrainRequest {2,", "NodeDrainStatus 5 Cordoned"]
    {
        demo.told.until(words);
    }
    kill_process(Pid::from_child(&demo.told.child), Signal::INT).unwrap();
    assert_eq!(demo.told.end(), 0, "{}", demo.told.read.join("\n"));
    let text = words(&demo.told.read.join(" "));
    has(&text, &["Stopped; what was written last stays", "demo --keep --dir"]);
    // The drain is unchanged.
    assert!(!text.contains("COMPLETE (9)"), "{text}");
    assert!(matches!(demo.status("edge-node-1").code, 3 | 4));
}
