//! What becomes of an image, where a story does not tell all of it.

use std::time::Duration;

use agent::partitions::{Label, PartitionState};
use requester::ProceedReason;
use step::{Core as _, Mono};
use topics::{Answer, BaseOsStatus, DrainStatus, NodeDrainProgress, NodeDrainRequest, Requester, SwState};

use super::stories::{after, then};
use super::world::{NEW, OLD, World, X};
use crate::core::{BaseOs, Counter, Counters, Effect, Event, FallbackFrom, LastBootReport, SavedUpdates};

/// State, whether it runs, whether it comes too early; where it is.
type Row = (SwState, bool, bool, &'static str, &'static str);

fn row(status: &BaseOsStatus) -> (SwState, bool, bool, &str, &str) {
    (status.state, status.activated, status.too_early, &status.partition_label, &status.partition_state)
}

#[test]
fn each_row_of_the_table_gives_its_status() {
    let loaded = SwState::Loaded;
    let cases: [(&str, Row); 9] = [
        ("want X", (SwState::from(0), false, false, "", "")),
        ("want X, load X state 103", (SwState::from(103), false, false, "", "")),
        ("keep X, load X", (loaded, false, false, "", "")),
        ("want X, load X", (loaded, false, false, "IMGB", "unused")),
        ("want X as 14.4.0-k-amd64", (SwState::Installed, true, false, "IMGA", "active")),
        ("disk IMGB 14.5.0-k-amd64 unused, keep X, load X", (loaded, false, false, "IMGB", "unused")),
        (
            "disk IMGB 14.5.0-k-amd64 inprogress, want X, load X",
            (SwState::Downloaded, false, false, "IMGB", "inprogress"),
        ),
        ("disk IMGB 14.6.0-k-amd64 updating, want X, load X", (loaded, false, true, "", "")),
        (
            "disk IMGA 14.4.0-k-amd64 inprogress, disk IMGB - active, want X, load X",
            (loaded, false, true, "", ""),
        ),
    ];
    for (steps, expected) in cases {
        let world = after(&format!("idle, {steps}"));
        assert_eq!(row(&world.statuses[X]), expected, "{steps}");
        let version = if expected.1 { OLD } else { NEW };
        assert_eq!(world.statuses[X].base_os_version, version, "{steps}");
    }
}

#[test]
fn a_skip_of_zedkube_is_a_complete_that_keeps_its_name() {
    let mut world = after("waiting");
    let request = world.request.clone().unwrap();
    let answer = Answer {
        requested_by: request.requested_by,
        requested_at: request.requested_at,
        status: DrainStatus::Complete,
        skip: "kubernetes API not reachable for 300 s".to_owned(),
        ..Answer::default()
    };
    let progress = NodeDrainProgress { answers: vec![answer], ..NodeDrainProgress::default() };
    world.say(Event::Progress(Some(Box::new(progress))));
    let why = ProceedReason::Complete { skip: "kubernetes API not reachable for 300 s".to_owned() };
    assert_eq!(world.switches(), [(X.to_owned(), why)]);
}

#[test]
fn an_error_of_the_content_stops_the_drain_and_is_copied() {
    let mut world = after("waiting");
    world.tree(X, |tree| tree.error = "bad signature".to_owned());
    assert_eq!(world.request, None);
    let status = &world.statuses[X];
    assert_eq!(status.error, "bad signature");
    assert_eq!(status.error_entities.as_ref().unwrap()[0].entity_id, X);
    world.loaded(X);
    assert_eq!((world.asks(), world.writes()), (2, 1));
}

#[test]
fn an_image_that_names_another_version_is_told_and_not_switched() {
    let mut world = after("idle, writes slowly, want X, load X");
    let mut write = world.write.take().unwrap();
    write.version = NEW.to_owned();
    world.partition(Label::B).content.clone_from(&write.content);
    world.partition(Label::B).short_version = OLD.replace("14", "13");
    world.say(Event::Written { of: write, outcome: Ok(OLD.replace("14", "13")) });
    assert!(world.statuses[X].error.contains("13.4.0-k-amd64"), "{}", world.statuses[X].error);
    world.wait(Duration::from_hours(1));
    assert_eq!((world.asks(), world.writes()), (0, 1));
}

#[test]
fn results_of_a_write_that_was_given_up_do_not_speak_for_the_next_one() {
    let mut world = after("idle, writes slowly, want X, load X");
    let first = world.write.clone().unwrap();
    world.unwant(X);
    world.want(X, NEW);
    assert_ne!(world.write.clone().unwrap(), first);
    world.say(Event::Written { of: first, outcome: Ok(NEW.to_owned()) });
    assert_eq!(world.asks(), 0);
    world.written();
    assert_eq!(world.asks(), 1);
}

/// Found by the model: nodeagent would have restarted a node that had been uncordoned.
#[test]
fn an_image_that_is_withdrawn_while_it_is_being_switched_keeps_its_request_until_it_is_switched_back() {
    let mut world = after("waiting");
    world.slow_results = true;
    world.is_let_go();
    world.unwant(X);
    assert!(world.request.is_some(), "the switch may have come about");
    assert!(world.statuses.contains_key(X), "it tells a restarted agent what to take back");
    world.slow_results = false;
    world.wait(Duration::ZERO);
    assert_eq!(world.spare_state(), PartitionState::Unused);
    assert_eq!((world.request.clone(), world.statuses.len()), (None, 0));
    let told = |it: &Effect| matches!(it, Effect::Zboot(status) if status.partition_state == "updating");
    assert!(!world.done.iter().any(told), "nodeagent restarts at that word");
}

