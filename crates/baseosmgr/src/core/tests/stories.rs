//! What happens to an image, as tables: each story is its name, and below it steps and what holds after them.
//!
//! X and Z are the images 14.5.0 and 14.6.0; a story begins with nothing heard (`bare`), on an idle clustered node (`idle`),
//! or with X written and its drain asked for (`waiting`). `switched` lists all switches, with why they were released.

use std::time::Duration;

use agent::partitions::{Label, PartitionState};
use requester::{DeviceClustering, ProceedReason};
use topics::{BaseOsConfig, DrainStatus, NodeDrainStatus, OperationPause, PauseScope, Requester, SkipKind};

use super::world::{NEW, NEWER, World, X, Z};
use crate::core::{Effect, Event};

/// Splits a text of stories into names and steps.
fn stories(text: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    text.trim().split("\n\n").map(|story| {
        let (name, steps) = story.split_once('\n').unwrap();
        (name.trim(), steps.split([',', '\n']).map(str::trim).filter(|it| !it.is_empty()).collect())
    })
}

/// Plays each of these stories, in a world of its own.
fn play(text: &str) {
    for (name, steps) in stories(text) {
        println!("{name}");
        let mut world = begun(steps[0]);
        for (nth, step) in steps.iter().enumerate().skip(1) {
            run(&mut world, step, &format!("{name}, step {nth}: {step}"));
        }
    }
}

fn begun(word: &str) -> World {
    match word {
        "bare" => World::bare(),
        "idle" => World::new(),
        "waiting" => after("idle, want X, load X, asked 1, spare unused"),
        other => panic!("no story begins with {other}"),
    }
}

/// The world after these steps.
pub(super) fn after(steps: &str) -> World {
    let mut steps = steps.split(", ");
    let mut world = begun(steps.next().unwrap());
    steps.for_each(|step| run(&mut world, step, step));
    world
}

/// What comes then, and holds then.
pub(super) fn then(world: &mut World, steps: &str, what: &str) {
    for step in steps.split(", ") {
        run(world, step, &format!("{what}: {step}"));
    }
}

/// zedkube completes every request.
fn drain(world: &mut World) {
    for _ in 0..4 {
        world.wait(Duration::from_secs(60));
        if world.spare_state() != PartitionState::Updating && world.request.is_some() {
            world.answer(DrainStatus::Complete);
        }
    }
}

/// The key of an image, and its version.
fn image(letter: &str) -> (&'static str, &'static str) {
    if letter == "Z" { (Z, NEWER) } else { (X, NEW) }
}

fn status(word: &str) -> DrainStatus {
    let named = DrainStatus::NAMED.iter().find(|it| format!("{it:?}") == word);
    named.copied().unwrap_or_else(|| DrainStatus::from(word.parse::<u8>().unwrap()))
}

fn requester(word: &str) -> Requester {
    let named = Requester::NAMED.iter().find(|it| format!("{it:?}") == word);
    named.copied().unwrap_or_else(|| Requester::from(word.parse::<u8>().unwrap()))
}

fn pause(scope: PauseScope) -> Event {
    let (by, reason) = ("field".into(), "new disk".into());
    Event::Pause(Some(OperationPause { scope, by, reason, ..OperationPause::default() }))
}

fn configured(world: &mut World, letter: &str, change: impl FnOnce(&mut BaseOsConfig)) {
    let (key, version) = image(letter);
    world.config(key, version, change);
}

/// A switch, as its image and why it was released; without a reason after a full drain.
fn switches(world: &World) -> String {
    let all = world.switches().into_iter().map(|(key, why)| {
        let letter = [("X", X), ("Z", Z)].iter().find(|it| it.1 == key).map_or(key.as_str(), |it| it.0);
        let why = match why {
            ProceedReason::Complete { skip } => skip,
            ProceedReason::NotSupported => "NotSupported".to_owned(),
            ProceedReason::Early => "Early".to_owned(),
            ProceedReason::Forced(order) => format!("Forced {:?} {:?}", order.status, order.requested_by),
            ProceedReason::Silent { waited_secs } => format!("Silent {waited_secs}"),
        };
        format!("{letter} {why}").trim().to_owned()
    });
    all.collect::<Vec<_>>().join("; ")
}

fn count(world: &World, is: fn(&Effect) -> bool) -> usize {
    world.done.iter().filter(|it| is(it)).count()
}

