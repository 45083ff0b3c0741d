//! Machines that refuse, hang or stay up.
//!
//! The agent ends and starts again within one boot.
//!
//! Hooks before a reboot: real programs, and a loop that goes round while they run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use topics::AgentTrouble;

use super::*;

/// A machine that answers by this function, which hears what it is asked for.
pub(crate) struct ScriptedDevice<F>(pub(crate) F);

impl<F: Fn(&str) -> Result<(), Error> + Send + Sync> Device for ScriptedDevice<F> {
    fn operate(&self, operation: MachineOperation, _why: &str) -> Result<(), Error> {
        (self.0)(operation.word())
    }

    fn sync(&self) -> Result<(), Error> {
        (self.0)("sync")
    }

    fn hold_others(&self, holds: bool) {
        (self.0)(if holds { "hold others" } else { "hold nobody" }).unwrap();
    }
}

/// A machine that does this when it is told to restart, and nothing when it gets any other order.
fn on_reboot(reboot: impl Fn() + Send + Sync + 'static) -> Box<dyn Device> {
    Box::new(ScriptedDevice(move |asked: &str| {
        if asked == "reboot" {
            reboot();
        }
        Ok(())
    }))
}

#[tokio::test]
async fn a_machine_that_stays_up_is_left_to_its_watchdog() {
    let mut world = World::new();
    world.limits.hard_exit_ms = 1;
    let (asked, heard) = mpsc::channel();
    // It stays up.
    let number = world.topic_root.path(agent::reasons::NUMBER);
    world.start_with(Box::new(ScriptedDevice(move |word: &str| {
        asked.send(format!("{word}, reason stored: {}", number.exists())).unwrap();
        Ok(())
    })));
    world.command_reboot();
    world.ended().await.unwrap();
    let words: Vec<String> = heard.iter().collect();
    let stored = |word: &str| format!("{word}, reason stored: true");
    let reboot = words.iter().position(|word| *word == stored("reboot")).unwrap();
    assert_eq!(words[reboot - 1], stored("sync"));
    // The first sync runs on a thread of its own and may be late; nothing waits for it.
    assert_eq!(words.len(), 3, "{words:?}");
}

#[tokio::test]
async fn a_machine_that_does_not_even_answer_is_left_to_its_watchdog() {
    let mut world = World::new();
    world.limits.hard_exit_ms = 1;
    let (let_go, hung) = mpsc::channel::<()>();
    let hung = Mutex::new(hung);
    // It does not answer until it is let go.
    world.start_with(on_reboot(move || assert!(hung.lock().unwrap().recv().is_err())));
    world.command_reboot();
    world.ended().await.unwrap();
    drop(let_go);
}

#[tokio::test]
async fn a_machine_that_refuses_is_asked_until_it_obeys() {
    let mut world = World::new();
    let (obeyed, heard) = mpsc::channel();
    let refusals = AtomicU32::new(0);
    world.start_with(Box::new(ScriptedDevice(move |asked: &str| match asked {
        "reboot" if refusals.fetch_add(1, Ordering::Relaxed) < 2 => {
            Err(Error::Device { operation: "reboot", by: "test".into(), reason: "not now".into() })
        }
        "reboot" => {
            obeyed.send(()).unwrap();
            Ok(())
        }
        "sync" => Err(Error::Device { operation: "sync", by: "test".into(), reason: "no".into() }),
        _ => Ok(()),
    })));
    world.command_reboot();
    tokio::task::spawn_blocking(move || heard.recv_timeout(TOO_LONG)).await.unwrap().unwrap();
    world.kill().await;
}

