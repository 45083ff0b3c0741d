//! Programs that hang, fail or lie.

use std::time::Duration;

use super::*;

/// The right answers, but for a line of its own in front.
fn zboot(own: &str) -> String {
    format!(
        r#"
{own}
case "$1" in
curpart) echo IMGA ;;
partdev) echo "$here/$2.img" ;;
partdevsize) echo 1024 ;;
partstate) [ "$2" = IMGA ] && echo active || echo unused ;;
set_partstate) ;;
esac"#
    )
}

fn exec(machine: &Machine, own: &str) -> ExecStore {
    machine.put("IMGB.img", &[0; 1024]);
    ExecStore::new(&machine.topic_root, &machine.program(&zboot(own)))
}

/// Whether a process runs. A zombie does not.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[tokio::test]
async fn b2_an_answer_that_makes_no_sense_is_told_with_the_program_and_its_words() {
    let rows = [
        ("curpart", "IMGC", "no partition; use IMGA or IMGB"),
        ("curpart", "", "no partition"),
        ("partdev", "sda3", "an absolute path is needed"),
        ("partdevsize", "big", "a number of bytes is needed"),
        ("partdevsize", "0", "a number of bytes is needed"),
        ("partstate", "UNKNOWN 0x112", "active, updating, inprogress or unused is needed"),
    ];
    for (word, answer, why) in rows {
        let machine = Machine::new();
        let mut store = exec(&machine, &format!("[ $1 = {word} ] && echo '{answer}' && exit"));
        let refused = store.read().await.unwrap_err().to_string();
        assert!(refused.contains(&format!("/program {word}")), "{refused}");
        assert!(refused.contains(&format!("answered `{answer}`")) && refused.contains(why), "{refused}");
    }
}

#[tokio::test]
async fn b2_a_program_that_fails_or_is_missing_is_told_with_what_it_said() {
    let machine = Machine::new();
    let mut store = exec(&machine, "[ $1 = partstate ] && echo 'no such disk' >&2 && exit 3");
    let refused = store.read().await.unwrap_err().to_string();
    assert!(refused.contains("/program partstate IMGA ended with exit status: 3: no such disk"), "{refused}");
    let mut store = ExecStore::new(&machine.topic_root, Path::new("/nowhere/zboot"));
    let refused = store.read().await.unwrap_err().to_string();
    assert!(refused.contains("/nowhere/zboot curpart cannot be run"), "{refused}");
}

#[tokio::test]
async fn b2_a_state_that_was_only_said_to_be_set_is_not_set() {
    let machine = Machine::new();
    let mut store = exec(&machine, "[ $1 = partstate ] && echo active && exit");
    let refused = store.set_state(Label::B, PartitionState::Unused).await.unwrap_err().to_string();
    assert!(refused.contains("set_partstate IMGB unused succeeded, but IMGB is active"), "{refused}");
}

/// A program that hangs at `partstate` with a child of its own, and the process numbers of both.
fn hanging(machine: &Machine) -> (ExecStore, std::thread::JoinHandle<Vec<String>>) {
    let pipe = machine.dir.path().join("pids");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let store = exec(machine, "[ $1 = partstate ] && { sleep 1000 & echo $$ $! >$here/pids; wait; }");
    let pids = std::thread::spawn(move || {
        let text = std::fs::read_to_string(pipe).unwrap();
        text.split_whitespace().map(str::to_owned).collect()
    });
    (store, pids)
}

/// Polls `work` until the program hangs.
async fn until_it_hangs<T: fmt::Debug>(
    work: &mut PartitionWork<T>,
    pids: std::thread::JoinHandle<Vec<String>>,
) -> Vec<String> {
    let heard = tokio::task::spawn_blocking(move || pids.join().unwrap());
    tokio::select! {
        outcome = work => panic!("{outcome:?}"),
        pids = heard => pids.unwrap(),
    }
}

#[tokio::test]
async fn b2_a_program_that_hangs_is_killed_at_its_limit_and_nothing_of_it_is_left() {
    let machine = Machine::new();
    let (mut store, pids) = hanging(&machine);
    let mut work = store.read();
    let pids = until_it_hangs(&mut work, pids).await;
    assert!(pids.len() == 2 && pids.iter().all(|pid| runs(pid)), "{pids:?}");
    tokio::time::pause();
    // A timer rings at a whole millisecond, after its limit.
    tokio::time::advance(Duration::from_millis(30_001)).await;
    let refused = work.await.unwrap_err().to_string();
    assert!(refused.contains("partstate IMGA did not end within 30 s and was killed"), "{refused}");
    assert!(!Path::new(&format!("/proc/{}", pids[0])).exists(), "nobody has collected it");
    // Its child was killed with it, and has another parent by now.
    while runs(&pids[1]) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn b2_a_program_that_nobody_waits_for_any_more_is_killed() {
    let machine = Machine::new();
    let (mut store, pids) = hanging(&machine);
    let mut work = store.read();
    let pids = until_it_hangs(&mut work, pids).await;
    drop(work);
    while pids.iter().any(|pid| runs(pid)) || Path::new(&format!("/proc/{}", pids[0])).exists() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn both_partitions_active_after_a_crash_is_put_right_by_the_next_mark() {
    let machine = Machine::new();
    for label in LABELS {
        machine.put(label, b"active");
    }
    let mut store = exec(
        &machine,
        "[ $1 = partstate ] && cat $here/$2 && exit; [ $1 = set_partstate ] && echo $3 >$here/$2 && exit",
    );
    store.mark_current_active().await.unwrap();
    let now = store.read().await.unwrap();
    assert_eq!((now.a.state, now.b.state), (PartitionState::Active, PartitionState::Unused));
}