/// A step of a story, or what holds then.
pub(super) fn run(world: &mut World, step: &str, what: &str) {
    let words: Vec<&str> = step.split(' ').collect();
    if !does(world, &words) {
        holds(world, &words, what);
    }
}

/// Whether it is a step.
fn does(world: &mut World, words: &[&str]) -> bool {
    let rest = |from: usize| words[from..].join(" ");
    let number = |at: usize| words[at].parse::<u32>().unwrap();
    match *words {
        ["want", letter] => configured(world, letter, |_| {}),
        ["want", letter, "retry", _] => {
            configured(world, letter, |config| config.retry_update_counter = number(3));
        }
        ["keep", letter, "retry", _] => configured(world, letter, |config| {
            (config.activate, config.retry_update_counter) = (false, number(3));
        }),
        ["keep", letter] => configured(world, letter, |config| config.activate = false),
        ["want", letter, "as", version] => world.want(image(letter).0, version.trim_matches('-')),
        ["unwant", letter] => world.unwant(image(letter).0),
        ["load", letter] => world.loaded(image(letter).0),
        ["load", letter, "state", _] => {
            world.tree(image(letter).0, |tree| tree.state = words[3].parse::<u8>().unwrap().into());
        }
        ["load", letter, "error", _] => world.tree(image(letter).0, |tree| tree.error = rest(3)),
        ["load", letter, "anew"] => world.tree(image(letter).0, |tree| tree.generation_counter = 1),
        ["load", letter, "blob", _] => world.tree(image(letter).0, |it| it.blobs = Some(vec![rest(3)])),
        ["load", letter, "named", _] => world.tree(image(letter).0, |tree| tree.display_name = rest(3)),
        ["load", letter, "sha256", _] => world.tree(image(letter).0, |tree| tree.content_sha256 = rest(3)),
        ["lose", letter] => world.say(Event::Tree { key: image(letter).0.to_owned(), value: None }),
        ["answer", said] => world.answer(status(said)),
        ["answer", "first", said] => {
            let first = world.asked[0].clone();
            world.answer_to(&first, status(said));
        }
        ["answers", "are", "forced"] => {
            world.answers.iter_mut().for_each(|it| it.skip_kind = SkipKind::Forced);
            world.report();
            world.report();
        }
        ["echo", "first"] => world.say(Event::Asked { nth: 1, request: world.asked[0].clone() }),
        ["zedkube", "drains"] => drain(world),
        ["says", said, by] => world.zedkube(status(said), requester(by)),
        ["nobody", "says"] => {
            world.say(Event::Drain(None));
            world.say(Event::Progress(None));
        }
        ["report"] => world.report(),
        ["cluster"] => world.say(Event::Cluster(DeviceClustering::Clustered)),
        ["undecided", "cluster"] => world.say(Event::Cluster(DeviceClustering::Undecided)),
        ["no", "cluster"] => world.say(Event::Cluster(DeviceClustering::Single)),
        ["leaves"] => world.say(Event::HasToLeave(true)),
        ["left"] => world.say(Event::HasToLeave(false)),
        ["force", said, by] => world
            .say(Event::Forced(Some(NodeDrainStatus { status: status(said), requested_by: requester(by) }))),
        ["unforce"] => world.say(Event::Forced(None)),
        ["pause"] => world.say(pause(PauseScope::Node)),
        ["refusal"] => world.say(pause(PauseScope::Controller)),
        ["resume"] => world.say(Event::Pause(None)),
        ["test", label, said] => {
            world.say(Event::TestComplete { label: label.parse().unwrap(), complete: said == "passed" });
        }
        ["fallback", _] => world.say(Event::FallbackCounter(number(1))),
        ["disk", label, version, state] => {
            let partition = world.partition(label.parse().unwrap());
            partition.short_version = version.trim_matches('-').to_owned();
            partition.state = state.parse().unwrap();
            world.restart();
        }
        ["wait", _] => world.wait(Duration::from_secs(number(1).into())),
        ["wait", _, "h"] => world.wait(Duration::from_hours(number(1).into())),
        ["writes", "slowly"] => world.slow_writes = true,
        ["written"] => world.written(),
        ["refuse", ..] => world.refuse_next(&rest(1)),
        ["refuses", "to", "begin:", ..] => world.refuse_begin = Some(rest(3)),
        ["boot"] => world.boot(),
        ["restart"] => world.restart(),
        ["let", "go"] => world.is_let_go(),
        _ => return false,
    }
    true
}

