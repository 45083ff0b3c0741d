//! Machines that refuse, hang or stay up.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

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
