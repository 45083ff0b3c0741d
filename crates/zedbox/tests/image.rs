//! The program as an image starts it: by a link without arguments, with a settings file, beside the
//! reference's processes; its log, signals and touch file.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pubsub::{TopicRoot, store};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use topics::GoTime;

use crate::drain_cmd::node::Ended;
use crate::{KilledChild, TOO_LONG, in_time, serve, skipped};

const ZEDBOX: &str = env!("CARGO_BIN_EXE_zedbox");
const LOG: &str = "log";
const SETTINGS: &str = "etc/zedbox/zedbox.toml";

/// A device and its process, killed at the end.
struct Device {
    process: Option<KilledChild>,
    root: TempDir,
    topic_root: TopicRoot,
}

impl Device {
    fn new() -> Self {
        // Beside the program, so that it can be linked to.
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        Self { root, topic_root, process: None }
    }

    fn put(&self, path: &str, text: &str) {
        store::replace(&self.topic_root.path(path), text.as_bytes()).unwrap();
    }

    /// A link of this name to the program.
    fn link(&self, agent: &str) -> PathBuf {
        let path = self.root.path().join(agent);
        symlink(ZEDBOX, &path).unwrap();
        path
    }

    fn start(&mut self, mut command: Command) -> Pid {
        let log = File::create(self.root.path().join(LOG)).unwrap();
        command.env_remove("KUBECONFIG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        self.process = Some(KilledChild(child));
        pid
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.topic_root.path(file)).unwrap_or_default()
    }

    async fn until(&self, file: &str, words: &str) -> String {
        // A growing log causes no event before its writer ends.
        let is = || self.topic_root.path(file).exists() && self.text(file).contains(words);
        let in_time = in_time(TOO_LONG, is).await;
        assert!(in_time, "{file} has no {words}:\n{}\n{}", self.text(file), self.text(LOG));
        self.text(file)
    }

    fn lives(&mut self) -> bool {
        self.process.as_mut().unwrap().try_wait().unwrap().is_none()
    }
}

/// Each line as newlogd's object.
fn lines(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Puts the program at `at` in `root`, with its libraries. Another process writes it: a file that this one has open for
/// writing may be inherited by a process that a thread starts, and then it cannot be run ("Text file busy").
pub(crate) fn put_program(root: &Path, at: &str) -> Result<(), String> {
    let listed = Command::new("ldd").arg(ZEDBOX).output().map_err(|why| format!("no program ldd: {why}"))?;
    let listed = String::from_utf8(listed.stdout).unwrap();
    let libraries = listed.split_whitespace().filter(|word| word.starts_with('/'));
    for (from, to) in libraries.map(|it| (it, it.trim_start_matches('/'))).chain([(ZEDBOX, at)]) {
        let place = root.join(to);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        if from != ZEDBOX || fs::hard_link(from, &place).is_err() {
            assert!(Command::new("cp").arg(from).arg(place).status().unwrap().success(), "copy {from}");
        }
    }
    Ok(())
}

fn furnish(root: &Path) {
    put_program(root, "opt/zededa/bin/pillar-rs").unwrap();
    let bin = root.join("opt/zededa/bin");
    for agent in ["zedagent", "baseosmgr", "nodeagent", "zedkube"] {
        symlink("pillar-rs", bin.join(agent)).unwrap();
    }
}

#[tokio::test]
async fn e1_a_link_without_arguments_runs_on_slash_beside_a_go_zedbox() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root may change the root of a process");
    }
    for (agent, topic) in
        [("zedkube", "zedkube/NodeDrainStatus/global.json"), ("nodeagent", "nodeagent.touch")]
    {
        let mut device = Device::new();
        furnish(device.root.path());
        device.put(SETTINGS, "# of this image\ndevice = \"exec:/opt/zededa/bin/pillar-rs\"\n");
        device.put("proc/sys/kernel/random/boot_id", "5c0c9bd5-2f0c-4e43-8d6a-7c1a2f8b1e11\n");
        // The Go zedbox lives, and its process number is in the reference's place.
        let go = std::process::id().to_string();
        for file in ["run/zedbox.pid", &format!("run/{agent}.pid")] {
            device.put(file, &go);
        }
        let mut command = Command::new("chroot");
        command.arg(device.root.path()).arg(format!("/opt/zededa/bin/{agent}"));
        command.env_clear().env("PATH", "/usr/sbin");
        let pid = device.start(command);
        device.until(&format!("run/{topic}"), "").await;
        device.until(&format!("run/{agent}.touch"), "").await;
        let log = device.until(LOG, "starts").await;
        let lines = lines(&log);
        assert!(lines.iter().any(|it| it["level"] == "warning" && it["source"] == agent), "{log}");
        assert!(lines.iter().any(|it| it["device"] == "exec:/opt/zededa/bin/pillar-rs"), "{log}");
        device.until(&format!("run/{agent}.pid"), &pid.as_raw_nonzero().to_string()).await;
        assert_eq!(device.until("run/zedbox.pid", "").await, go);
        assert!(device.lives());
    }
}