fn holds(world: &World, words: &[&str], what: &str) {
    let rest = |from: usize| words[from..].join(" ");
    match *words {
        ["asked", _] => assert_eq!(world.asks().to_string(), words[1], "{what}"),
        ["wrote", _] => assert_eq!(world.writes().to_string(), words[1], "{what}"),
        ["stopped", "writing"] => assert!(world.done.contains(&Effect::StopWriting), "{what}"),
        ["spare", state] => assert_eq!(world.spare_state().word(), state, "{what}"),
        ["spare", "holds", version] => {
            assert_eq!(world.partitions.spare().short_version, version, "{what}");
        }
        ["spare", "shown", state, version] => {
            let shown = &world.zboot[&Label::B];
            let shown = (shown.partition_state.as_str(), shown.short_version.as_str());
            assert_eq!(shown, (state, version.trim_matches('-')), "{what}");
        }
        ["shown", label, state] => {
            assert_eq!(world.zboot[&label.parse().unwrap()].partition_state, state, "{what}");
        }
        ["tested", label] => assert!(world.zboot[&label.parse().unwrap()].test_complete, "{what}"),
        ["untested", label] => assert!(!world.zboot[&label.parse().unwrap()].test_complete, "{what}"),
        ["shows", letter, state] => {
            assert_eq!(world.statuses[image(letter).0].partition_state, state, "{what}");
        }
        ["runs", label] => {
            assert_eq!(world.partitions.current.word(), label, "{what}");
            for it in world.zboot.values() {
                assert_eq!(it.current_partition, it.partition_label == label, "{what}");
            }
        }
        ["switched", ..] => assert_eq!(switches(world), rest(1).trim_matches('-'), "{what}"),
        ["request", letter] => {
            let request = world.request.as_ref().unwrap_or_else(|| panic!("{what}"));
            assert_eq!(request.context, image(letter).0, "{what}");
        }
        ["request", "fallback", version] => {
            let request = world.request.as_ref().unwrap_or_else(|| panic!("{what}"));
            assert_eq!(request.context, format!("fallback {version}"), "{what}");
        }
        ["no", "request"] => assert_eq!(world.request, None, "{what}"),
        ["images", _] => assert_eq!(world.statuses.len().to_string(), words[1], "{what}"),
        ["error", letter, "has", ..] => {
            let error = &world.statuses[image(letter).0].error;
            assert!(error.contains(&rest(3)), "{what}: {error}");
        }
        ["error", letter, "is", ..] => {
            assert_eq!(world.statuses[image(letter).0].error, rest(3), "{what}");
        }
        ["no", "error", letter] => assert_eq!(world.statuses[image(letter).0].error, "", "{what}"),
        ["again", letter, "has", ..] => {
            let when = &world.statuses[image(letter).0].error_retry_condition;
            assert!(when.contains(&rest(3)), "{what}: {when}");
        }
        ["state", letter, number] => {
            assert_eq!(world.statuses[image(letter).0].state, number.parse::<u8>().unwrap().into(), "{what}");
        }
        ["not", "early", letter] => assert!(!world.statuses[image(letter).0].too_early, "{what}"),
        ["early", letter] => assert!(world.statuses[image(letter).0].too_early, "{what}"),
        ["force", "file", "goes", _] => {
            assert_eq!(count(world, |it| *it == Effect::RemoveForce).to_string(), words[3], "{what}");
        }
        ["failures", _] => {
            let told =
                |it: &Effect| matches!(it, Effect::Say(it) if it.text.contains("drain-failed-handler"));
            assert_eq!(count(world, told).to_string(), words[1], "{what}");
        }
        ["counted", "fallback", counted] => {
            assert_eq!(world.counters.fallback.unwrap_or_default().to_string(), counted, "{what}");
        }
        ["counted", "retry", config, current] => {
            let counted = (world.counters.config_retry, world.counters.current_retry);
            assert_eq!(
                (counted.0.to_string(), counted.1.to_string()),
                (config.into(), current.into()),
                "{what}"
            );
        }
        ["reported", _] => assert_eq!(world.manager, words[1].parse().ok(), "{what}"),
        _ => panic!("{what}: no such step"),
    }
}