#[tokio::test]
async fn p3_a_machine_is_not_asked_while_the_answer_says_that_the_node_is_drained_again() {
    let mut world = World::new();
    world.limits.hard_exit_ms = 1;
    world.answers(DrainStatus::Starting);
    let (asked, heard) = mpsc::channel();
    world.command_reboot();
    let topic_root = world.topic_root.clone();
    let tell = move || {
        asked
            .send(agent::wire::peek::<NodeDrainProgress>(&topic_root, "zedkube", "global").unwrap())
            .unwrap();
    };
    world.start_with(on_reboot(tell));
    world.status(|it| it.all_domains_halted && it.wait_drain_in_progress).await;
    world.answers(DrainStatus::Complete);
    world.ended().await.unwrap();
    let seen = heard.iter().next().unwrap().unwrap();
    assert_eq!(seen.answers[0].status, DrainStatus::Complete);
}

#[tokio::test]
async fn u1_a_machine_is_asked_once_zedkube_says_go_and_what_it_could_not_read_is_noted() {
    const QUESTION: &str = "run/nodeagent/OutageQuestion/global.json";
    let mut world = World::new();
    world.limits.hard_exit_ms = 1;
    world.answers_by_request(DrainStatus::Complete);
    let (asked, heard) = mpsc::channel();
    world.start_with(on_reboot(move || asked.send(()).unwrap()));
    world.command_reboot();
    let read = |text: &str| go_json::from_slice::<OutageQuestion>(text.as_bytes()).unwrap();
    let question = read(&world.until(QUESTION, |text| read(text).kind == OutageKind::LastLook).await);
    let answer = |verdict, why: &str| OutageAnswer {
        number: question.number,
        verdict,
        why: why.to_owned(),
        next_step: "repair etcd".to_owned(),
        unread: true,
        ..OutageAnswer::default()
    };
    world.put("zedkube", "global", &answer(OutageVerdict::Hold, "etcd needs this node for its quorum"));
    let held = read(&world.until(QUESTION, |text| !read(text).held.is_empty()).await);
    assert_eq!(
        (held.held.as_str(), held.next_step.as_str()),
        ("etcd needs this node for its quorum", "repair etcd")
    );
    assert!(heard.try_recv().is_err());
    let again = read(&world.until(QUESTION, |text| read(text).number > question.number).await);
    let goes =
        OutageAnswer { number: again.number, ..answer(OutageVerdict::Go, "the Lease could not be read") };
    world.put("zedkube", "global", &goes);
    world.ended().await.unwrap();
    // The call is on a thread of its own and may come a moment after the agent has left.
    tokio::task::spawn_blocking(move || heard.recv_timeout(TOO_LONG)).await.unwrap().unwrap();
    let marked = world.text(agent::reasons::REASON).unwrap();
    assert!(
        marked.starts_with(&format!("{REASON}; the Lease could not be read at EVE version ")),
        "{marked}"
    );
    assert!(world.text(agent::reasons::LOG).unwrap().ends_with(&marked));
}

#[tokio::test]
async fn p3_a_drain_that_is_undone_while_the_disks_take_their_time_holds_the_machine_back() {
    let mut world = World::new();
    world.answers(DrainStatus::Complete);
    let (began, syncs) = mpsc::channel();
    let (let_go, held) = mpsc::channel::<()>();
    let (asked, heard) = mpsc::channel();
    let topic_root = world.topic_root.clone();
    let held = Mutex::new(held);
    world.start_with(Box::new(ScriptedDevice(move |call: &str| {
        if call == "reboot" {
            asked
                .send(agent::wire::peek::<NodeDrainProgress>(&topic_root, "zedkube", "global").unwrap())
                .unwrap();
        } else if call == "sync" {
            began.send(()).unwrap();
            // Nothing is ever sent: it ends once it is let go, as does every later one at once.
            assert!(held.lock().unwrap().recv().is_err());
        }
        Ok(())
    })));
    world.command_reboot();
    // The first sync, and the last one.
    let both = move || (0..2).try_for_each(|_| syncs.recv_timeout(TOO_LONG)).map(|()| syncs);
    let syncs = tokio::task::spawn_blocking(both).await.unwrap().unwrap();
    world.answers(DrainStatus::Starting);
    drop(let_go);
    // It says that it is held back before it looks again.
    world.status(|it| it.wait_drain_in_progress).await;
    let third = move || syncs.recv_timeout(TOO_LONG);
    tokio::task::spawn_blocking(third).await.unwrap().unwrap();
    assert!(heard.try_recv().is_err(), "asked while the node is drained again");
    world.answers(DrainStatus::Complete);
    let seen = tokio::task::spawn_blocking(move || heard.recv_timeout(TOO_LONG)).await.unwrap().unwrap();
    assert_eq!(seen.unwrap().answers[0].status, DrainStatus::Complete);
    world.kill().await;
}