#[test]
fn e1_words_go_before_variables_and_variables_before_the_file() {
    let device = Device::new();
    device.put(SETTINGS, "device = \"exec:/no/file\"\n");
    let named = |variable: Option<&str>, word: Option<&str>| {
        let mut command = Command::new(ZEDBOX);
        command.arg("nodeagent").arg("--root").arg(device.root.path());
        command.envs(variable.map(|it| ("ZEDBOX_DEVICE", it)));
        command.args(word.into_iter().flat_map(|it| ["--device", it]));
        Ended::of(&mut command).ends(1)
    };
    for (variable, word, wins) in [
        (None, None, "/no/file cannot"),
        (Some("exec:/no/variable"), None, "/no/variable cannot"),
        (Some("exec:/no/variable"), Some("exec:/no/word"), "/no/word cannot"),
    ] {
        named(variable, word).warns(&[wins]);
    }
}

#[test]
fn a_settings_file_with_a_fault_starts_nothing_and_each_line_says_so_as_json_under_a_link() {
    let device = Device::new();
    device.put(SETTINGS, "devise = \"systemd\"\n\nlog = \"loud\"\n");
    let mut command = Command::new(device.link("zedkube"));
    let log = Ended::of(command.arg("--root").arg(device.root.path())).ends(2).err;
    let lines = lines(&log);
    assert_eq!(lines.iter().map(|it| &it["line"]).collect::<Vec<_>>(), [&json!(1), &json!(3), &Value::Null]);
    assert!(lines[0]["msg"].as_str().unwrap().ends_with("expected device, found devise"), "{log}");
    assert!(lines[2]["msg"].as_str().unwrap().contains("zedbox check"), "{log}");
    assert!(lines.iter().all(|it| it["source"] == "zedkube"), "{log}");
    assert!(!device.topic_root.path("run/zedkube").exists());
}

#[test]
fn what_keeps_the_program_from_starting_is_said_in_the_form_of_the_log_and_by_its_agent() {
    let device = Device::new();
    let path = device.link("zedkube");
    let link = || Command::new(&path);
    let root = device.root.path();
    // Words and variables.
    let bad = |command: &mut Command| {
        Ended::of(command.arg("--root").arg(root).env("ZEDBOX_DEVICE", "magic")).ends(2).err
    };
    let log = bad(&mut link());
    let json = lines(&log);
    assert_eq!((json.len(), &json[0]["level"], &json[0]["source"]), (1, &json!("error"), &json!("zedkube")));
    assert!(json[0]["msg"].as_str().unwrap().starts_with("invalid value 'magic' for '--device"), "{log}");
    let log = bad(link().args(["--log-format", "text"]));
    assert!(log.starts_with("error: invalid value 'magic'"), "{log}");
    for log in [
        bad(link().env("ZEDBOX_LOG_FORMAT", "journald")),
        bad(Command::new(ZEDBOX).args(["run", "--log-format", "journald"])),
    ] {
        assert!(log.starts_with("<3>zedbox: invalid value 'magic'") && log.lines().count() == 1, "{log}");
    }
    let log = Ended::of(link().arg("--unknown")).ends(2).err;
    assert!(lines(&log)[0]["msg"].as_str().unwrap().starts_with("unexpected argument '--unknown'"), "{log}");
    Ended::of(link().arg("--help")).done().says(&["Usage: "]);
    // The settings file.
    device.put(SETTINGS, "devise = \"systemd\"\n");
    let of =
        |words: [&str; 3]| Ended::of(Command::new(ZEDBOX).args(words).arg("--root").arg(root)).ends(2).err;
    let log = of(["run", "--log-format", "journald"]);
    assert!(log.lines().count() == 2 && log.lines().all(|it| it.starts_with("<3>zedbox: ")), "{log}");
    assert!(lines(&of(["nodeagent", "--log-format", "json"])).iter().all(|it| it["source"] == "nodeagent"));
}