#[test]
fn an_image_is_drained_for_and_switched_by_its_own_drain_alone() {
    play(
        "
        an image that did not pass its test is not tried again by itself
          waiting, answer Complete, boot, boot, runs IMGA, state X 104, spare inprogress, error X has did not pass its test
          again X has retryUpdate, wait 5 h, wrote 1, asked 1

        a request that nobody takes up fails with a reason and is made again
          waiting, report, wait 299, asked 1, wait 1, no request, error X has did not take up, wait 30, let go

        a drain at work is waited for without limit
          waiting, answer Cordoned, wait 100 h, asked 1, switched -

        a node in no cluster switches at once, and says early when zedkube is not up
          bare, no cluster, want X, load X, switched X Early, asked 0

        a node in no cluster switches at once
          bare, no cluster, says NotSupported None, want X, load X, switched X NotSupported, asked 0

        without a word of zedkube a clustered node waits five minutes and names the skip
          bare, cluster, want X, load X, wait 299, switched -, wait 1, switched X Silent 300

        and so it does where zedkube says that it drains nothing
          bare, cluster, says NotSupported None, want X, load X, wait 299, switched -, wait 1, switched X Silent 300

        a zedkube that comes up in the wait is asked
          bare, want X, load X, wait 250, cluster, says NotRequested None, asked 1, answer Cordoned, wait 1 h, switched -

        the force file releases the update and is used once: nodeagent would find no order, and so would one held at its look
          waiting, answer Cordoned, force Complete Update, switched X Forced Complete Update, force file goes 0
          answer Complete, force file goes 0, answers are forced, force file goes 1

        a force file for the other requester changes nothing here
          waiting, force Complete DeviceOp, switched -, force file goes 0

        a force file that holds the update back shows in its status
          waiting, force Cordoned None, error X has force file, wait 2 h, switched -, asked 1, unforce, let go

        so does one that says that the drain failed
          waiting, force FailedDrain None, error X has force file, wait 2 h, switched -, asked 1, unforce, let go

        an unknown number of zedkube waits and is told
          idle, says 42 None, want X, load X, wait 1 h, switched -, asked 0, error X has 42
          says NotRequested None, no error X, asked 1

        a switch that the partitions refuse is told and tried again
          waiting, refuse read-only file system, answer Complete, spare unused, spare shown unused 14.5.0-k-amd64
          error X is read-only file system, wait 30, spare updating

        a complete of a reference zedkube that stood before does not release the next image
          waiting, says Requested Update, unwant X, says Complete Update, load Z, want Z, spare unused, asked 2
          says Requested Update, says Complete Update, switched Z

        activating an image that is already here does not pass the drain
          idle, keep X, load X, want X, spare unused, asked 1
    ",
    );
}

#[test]
fn an_image_is_written_before_its_drain_and_again_where_that_failed() {
    play(
        "
        a failed write is told and tried again and costs no drain
          idle, refuse disk full, want X, load X, wrote 1, asked 0, error X is disk full
          wait 29, wrote 1, wait 1, wrote 2, asked 1, no error X

        an image that is brought again is tried at once, and the same one only after its pause
          idle, refuse has another sha256, want X, load X, error X is has another sha256
          load X named another, wrote 1, asked 0, load X sha256 right, wrote 2, asked 1, no error X

        what is brought for another image changes nothing
          idle, refuse has another sha256, want X, load X, load Z sha256 another, wrote 1, asked 0

        an image that is brought again while it is written is written anew
          idle, writes slowly, want X, load X, load X blob one, stopped writing, wrote 2, asked 0
          written, wrote 2, asked 1

        a write that cannot even begin leaves the other image where it is
          idle, disk IMGB 13.4.0-k-amd64 unused, refuses to begin: read-only file system, want X, load X
          error X is read-only file system, spare shown unused 13.4.0-k-amd64
          wait 30, asked 1, spare shown unused 14.5.0-k-amd64

        content that goes once the image is whole changes nothing
          waiting, lose X, state X 108, let go

        a rival for a moment does not stop a write
          idle, writes slowly, load X, want X, want Z, unwant Z, written, wrote 1, asked 1

        an image of unknown origin is written again before a switch
          idle, disk IMGB 14.5.0-k-amd64 unused, want X, load X, wrote 1, asked 1

        content of a new generation is written again, and the request stands meanwhile
          idle, want X, load X, load X anew, wrote 2, asked 1

        an image of another kind is refused
          idle, want X as 14.5.0-kvm-amd64, load X, error X has EVE-k, wrote 0

        a config without a version is refused
          idle, want X as -, error X has no version
    ",
    );
}

