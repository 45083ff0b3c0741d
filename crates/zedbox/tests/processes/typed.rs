//! What `zedbox` says to type in a state is typed there as printed, on running agents and an embedded cluster: the node says
//! something else then, or the command shows the thing that it is named for.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use outage::turn::record::LEASE;
use scenarios::{World, side_by_side};
use serde_json::json;
use sheet::DrainView;
use tokio::task::spawn_blocking;
use topics::DrainStatus;

use crate::drain_cmd::node::words;
use crate::skipped;

/// One step into a state.
enum By {
    /// The controller orders a reboot.
    Reboot,
    /// A budget allows no disruption.
    Full,
    /// Another node has the turn.
    Taken,
    Copied,
    /// A person holds a pod for an hour.
    Kept,
    /// A person has cordoned the other node.
    Cordoned,
    /// The list of turns is no list, or their number is negative.
    Broken,
    Negative,
    Line(&'static str),
}

use By::{Broken, Copied, Cordoned, Full, Kept, Line, Negative, Reboot, Taken};

enum So {
    /// The headline begins so by it.
    Is(&'static str),
    No(&'static str),
    Shows(&'static str),
}

use So::{Is, No, Shows};

/// A limit and steps; what the headline begins with then; whose text is read; what that prints and is typed; what comes of it.
type Row = ([&'static str; 2], &'static [By], &'static str, &'static str, &'static str, So);

const PLAIN: [&str; 2] = ["drain_limit_ms", "0"];
const SHUT: [&str; 2] = ["windows", r#"[{"start":"0 0 29 2 *","zone":"UTC","minutes":1}]"#];
const SHORT: [&str; 2] = ["drain_limit_ms", "1500"];
const STATUS: &str = "zedbox status";
const HELD: &[By] = &[Full, Reboot];
const TURN: &[By] = &[Taken, Reboot];
const FAILED: &[By] = &[Full, Line("zedbox drain --reason fan")];
const ASKED: &[By] = &[Line("zedbox drain --reason fan")];
const SITE: &[By] = &[Line("zedbox site shutdown --reason fan")];
const PAUSED: &[By] = &[Line("zedbox pause --reason fan")];
const STOPS: &[By] = &[Line("zedbox pause --reason fan"), Reboot];
const WAITS: &str = "WAITING FOR ITS TURN: it is the turn of edge-node-2";
const STOPPED: &str = "REQUESTED: reboot waits, the node is being checked";
const PASSED: &str = "zedbox go --past window --reason fan";
const UNDO: &str = "zedbox lock ignore edge-node-2 --undo";

const EMPTIED: &str =
    "kubectl -n eve-kube-app annotate --overwrite lease pillar-rs-outage pillar-rs/outage-holders='[]'";
const NUMBERED: &str = "kubectl -n eve-kube-app patch lease pillar-rs-outage --type=merge -p '{\"spec\":{\"leaseTransitions\":0}}'";

const ROWS: [Row; 26] = [
    (PLAIN, &[], "IN SERVICE", STATUS, "zedbox drain --reason TEXT", Is("SAFE TO WORK ON")),
    (PLAIN, &[], "IN SERVICE", "zedbox drain --reason fan", "zedbox undrain", Is("IN SERVICE")),
    (PLAIN, &[], "IN SERVICE", "zedbox pause --reason fan", "zedbox resume", Is("IN SERVICE")),
    (PLAIN, ASKED, "SAFE TO WORK ON", STATUS, "zedbox undrain", Is("IN SERVICE")),
    (PLAIN, PAUSED, "PAUSED: no operation", STATUS, "zedbox resume", Is("IN SERVICE")),
    (PLAIN, STOPS, "PAUSED: reboot 7", STATUS, "zedbox resume", Is("DRAINED")),
    (PLAIN, HELD, "BLOCKED", "zedbox pause --only-controller --reason fan", "zedbox resume", No("PAUSED")),
    (SHUT, &[Reboot], "WAITING FOR A WINDOW", STATUS, "zedbox go --past window", Is("DRAINED")),
    (
        SHUT,
        TURN,
        "WAITING FOR A WINDOW",
        PASSED,
        "zedbox go --past window --undo",
        Is("WAITING FOR A WINDOW"),
    ),
    (PLAIN, &[Copied, Reboot], STOPPED, STATUS, "zedbox go --past preflight:backups", Is("DRAINED")),
    (PLAIN, TURN, WAITS, STATUS, "zedbox lock status", Shows("edge-node-2")),
    (PLAIN, TURN, WAITS, "zedbox lock status", "zedbox lock release edge-node-2 --fence 7", Is("DRAINED")),
    (PLAIN, TURN, WAITS, "", "zedbox go --past turn --reason TEXT", Is("DRAINED")),
    (PLAIN, HELD, "BLOCKED", STATUS, "kubectl -n shop patch pdb", Is("DRAINED")),
    (SHORT, HELD, "NOT DRAINED", STATUS, "kubectl -n shop patch pdb", Is("DRAINED")),
    (PLAIN, &[Kept, Reboot], "BLOCKED", STATUS, "kubectl -n shop annotate pod", Is("DRAINED")),
    (PLAIN, &[Cordoned, Reboot], "WAITING", STATUS, "kubectl uncordon edge-node-2", Is("DRAIN")),
    (PLAIN, &[Broken, Reboot], "WAITING", "zedbox lock status", EMPTIED, Is("DRAINED")),
    (PLAIN, &[Negative, Reboot], "WAITING", "zedbox lock status", NUMBERED, Is("DRAINED")),
    (SHORT, HELD, "NOT DRAINED", STATUS, "zedbox go --past drain", Is("WITHOUT A PROVED DRAIN")),
    (PLAIN, &[Full], "IN SERVICE", "zedbox reboot --reason fan", "zedbox reboot --cancel", Is("IN SERVICE")),
    (SHORT, FAILED, "NOT DRAINED", STATUS, "zedbox drain --reason TEXT", Is("BLOCKED")),
    (SHORT, FAILED, "NOT DRAINED", STATUS, "zedbox undrain", Is("IN SERVICE")),
    (PLAIN, SITE, "WHOLE-SITE OPERATION", STATUS, "zedbox site status", Shows("edge-node-1")),
    (PLAIN, &[], "IN SERVICE", "zedbox site shutdown --reason fan", "zedbox site cancel", Is("IN SERVICE")),
    (PLAIN, &[], "IN SERVICE", "zedbox lock ignore edge-node-2 --reason fan", UNDO, Shows("edge-node-2")),
];

/// Each line that a row types, those before its state too.
pub(crate) fn lines() -> impl Iterator<Item = &'static str> {
    ROWS.iter().flat_map(|(_, steps, _, before, command, _)| {
        let typed = steps.iter().filter_map(|it| if let Line(line) = it { Some(*line) } else { None });
        typed.chain([*before, *command])
    })
}

/// What a shell prints for `line` on this tree, and its exit code.
async fn typed(world: &World, line: &str) -> (i32, String) {
    let root = world.topic_root.path("");
    let line = line.replace("TEXT", "'new fan'");
    let zedbox = env!("CARGO_BIN_EXE_zedbox");
    let root = root.display();
    let text = format!(
        "zedbox() {{ {zedbox} \"$@\" --root {root}; }}\n\
         kubectl() {{ KUBECONFIG={root}/kubeconfig command kubectl \"$@\"; }}\n{line}"
    );
    let ended = spawn_blocking(move || {
        let mut shell = Command::new("sh");
        shell.env_clear().env("PATH", "/usr/bin:/bin").args(["-c", &text]).current_dir("/").output().unwrap()
    });
    let ended = ended.await.unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = words(&String::from_utf8(said).unwrap());
    (ended.status.code().unwrap_or(-1), said)
}

/// The headline and the next step, once they are as wanted.
async fn until(world: &World, what: &str, wanted: impl Fn(&[String; 2]) -> bool) -> [String; 2] {
    let clock = agent::Clock::new();
    let end = clock.now() + Duration::from_secs(30);
    loop {
        let (view, now) = (DrainView::read(&world.topic_root, clock), clock.wall());
        let judged = view.judge(now);
        let said = [judged.headline.text.clone(), view.next_step(&judged, now)];
        if wanted(&said) {
            return said;
        }
        assert!(clock.now() < end, "{what}: {said:?}");
        clock.sleep_until(Some(clock.now() + Duration::from_millis(50))).await;
    }
}

/// Turn 7 is of edge-node-2.
fn take_turn(world: &World) {
    let sim = world.cluster.sim();
    let uid = sim.get("nodes", "", "edge-node-2").unwrap()["metadata"]["uid"].clone();
    let holder = json!([{ "node": "edge-node-2", "nodeUID": uid, "bootID": "b1", "op": "reboot", "counter": 3, "fence": 7,
        "phase": "drained", "since": "2026-03-14T09:30:30Z" }]);
    put_record(world, &holder.to_string(), 7);
}

fn put_record(world: &World, holders: &str, number: i32) {
    let notes = json!({ "pillar-rs/outage-holders": holders, "pillar-rs/outage-version": "1" });
    let name = json!({ "name": LEASE, "namespace": "eve-kube-app", "annotations": notes });
    let lease = json!({ "metadata": name, "spec": { "leaseTransitions": number } });
    world.cluster.sim().apply("coordination/leases", lease);
}

/// Commands of zedbox and kubectl in a text.
fn printed(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2).map(|it| it.trim_start_matches("sudo ").to_owned());
    spans.filter(|it| it.starts_with("zedbox ") || it.starts_with("kubectl ")).collect()
}

async fn play(row: &Row) {
    let ([limit, value], steps, headline, before, command, so) = row;
    let mut world = World::of_one_process(Path::new(env!("CARGO_BIN_EXE_zedbox"))).await;
    world.limits["zedkube"][*limit] = value.parse().unwrap();
    world.put("run/systemd/timesync/synchronized", "");
    let kubeconfig = world.topic_root.path("kubeconfig");
    world.put("etc/zedbox/zedbox.toml", &format!("kubeconfig = \"{}\"\n", kubeconfig.display()));
    world.start_all();
    world.status(DrainStatus::NotRequested).await;
    for step in *steps {
        match step {
            Reboot => {
                world.ask_reboot(7);
                until(&world, "the reboot to wait", |it| !it[0].starts_with("IN SERVICE")).await;
            }
            Full => world.cluster.block().await,
            Kept => {
                let sim = world.cluster.sim();
                let until = agent::Clock::new().wall().plus(Duration::from_hours(1)).to_timestamp();
                let pods = sim.list("pods");
                let here = |it: &&serde_json::Value| {
                    it["spec"]["nodeName"] == "edge-node-1"
                        && it["metadata"]["name"].as_str().unwrap().starts_with("web")
                };
                let pod = pods.iter().find(here).unwrap();
                assert!(sim.edit("pods", "shop", pod["metadata"]["name"].as_str().unwrap(), |it| {
                    it["metadata"]["annotations"]["pillar-rs/hold-until"] = until.to_string().into();
                }));
            }
            Taken => take_turn(&world),
            Broken => put_record(&world, "{", 7),
            Negative => put_record(&world, "[]", -1),
            Cordoned => assert!(world.cluster.sim().edit("nodes", "", "edge-node-2", |node| {
                node["spec"]["unschedulable"] = true.into();
            })),
            Copied => {
                let meta = json!({ "name": "b1", "namespace": "longhorn-system" });
                let backup = json!({ "metadata": meta, "status": { "state": "InProgress" } });
                world.cluster.sim().apply("longhorn/backups", backup);
            }
            Line(line) => assert_eq!(typed(&world, line).await.0, 0, "{line}"),
        }
    }
    let about = format!("{headline}, `{before}`, `{command}`");
    let of = |text: &str| printed(text).into_iter().find(|it| it.starts_with(*command));
    let is_there =
        |it: &[String; 2]| it[0].starts_with(*headline) && (*before != STATUS || of(&it[1]).is_some());
    let [_, next] = until(&world, &about, is_there).await;
    // What is printed beside it has a row too.
    let other = printed(&next).into_iter().find(|it| !ROWS.iter().any(|row| it.starts_with(row.4)));
    assert!(*before != STATUS || other.is_none(), "{about}: {other:?}");
    let text = if *before == STATUS { next } else { typed(&world, before).await.1 };
    let as_is = before.is_empty() || text.contains(*command);
    let line = of(&text).or_else(|| as_is.then(|| (*command).to_owned()));
    let Some(line) = line else { panic!("{about}: not in {text}") };
    if line.starts_with("kubectl") && !Path::new("/usr/bin/kubectl").exists() {
        return skipped(&format!("no kubectl, which `{line}` needs"));
    }
    let (Is(then) | No(then) | Shows(then)) = so;
    let is_so = |it: &[String; 2]| it[0].starts_with(*then) == matches!(so, Is(_));
    if !matches!(so, Shows(_)) {
        until(&world, &about, |it| !is_so(it)).await;
    }
    let (code, told) = typed(&world, &line).await;
    if matches!(so, Shows(_)) {
        assert!(told.contains(*then), "{about}: {line}: {code} {told}");
    } else {
        assert_eq!(code, 0, "{about}: {line}: {told}");
        until(&world, &format!("{about}: {line}: {told}"), is_so).await;
    }
    world.kill_all().await;
}

#[tokio::test]
async fn x1_what_is_printed_to_type_works_as_printed_in_that_state() {
    side_by_side(ROWS.iter().map(play)).await;
}