/// The controller's properties with a level for one agent and another one for all.
fn levels(agent: &str, own: &str, default: &str) -> String {
    let value = |text: &str| json!({"Key": "", "ItemType": 3, "StrValue": text});
    json!({
        "GlobalSettings": {"debug.default.loglevel": value(default)},
        "AgentSettings": {agent: {"debug.loglevel": value(own)}},
    })
    .to_string()
}

#[tokio::test]
async fn e2_e3_signals_end_no_agent_and_its_log_follows_the_levels_of_the_controller_at_once() {
    let properties = "run/zedagent/ConfigItemValueMap/global.json";
    let mut device = Device::new();
    let mut command = Command::new(device.link("nodeagent"));
    command.arg("--root").arg(device.root.path());
    let pid = device.start(command);
    device.until(LOG, "\"starts\"").await;
    for (signal, word) in [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        kill_process(pid, signal).unwrap();
        device.until(LOG, word).await;
    }
    let before = device.until(LOG, "").await;
    assert!(lines(&before).iter().all(|it| it["level"] != "trace"), "{before}");
    device.put(properties, &levels("nodeagent", "trace", "error"));
    let log = device.until(LOG, "\"level\":\"trace\"").await;
    let all = lines(&log);
    for line in &all {
        let time: GoTime = line["time"].as_str().unwrap().parse().unwrap();
        assert!(!time.is_zero());
        assert!(["trace", "debug", "info", "warning", "error"].contains(&line["level"].as_str().unwrap()));
        assert_eq!(line["source"], "nodeagent");
    }
    assert!(device.lives());
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(device.process.as_mut().unwrap().wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn e3_a_level_of_the_command_line_stays() {
    let mut device = Device::new();
    device.put("run/zedagent/ConfigItemValueMap/global.json", &levels("nodeagent", "none", "none"));
    let mut command = Command::new(ZEDBOX);
    command.arg0("/usr/bin/nodeagent").args(["--log", "info"]).arg("--root").arg(device.root.path());
    let pid = device.start(command);
    device.until("run/nodeagent.pid", "").await;
    kill_process(pid, Signal::TERM).unwrap();
    device.until(LOG, "SIGTERM: leaving").await;
}

#[test]
fn join_waits_for_a_server_of_this_cluster_and_its_exit_code_says_what_came_of_it() {
    const CLUSTER: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let device = Device::new();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/EdgeNodeClusterConfig");
    let wait = |words: &str| {
        let mut command = Command::new(ZEDBOX);
        command.args(["join", "wait", "--root"]).arg(device.root.path()).args(words.split(' '));
        Ended::of(&mut command)
    };
    // One answer after another, the last one for good.
    let server = |answers: Vec<String>| {
        serve(move |nth, head| {
            assert!(head.starts_with("GET /status HTTP/1.1\r\n"));
            Some((200, answers.get(nth).or(answers.last())?.clone()))
        })
    };
    let this = format!("cluster:{CLUSTER}");
    let ready = server(vec![String::new(), "cluster:x".to_owned(), this.clone()]);
    let told = wait(&format!("--server {ready} --cluster {CLUSTER}")).ends(0);
    assert_eq!(told.out, format!("{this}\n"));
    told.warns(&["no server of a cluster yet", "it says `cluster:x`"]);
    let other = server(vec!["cluster:x".to_owned()]);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (server, code, why) in [(other, 4, "check --server"), (closed, 3, "is not ready after 0 s")] {
        wait(&format!("--server {server} --cluster {CLUSTER} --limit 0")).ends(code).warns(&[why]);
    }
    wait("--server http://x").ends(2);
    // Without --cluster the node's own config decides.
    let own = format!("--server {ready} --limit 0");
    wait(&own).ends(3).warns(&["names no cluster yet"]);
    let config = fs::read_dir(golden).unwrap().map(|it| fs::read_to_string(it.unwrap().path()).unwrap());
    let config = config.into_iter().find(|it| it.contains("\"Valid\":true")).unwrap();
    let its = serde_json::from_str::<Value>(&config).unwrap();
    device.put("run/zedagent/EdgeNodeClusterConfig/global.json", &config);
    wait(&own).ends(4).warns(&[its["ClusterID"]["UUID"].as_str().unwrap()]);
}

#[tokio::test]
async fn e10_on_another_hypervisor_not_supported_is_all_that_zedkube_says_and_does() {
    const STATUS: &str = "run/zedkube/NodeDrainStatus/global.json";
    for (kind, whole) in [("kvm", false), ("xen\n", false), ("kubevirt\n", true), ("", true), ("k\n", true)] {
        let mut device = Device::new();
        device.put("run/eve-hv-type", kind);
        let mut command = Command::new(device.link("zedkube"));
        command.arg("--root").arg(device.root.path());
        let pid = device.start(command);
        let status: Value = serde_json::from_str(&device.until(STATUS, "{").await).unwrap();
        assert_eq!(status["Status"], 1, "{kind}");
        device.until("run/zedkube.touch", "").await;
        if whole {
            device.until("run/zedkube/KubeLeaderElectInfo/global.json", "{").await;
            continue;
        }
        device.until(LOG, "there is nothing to drain").await;
        assert_eq!(status["RequestedBy"], 1);
        let mut topics: Vec<_> = fs::read_dir(device.topic_root.path("run/zedkube"))
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        topics.sort_unstable();
        // Every agent has its troubles topic.
        topics.retain(|it| !it.starts_with("AgentTrouble"));
        let one = ["NodeDrainStatus", "NodeDrainStatus.lock", "NodeDrainStatus.sock"];
        assert_eq!(topics, one, "{kind}");
        kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(device.process.as_mut().unwrap().wait().unwrap().code(), Some(0));
    }
}

#[tokio::test]
async fn the_watchdog_sees_a_program_that_cannot_learn_the_identity_of_its_boot_yet() {
    let mut device = Device::new();
    let boot_id = device.topic_root.path("run/device/boot-id");
    fs::create_dir_all(&boot_id).unwrap();
    let mut command = Command::new(device.link("nodeagent"));
    command.arg("--root").arg(device.root.path());
    device.start(command);
    device.until(LOG, "no agent starts").await;
    device.until("run/nodeagent.touch", "").await;
    assert!(!device.topic_root.path("run/nodeagent.pid").exists());
    fs::remove_dir(&boot_id).unwrap();
    device.until("run/nodeagent.pid", "").await;
}

#[test]
fn x4_systemd_hears_that_the_agents_are_ready_once_each_had_a_turn_and_that_they_stop() {
    let mut device = Device::new();
    let socket = UnixDatagram::bind(device.root.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(TOO_LONG)).unwrap();
    let heard = || {
        let mut text = [0; 64];
        let bytes = socket.recv(&mut text).unwrap();
        String::from_utf8(text[..bytes].to_vec()).unwrap()
    };
    let mut command = Command::new(ZEDBOX);
    command.args(["run", "--root"]).arg(device.root.path());
    let pid = device.start({
        command.env("NOTIFY_SOCKET", device.root.path().join("notify"));
        command
    });
    assert_eq!(heard(), "READY=1\nWATCHDOG=1", "{}", device.text(LOG));
    for agent in ["zedagent", "baseosmgr", "nodeagent", "zedkube"] {
        assert!(device.topic_root.path(&format!("run/{agent}.touch")).exists(), "{agent} had no turn yet");
    }
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(heard(), "STOPPING=1");
    assert!(device.process.take().unwrap().wait().unwrap().success());
}