#[test]
fn a_controller_that_changes_its_mind_is_followed_and_no_node_stays_drained_for_what_is_not_wanted() {
    play(
        "
        a config withdrawn in the middle of a drain takes its request with it
          waiting, answer Cordoned, unwant X, no request, images 0, says NotRequested None, switched -

        a config that is no longer to be activated takes its request back
          waiting, keep X, no request, says Complete Update, spare unused

        another image in the middle of a drain gets a request of its own, and what is drained stays so until that
          waiting, answer Cordoned, load Z, writes slowly, want Z, unwant X, request X, asked 1
          answer first Complete, spare unused, written, request Z, asked 2, switched -
          answer Complete, switched Z, spare holds 14.6.0-k-amd64

        a request never names another image than the one that waits
          waiting, answer Cordoned, load Z, want Z, nobody says, unwant X, no request, wait 300, switched Z Silent 300

        an image that is wanted anew does not wait out an old pause
          waiting, answer FailedDrain, unwant X, want X, asked 2, no error X

        another image that is not here yet does not keep the node drained
          waiting, answer Cordoned, unwant X, want Z, no request

        two images at once stop everything and say so
          waiting, load Z, want Z, answer Complete, switched -, request X, error X has several images
          error Z has several images, unwant Z, switched X

        a switched image that is withdrawn is not booted
          waiting, answer Complete, unwant X, spare unused, no request, images 0

        a drain that is void and fails after the switch is asked for again, and its request stands until then
          waiting, answer Complete, answer Cordoned, answer FailedDrain, request X, asked 1, wait 29, request X, asked 1
          wait 1, request X, asked 2, answer Complete, request X, asked 2, spare updating

        against a force file nothing is asked after the switch and its failure counts once
          waiting, answer Complete, force FailedDrain None, wait 1000, asked 1, failures 1, unforce, wait 1000
          asked 1, request X, spare updating

        a failed image that is withdrawn may be tried again later
          waiting, answer Complete, boot, boot, unwant X, spare unused, want X, let go

        rivals do not keep the node drained for ever
          waiting, load Z, want Z, wait 299, request X, wait 1, no request, unwant Z, asked 2

        an image that cannot be written does not keep the node drained
          waiting, answer Cordoned, load Z, want Z, refuse disk full, unwant X, no request, error Z is disk full
    ",
    );
}

#[test]
fn each_counter_of_the_controller_is_carried_out_once() {
    play(
        "
        the first fallback counter ever heard asks for nothing
          idle, disk IMGB 14.5.0-k-amd64 unused, fallback 7, counted fallback 7, asked 0

        a fallback needs a whole image to fall back to
          idle, disk IMGB - unused, fallback 1, fallback 2, counted fallback 1, asked 0

        a fallback needs an image that did not fail
          idle, disk IMGB 14.5.0-k-amd64 inprogress, fallback 1, fallback 2, counted fallback 1, asked 0

        a retry counter is reported once its update has come to an end
          idle, want X retry 3, reported 3, load X, answer Complete, boot, boot, want X retry 4, reported 3
          answer Complete, counted retry 4 3, boot, reported 3, test IMGB passed, reported 4, counted retry 4 4

        a retried image that fails again waits for the next counter
          idle, disk IMGB 14.5.0-k-amd64 inprogress, want X retry 1, load X, answer Complete, boot, boot
          runs IMGA, asked 1, error X has did not pass its test

        a fallback is not taken back with a config of the same version
          idle, disk IMGB 14.5.0-k-amd64 unused, keep X, fallback 1, fallback 2, answer Complete, unwant X
          spare updating, images 0

        a fallback to the old image is not overwritten by the image that was wanted
          waiting, fallback 1, answer Complete, boot, test IMGB passed, spare holds 14.4.0-k-amd64, load Z, writes slowly
          fallback 2, want Z, unwant X, wrote 1, answer Complete, spare updating, spare holds 14.4.0-k-amd64, early Z
    ",
    );
}

#[test]
fn x3_what_is_ready_waits_for_a_pause_and_what_is_asked_for_ends_under_it_and_is_taken_back_by_a_refusal() {
    for paused in ["pause", "refusal"] {
        play(&format!(
            "an image that is ready waits for the end of a {paused} and says so
               idle, {paused}, want X, load X, asked 0, switched -, error X has by field: new disk
               again X has zedbox resume, resume, asked 1, no error X, let go"
        ));
    }
    play(
        "
        a drain that was asked for ends under a pause
          waiting, answer Cordoned, pause, request X, let go

        it is taken back by a refusal and asked for again after it
          waiting, answer Cordoned, refusal, no request, switched -, resume, asked 2

        a forced one does not wait
          waiting, refusal, force Complete Update, switched X Forced Complete Update
    ",
    );
}