/// Found by the model: nodeagent restarts for an image that it has seen once, and the node may be open by then.
#[test]
fn a_switch_that_nodeagent_has_seen_is_taken_back_and_the_node_stays_drained_until_the_restart() {
    let mut world = after("waiting, answer Complete");
    world.going_down = true;
    world.done.clear();
    world.unwant(X);
    assert_eq!(world.spare_state(), PartitionState::Unused);
    assert!(world.request.is_some());
    let place = |is: fn(&Effect) -> bool| world.done.iter().position(is).unwrap();
    let told = place(|it| matches!(it, Effect::Zboot(status) if status.partition_state == "unused"));
    let asked = place(|it| *it == Effect::AskNodeagent);
    assert!(told < asked, "what it could act on is taken back first");
    world.restart();
    world.wait(Duration::from_secs(60));
    assert!(world.request.is_some(), "also after a restart of this agent");
}

#[test]
fn a_fallback_is_done_once_even_if_power_is_cut_before_it_is_counted() {
    let mut world = after("idle, disk IMGB 14.5.0-k-amd64 unused, fallback 1, fallback 2, answer Complete");
    let journal = Some(FallbackFrom { counter: 2, from: Label::A });
    assert_eq!(world.counters.fallback_from, journal);
    // As if the counter had not reached the disk.
    world.counters.fallback = Some(1);
    then(&mut world, "boot, runs IMGB, counted fallback 2", "a fallback");
    assert_eq!(world.counters.fallback_from, None);
    then(&mut world, "test IMGB passed, spare unused, asked 1", "no fallback from the fallback");
}

#[test]
fn the_journal_of_a_fallback_stands_before_the_switch() {
    let world = after("idle, disk IMGB 14.5.0-k-amd64 unused, fallback 1, fallback 2, answer Complete");
    let place = |wanted: fn(&Effect) -> bool| world.done.iter().position(wanted).unwrap();
    let journal = place(|effect| matches!(effect, Effect::Journal(Some(_))));
    let switch = place(|effect| matches!(effect, Effect::Store(_)));
    let count =
        world.done.iter().rposition(|effect| matches!(effect, Effect::Save(Counter::Fallback, 2))).unwrap();
    assert!(journal < switch && switch < count);
}

#[test]
fn counters_do_not_move_while_the_running_image_is_in_test() {
    let mut world = after("idle, disk IMGA 14.4.0-k-amd64 inprogress, disk IMGB - active");
    world.config(X, OLD, |config| config.retry_update_counter = 9);
    assert_eq!(world.counters, Counters::default());
}

#[test]
fn d_b3_a_drain_of_zedagent_is_joined_by_a_request_of_our_own() {
    let device_op = NodeDrainRequest {
        requested_at: "2026-03-14T08:00:00Z".parse().unwrap(),
        requested_by: Requester::DeviceOp,
        context: "reboot".to_owned(),
    };
    let mut world = World::new();
    world.answer_to(&device_op, DrainStatus::Cordoned);
    then(&mut world, "want X, load X, asked 1", "joined");
    world.answer_to(&device_op, DrainStatus::Complete);
    then(&mut world, "spare unused, answer Complete, switched X", "that was said to zedagent");
}

#[test]
fn a_config_without_content_or_version_is_refused() {
    let mut world = World::new();
    world.config(X, NEW, |config| config.content_tree_uuid = String::new());
    assert!(world.statuses[X].error.contains("no content tree"));
    world.want(X, "");
    assert!(world.statuses[X].error.contains("no version"));
}

#[test]
fn a_failed_image_shows_why_the_device_went_down() {
    let mut world = after("idle, disk IMGB 14.5.0-k-amd64 inprogress");
    let time = "2026-03-14T09:30:00Z".parse().unwrap();
    let reason = "Update failed: no controller for 300 s".to_owned();
    world.say(Event::LastBoot(LastBootReport { reason: reason.clone(), time, image: "IMGB".to_owned() }));
    world.want(X, NEW);
    assert_eq!((&world.statuses[X].error, world.statuses[X].error_time), (&reason, time));
    world.say(Event::LastBoot(LastBootReport { reason, time, image: "IMGA".to_owned() }));
    assert!(world.statuses[X].error.contains("did not pass its test"), "that was about the running image");
}

#[test]
fn partitions_are_told_before_anything_is_heard_and_then_said_to_be_ready() {
    let world = World::bare();
    let found = SavedUpdates { request: None, statuses: vec![], counters: Counters::default() };
    let mut core = BaseOs::new(crate::Limits::default(), world.partitions, found);
    assert_eq!(core.next_wake(), Some(Mono::START));
    let told = core.step(Mono::START, Event::Tick);
    let partitions: Vec<_> = told.iter().take(2).map(|effect| matches!(effect, Effect::Zboot(_))).collect();
    assert_eq!(
        (partitions.as_slice(), &told[2..]),
        ([true; 2].as_slice(), &[Effect::ZbootReady, Effect::Manager(0)][..])
    );
}