#[tokio::test]
async fn an_agent_killed_in_mid_reboot_ends_in_the_same_reboot_done_once() {
    // Killed while it waits, with the reason not yet stored and stored, and after the deed, once with the journal
    // as it was before the answer of the device.
    for (delay, mark, file, unanswered) in [
        (60_000, "\"reboot\"", journal::PATH, false),
        (1, REASON, agent::reasons::REASON, false),
        (1, "\"Done\":true", journal::PATH, false),
        (1, "\"Done\":true", journal::PATH, true),
    ] {
        let mut world = World::new();
        if file == agent::reasons::REASON {
            world.put("domainmgr", "app", &DomainStatus { activated: true });
        }
        world.limits.min_reboot_delay_ms = delay;
        world.start();
        world.status(|_| true).await;
        world.command_reboot();
        world.until(file, |text| text.contains(mark)).await;
        world.kill().await;
        if unanswered {
            let journal = world.text(journal::PATH).unwrap();
            world.write(journal::PATH, &journal.replace("\"Done\":true", "\"Done\":false"));
        }
        world.limits = brisk();
        world.put("domainmgr", "app", &DomainStatus { activated: false });
        world.start_again().await;
        world.until_journal("\"Done\":true").await;
        let status = world.status(|it| it.all_domains_halted).await;
        assert!(status.device_reboot);
        assert_eq!(
            status.boot_reason,
            BootReason::Unknown,
            "the reason of this boot's end is not that of the last"
        );
        assert_eq!(status.restart_counter, 0);
        assert_eq!(world.recorded(), [(MachineOperation::Reboot, REASON.into())], "killed at {mark}");
        assert!(world.text(agent::reasons::REASON).unwrap().starts_with(STORED));
        assert_eq!(world.text(reasons::COUNTER).as_deref(), Some("1"));
        world.kill().await;
    }
}

#[tokio::test]
async fn what_a_crash_left_of_the_last_reason_is_not_taken_for_a_new_one() {
    let mut world = World::as_in_the_samples("BootReasonFirst");
    world.start();
    world.status(|_| true).await;
    assert_eq!(world.text(agent::reasons::NUMBER), None);
    world.kill().await;
    // As if it had ended between its journal and the removal.
    world.write(agent::reasons::NUMBER, "BootReasonFirst");
    let at: GoTime = SAMPLE_TIME.parse().unwrap();
    let file = File::options().write(true).open(world.topic_root.path(agent::reasons::NUMBER)).unwrap();
    file.set_modified(SystemTime::from(at.to_timestamp())).unwrap();
    world.write(reasons::COUNTER, "1");
    world.start_again().await;
    assert_eq!(world.text(agent::reasons::NUMBER), None);
    world.command_reboot();
    world.until_recorded().await;
    assert_eq!(world.text(agent::reasons::NUMBER).as_deref(), Some("BootReasonRebootCmd"));
    assert_eq!(world.text(reasons::COUNTER).as_deref(), Some("2"));
    world.kill().await;
}

#[tokio::test]
async fn a_reason_that_another_agent_stored_in_this_boot_outlives_a_restart_of_this_one() {
    let mut world = World::as_in_the_samples("BootReasonFirst");
    world.start();
    world.status(|_| true).await;
    world.kill().await;
    world.write(agent::reasons::REASON, "an agent hung");
    world.write(agent::reasons::NUMBER, "BootReasonWatchdogHung");
    world.start_again().await;
    assert_eq!(world.text(agent::reasons::REASON).as_deref(), Some("an agent hung"));
    assert_eq!(world.text(agent::reasons::NUMBER).as_deref(), Some("BootReasonWatchdogHung"));
    world.kill().await;
}