#[test]
fn a_failed_drain_is_asked_for_again_after_growing_pauses_while_it_is_wanted() {
    let mut steps = vec!["while it is wanted\nwaiting".to_owned()];
    for (nth, pause) in (1..).zip([30, 60, 120, 240]) {
        let (failed, next) = (if nth % 2 == 0 { "FailedCordon" } else { "FailedDrain" }, nth + 1);
        steps.push(format!(
            "answer {failed}, request X, asked {nth}, error X has Failed, error X has NodeDrainProgress
            again X has {pause} s, wait {}, asked {nth}, wait 1, request X, asked {next}, spare unused",
            pause - 1
        ));
    }
    steps.push("answer Complete, switched X, no error X".to_owned());
    play(&steps.join(", "));
}

#[test]
fn a_node_on_its_way_out_waits_until_it_has_left_and_not_for_ever() {
    for first in ["", "says Unknown None", "says NotSupported None"] {
        play(&format!(
            "zedkube speaks, is asked, and has left in the end; its status alone is not its record
               bare, leaves, no cluster, {first}, want X, load X, switched -, asked 0, says NotRequested None, asked 1
               says Requested Update, wait 30 h, says NotSupported None, switched -, left, switched X NotSupported

            one that never speaks is not waited for for ever
               bare, leaves, no cluster, {first}, want X, load X, wait 299, switched -, wait 1, switched X Silent 300"
        ));
    }
}

/// Plays the only story of a test.
fn tell(steps: &str) {
    play(&format!("this story\n{steps}"));
}

#[test]
fn an_update_that_comes_during_a_test_waits_for_its_end_and_is_drained_for() {
    tell(
        "waiting, answer Complete, boot, unwant X, load Z, want Z, early Z, wrote 1
        test IMGB passed, not early Z, wrote 2, asked 2, spare unused, let go",
    );
}

#[test]
fn d_b1_a_config_change_while_the_image_waits_does_not_pass_the_drain() {
    tell("waiting, answer Cordoned, want X retry 5, keep X, want X, spare unused");
}

#[test]
fn d_b2_a_later_complete_replays_nothing() {
    // Wanted again: a new request, which the old answer does not serve.
    tell(
        "waiting, unwant X, answer first Complete, says NotRequested None, answer first Complete, switched -
        want X, spare unused, asked 2, answer Complete, answer Complete, switched X",
    );
}

#[test]
fn an_echo_of_an_older_request_gives_no_identity_to_the_newer_one() {
    tell("waiting, unwant X, want X, echo first, let go");
}

#[test]
fn d_n3_a_forced_fallback_is_drained_for_first() {
    tell(
        "idle, disk IMGB 14.5.0-k-amd64 unused, fallback 1, fallback 2, spare unused, asked 1, counted fallback 1
        request fallback 14.5.0-k-amd64, let go, counted fallback 2",
    );
}

#[test]
fn d_n3_a_retried_update_is_drained_for_first() {
    tell(
        "waiting, answer Complete, boot, boot, spare inprogress, want X retry 1, spare inprogress, asked 2
        counted retry 0 0, let go, counted retry 1 0",
    );
}

#[test]
fn d_x1_a_complete_labelled_for_zedagent_ends_as_a_failure_that_is_asked_again() {
    tell("waiting, says Complete DeviceOp, switched -, wait 300, error X has Complete, wait 30, asked 2");
}

#[test]
fn after_the_reboot_the_image_is_tested_and_marked_and_the_other_one_kept_as_unused() {
    // Nothing is drained or written for an image that runs.
    tell(
        "waiting, answer Complete, boot, runs IMGB, state X 111, shown IMGB inprogress, untested IMGB
        test IMGB passed, shown IMGB active, tested IMGB, shown IMGA unused, shows X active
        test IMGB open, untested IMGB, asked 1, wrote 1",
    );
}

#[test]
fn d_b4_a_mark_that_failed_reaches_the_status_of_the_running_image() {
    tell(
        "waiting, answer Complete, boot, refuse cannot write the partition table, test IMGB passed
        error X is cannot write the partition table, shown IMGB inprogress, untested IMGB
        wait 30, shown IMGB active, no error X",
    );
}

#[test]
fn a_mark_that_a_crash_left_half_done_is_finished() {
    tell("idle, disk IMGB - active, spare unused, shown IMGA active");
}