#[tokio::test]
async fn a_journal_of_nonsense_or_of_another_boot_is_left_out() {
    for text in [
        "{",
        r#"{"BootID":"another","Operation":{"Operation":"reboot","Reason":"x","BootReason":2,"Done":false}}"#,
    ] {
        let mut world = World::new();
        world.write(journal::PATH, text);
        world.start();
        let status = world.status(|_| true).await;
        assert!(!status.device_reboot);
        world.kill().await;
        assert_eq!(world.recorded(), []);
    }
}

#[tokio::test]
async fn a_second_agent_beside_the_first_touches_nothing() {
    let mut world = World::started().await;
    let first = world.agent.take();
    // As another process would see it: no journal yet, and a reason to be reported.
    fs::remove_file(world.topic_root.path(journal::PATH)).unwrap();
    world.write(agent::reasons::REASON, REASON);
    world.start();
    assert!(world.ended().await.is_err());
    assert_eq!(world.text(agent::reasons::REASON).as_deref(), Some(REASON));
    drop(first);
}

/// A device about to reboot, with this hook.
fn rebooting(script: &str, limits: Limits) -> World {
    let mut world = World::new();
    world.limits = limits;
    let path = "etc/zedbox/hooks/before-reboot.d/10-a";
    world.write(path, &format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(world.topic_root.path(path), fs::Permissions::from_mode(0o700)).unwrap();
    world.answers(DrainStatus::Complete);
    world.start();
    world.command_reboot();
    world
}

#[tokio::test]
async fn u9_a_hook_runs_before_the_device_is_asked_and_is_called_once() {
    let said = tempfile::NamedTempFile::new().unwrap();
    let script =
        format!("echo \"$1 $ZEDBOX_HOOK_OPERATION $ZEDBOX_HOOK_STAGE\" >> {}", said.path().display());
    let world = rebooting(&script, brisk());
    assert_eq!(world.until_recorded().await.len(), 1);
    assert_eq!(fs::read_to_string(said.path()).unwrap(), "run reboot before-reboot\n");
}

#[tokio::test]
async fn u9_a_hook_that_hangs_is_ended_shown_and_waited_for_no_longer_while_the_loop_goes_round() {
    let limits = Limits { hook_limit_ms: 1_000, hooks_limit_ms: 4_000, ..brisk() };
    let world = rebooting("echo starts; sleep 600", limits);
    let shown = |text: &str| {
        let all = go_json::from_slice::<AgentTrouble>(text.as_bytes()).unwrap().troubles;
        all.iter()
            .any(|it| it.what == "hooks before the reboot" && it.error.contains("did not end within 1 s"))
    };
    world.until("run/nodeagent/AgentTrouble/global.json", shown).await;
    assert_eq!(world.recorded(), [], "it is blocking");
    // The loop touches this while the hook is waited for.
    fs::remove_file(world.topic_root.path(TOUCH)).unwrap();
    world.until_recorded().await;
    let log = world.text(agent::reasons::LOG).unwrap();
    assert!(log.contains("hooks before the reboot were waited for no longer after 4 s"), "{log}");
}

#[tokio::test]
async fn u9_a_hook_that_somebody_removes_holds_nothing_up_and_an_optional_one_neither() {
    let world = rebooting("exit 1", Limits { hooks_limit_ms: 600_000, ..brisk() });
    let failed = |text: &str| text.contains("hooks before the reboot");
    world.until("run/nodeagent/AgentTrouble/global.json", failed).await;
    let folder = world.topic_root.path("etc/zedbox/hooks/before-reboot.d");
    fs::rename(folder.join("10-a"), folder.join("10-a.optional")).unwrap();
    assert_eq!(world.until_recorded().await.len(), 1);
}
