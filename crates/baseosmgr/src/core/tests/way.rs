//! The whole way of an image, and what may come in between.

use std::time::Duration;

use agent::partitions::{Label, PartitionState};
use topics::{DrainStatus, NodeDrainStatus, Requester, SkipKind, SwState};

use super::world::{NEW, NEWER, OLD, World, X, Z, drained};
use crate::core::{Effect, Event};
use requester::{DeviceClustering, ProceedReason};

/// [`X`] is written and waits for its drain.
pub(super) fn waiting() -> World {
    let mut world = World::new();
    world.want(X, NEW);
    world.loaded(X);
    assert_eq!((world.asks(), world.spare_state()), (1, PartitionState::Unused));
    world
}

#[test]
fn after_the_reboot_the_image_is_tested_and_marked_and_the_other_one_kept_as_unused() {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    world.boot();
    let status = &world.statuses[X];
    assert_eq!(
        (status.state, status.activated, status.partition_label.as_str()),
        (SwState::Installed, true, "IMGB")
    );
    assert_eq!(world.zboot[&Label::B].partition_state, "inprogress");
    assert!(world.zboot[&Label::B].current_partition && !world.zboot[&Label::B].test_complete);
    world.say(Event::TestComplete { label: Label::B, complete: true });
    assert_eq!(world.zboot[&Label::B].partition_state, "active");
    assert!(world.zboot[&Label::B].test_complete);
    assert_eq!(world.zboot[&Label::A].partition_state, "unused");
    assert_eq!(world.statuses[X].partition_state, "active");
    world.say(Event::TestComplete { label: Label::B, complete: false });
    assert!(!world.zboot[&Label::B].test_complete);
    assert_eq!(
        (world.asks(), world.writes()),
        (1, 1),
        "nothing is drained or written for an image that runs"
    );
}

#[test]
fn an_image_that_did_not_pass_its_test_is_not_tried_again_by_itself() {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    world.boot();
    world.boot();
    assert_eq!(world.partitions.current, Label::A);
    let status = &world.statuses[X];
    assert_eq!((status.state, status.partition_state.as_str()), (SwState::Downloaded, "inprogress"));
    assert!(status.error.contains("did not pass its test"), "{}", status.error);
    assert!(status.error_retry_condition.contains("retryUpdate"), "{}", status.error_retry_condition);
    world.wait(Duration::from_hours(5));
    assert_eq!((world.writes(), world.asks()), (1, 1));
}

#[test]
fn a_failed_drain_is_asked_for_again_after_growing_pauses_while_it_is_wanted() {
    let mut world = waiting();
    for (nth, pause) in [30, 60, 120, 240].into_iter().enumerate() {
        let first = world.request.clone().unwrap();
        world.answer(if nth % 2 == 0 { DrainStatus::FailedDrain } else { DrainStatus::FailedCordon });
        assert_eq!(world.request, Some(first.clone()), "zedkube drains for it once the cause has ended");
        let status = world.statuses[X].clone();
        assert!(
            status.error.contains("Failed") && status.error.contains("NodeDrainProgress"),
            "{}",
            status.error
        );
        assert!(
            status.error_retry_condition.contains(&format!("{pause} s")),
            "{}",
            status.error_retry_condition
        );
        world.wait(Duration::from_secs(pause - 1));
        assert_eq!(world.request, Some(first.clone()));
        world.wait(Duration::from_secs(1));
        let second = world.request.clone().unwrap();
        assert_ne!(first.id(), second.id());
        assert_eq!(world.spare_state(), PartitionState::Unused);
    }
    world.answer(DrainStatus::Complete);
    assert_eq!(world.switches(), [(X.to_owned(), drained())]);
    assert_eq!(world.statuses[X].error, "");
}

#[test]
fn a_request_that_nobody_takes_up_fails_with_a_reason_and_is_made_again() {
    let mut world = waiting();
    world.report();
    world.wait(Duration::from_secs(299));
    assert_eq!(world.asks(), 1);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.request, None);
    assert!(world.statuses[X].error.contains("did not take up"), "{}", world.statuses[X].error);
    world.wait(Duration::from_secs(30));
    world.is_let_go();
}

#[test]
fn a_drain_at_work_is_waited_for_without_limit() {
    let mut world = waiting();
    world.answer(DrainStatus::Cordoned);
    world.wait(Duration::from_hours(100));
    assert_eq!((world.asks(), world.switches().len()), (1, 0));
}

#[test]
fn a_node_in_no_cluster_switches_at_once_and_says_early_when_zedkube_is_not_up() {
    for (status, why) in
        [(None, ProceedReason::Early), (Some(DrainStatus::NotSupported), ProceedReason::NotSupported)]
    {
        let mut world = World::bare();
        world.say(Event::Cluster(DeviceClustering::Single));
        if let Some(status) = status {
            world.zedkube(status, Requester::None);
        }
        world.want(X, NEW);
        world.loaded(X);
        assert_eq!(world.switches(), [(X.to_owned(), why)]);
        assert_eq!(world.asks(), 0);
    }
}

#[test]
fn a_node_on_its_way_out_waits_until_it_has_left_and_not_for_ever() {
    let leaving = |status: Option<DrainStatus>| {
        let mut world = World::bare();
        world.say(Event::HasToLeave(true));
        world.say(Event::Cluster(DeviceClustering::Single));
        if let Some(status) = status {
            world.zedkube(status, Requester::None);
        }
        world.want(X, NEW);
        world.loaded(X);
        world
    };
    for first in [None, Some(DrainStatus::Unknown), Some(DrainStatus::NotSupported)] {
        // zedkube speaks, is asked, and has left in the end.
        let mut world = leaving(first);
        assert_eq!((world.switches(), world.asks()), (vec![], 0));
        world.zedkube(DrainStatus::NotRequested, Requester::None);
        assert_eq!(world.asks(), 1);
        world.zedkube(DrainStatus::Requested, Requester::Update);
        world.wait(Duration::from_hours(30));
        world.zedkube(DrainStatus::NotSupported, Requester::None);
        assert_eq!(world.switches(), [], "its record says otherwise");
        world.say(Event::HasToLeave(false));
        assert_eq!(world.switches(), [(X.to_owned(), ProceedReason::NotSupported)]);
        // One that never speaks is not waited for for ever.
        let mut world = leaving(first);
        world.wait(Duration::from_secs(299));
        assert_eq!(world.switches(), []);
        world.wait(Duration::from_secs(1));
        assert_eq!(world.switches(), [(X.to_owned(), ProceedReason::Silent { waited_secs: 300 })]);
    }
}

#[test]
fn without_a_word_of_zedkube_a_clustered_node_waits_five_minutes_and_names_the_skip() {
    for first in [None, Some(DrainStatus::NotSupported)] {
        let mut world = World::bare();
        world.say(Event::Cluster(DeviceClustering::Clustered));
        if let Some(status) = first {
            world.zedkube(status, Requester::None);
        }
        world.want(X, NEW);
        world.loaded(X);
        world.wait(Duration::from_secs(299));
        assert_eq!(world.switches(), []);
        world.wait(Duration::from_secs(1));
        assert_eq!(world.switches(), [(X.to_owned(), ProceedReason::Silent { waited_secs: 300 })]);
    }
}

#[test]
fn a_zedkube_that_comes_up_in_the_wait_is_asked() {
    let mut world = World::bare();
    world.want(X, NEW);
    world.loaded(X);
    world.wait(Duration::from_secs(250));
    world.say(Event::Cluster(DeviceClustering::Clustered));
    world.zedkube(DrainStatus::NotRequested, Requester::None);
    assert_eq!(world.asks(), 1);
    world.answer(DrainStatus::Cordoned);
    world.wait(Duration::from_hours(1));
    assert_eq!(world.switches(), []);
}

#[test]
fn the_force_file_releases_the_update_and_is_used_once() {
    let mut world = waiting();
    world.answer(DrainStatus::Cordoned);
    let forced = NodeDrainStatus { status: DrainStatus::Complete, requested_by: Requester::Update };
    world.say(Event::Forced(Some(forced)));
    assert_eq!(world.switches(), [(X.to_owned(), ProceedReason::Forced(forced))]);
    assert!(!world.done.contains(&Effect::RemoveForce), "nodeagent would find no order");
    // Drained, but zedkube has not heard of the order: nodeagent would find none where it is held at the last look.
    world.answer(DrainStatus::Complete);
    assert!(!world.done.contains(&Effect::RemoveForce));
    world.answers.iter_mut().for_each(|it| it.skip_kind = SkipKind::Forced);
    world.report();
    world.report();
    assert_eq!(world.done.iter().filter(|effect| **effect == Effect::RemoveForce).count(), 1);
}

#[test]
fn a_force_file_for_the_other_requester_changes_nothing_here() {
    let mut world = waiting();
    world.say(Event::Forced(Some(NodeDrainStatus {
        status: DrainStatus::Complete,
        requested_by: Requester::DeviceOp,
    })));
    assert_eq!(world.switches(), []);
    assert!(!world.done.contains(&Effect::RemoveForce));
}

#[test]
fn a_force_file_that_holds_the_update_back_shows_in_its_status() {
    for status in [DrainStatus::Cordoned, DrainStatus::FailedDrain] {
        let mut world = waiting();
        world.say(Event::Forced(Some(NodeDrainStatus { status, requested_by: Requester::None })));
        assert!(world.statuses[X].error.contains("force file"), "{}", world.statuses[X].error);
        world.wait(Duration::from_hours(2));
        assert_eq!((world.switches().len(), world.asks()), (0, 1));
        world.say(Event::Forced(None));
        world.is_let_go();
    }
}

#[test]
fn a_skip_of_zedkube_is_a_complete_that_keeps_its_name() {
    let mut world = waiting();
    let request = world.request.clone().unwrap();
    let answer = topics::Answer {
        requested_by: request.requested_by,
        requested_at: request.requested_at,
        status: DrainStatus::Complete,
        skip: "kubernetes API not reachable for 300 s".to_owned(),
        ..topics::Answer::default()
    };
    let progress =
        topics::NodeDrainProgress { answers: vec![answer], ..topics::NodeDrainProgress::default() };
    world.say(Event::Progress(Some(Box::new(progress))));
    let why = ProceedReason::Complete { skip: "kubernetes API not reachable for 300 s".to_owned() };
    assert_eq!(world.switches(), [(X.to_owned(), why)]);
}

#[test]
fn an_unknown_status_number_waits_and_is_told() {
    let mut world = World::new();
    world.zedkube(DrainStatus::Stranger(42), Requester::None);
    world.want(X, NEW);
    world.loaded(X);
    world.wait(Duration::from_hours(1));
    assert_eq!((world.switches().len(), world.asks()), (0, 0));
    assert!(world.statuses[X].error.contains("42"), "{}", world.statuses[X].error);
    world.zedkube(DrainStatus::NotRequested, Requester::None);
    assert_eq!(world.statuses[X].error, "");
    assert_eq!(world.asks(), 1);
}

#[test]
fn a_failed_write_is_told_and_tried_again_and_costs_no_drain() {
    let mut world = World::new();
    world.refuse_next("disk full");
    world.want(X, NEW);
    world.loaded(X);
    assert_eq!((world.writes(), world.asks()), (1, 0));
    assert_eq!(world.statuses[X].error, "disk full");
    world.wait(Duration::from_secs(29));
    assert_eq!(world.writes(), 1);
    world.wait(Duration::from_secs(1));
    assert_eq!((world.writes(), world.asks()), (2, 1));
    assert_eq!(world.statuses[X].error, "");
}

#[test]
fn an_image_that_is_brought_again_is_tried_at_once_and_the_same_one_only_after_its_pause() {
    let mut world = World::new();
    world.refuse_next("has another sha256");
    world.want(X, NEW);
    world.loaded(X);
    assert_eq!(world.statuses[X].error, "has another sha256");
    world.tree(X, |tree| tree.display_name = "another".to_owned());
    world.tree("another", |tree| tree.content_sha256 = "another".to_owned());
    assert_eq!((world.writes(), world.asks()), (1, 0), "nothing of it has changed");
    world.tree(X, |tree| tree.content_sha256 = "right".to_owned());
    assert_eq!((world.writes(), world.asks()), (2, 1));
    assert_eq!(world.statuses[X].error, "");
}

#[test]
fn an_image_that_is_brought_again_while_it_is_written_is_written_anew() {
    let mut world = World::new();
    world.slow_writes = true;
    world.want(X, NEW);
    world.loaded(X);
    world.tree(X, |tree| tree.blobs = Some(vec!["one".to_owned()]));
    assert!(world.done.contains(&Effect::StopWriting));
    assert_eq!((world.writes(), world.asks()), (2, 0));
    world.written();
    assert_eq!((world.writes(), world.asks()), (2, 1));
}

#[test]
fn a_write_that_cannot_even_begin_leaves_the_other_image_where_it_is() {
    let mut world = World::new();
    world.partition(Label::B).short_version = OLD.replace("14", "13");
    world.restart();
    world.refuse_begin = Some("read-only file system".to_owned());
    world.want(X, NEW);
    world.loaded(X);
    assert_eq!(world.statuses[X].error, "read-only file system");
    assert_eq!(world.zboot[&Label::B].short_version, "13.4.0-k-amd64");
    world.wait(Duration::from_secs(30));
    assert_eq!((world.asks(), world.zboot[&Label::B].short_version.as_str()), (1, NEW));
}

#[test]
fn a_switch_that_the_partitions_refuse_is_told_and_tried_again() {
    let mut world = waiting();
    world.refuse_next("read-only file system");
    world.answer(DrainStatus::Complete);
    assert_eq!(world.spare_state(), PartitionState::Unused);
    assert_eq!(world.zboot[&Label::B].partition_state, "unused");
    assert_eq!(world.statuses[X].error, "read-only file system");
    world.wait(Duration::from_secs(30));
    assert_eq!(world.spare_state(), PartitionState::Updating);
}

#[test]
fn an_update_that_comes_during_a_test_waits_for_its_end_and_is_drained_for() {
    let mut world = waiting();
    world.answer(DrainStatus::Complete);
    world.boot();
    world.unwant(X);
    world.loaded(Z);
    world.want(Z, NEWER);
    assert!(world.statuses[Z].too_early);
    assert_eq!(world.writes(), 1);
    world.say(Event::TestComplete { label: Label::B, complete: true });
    assert!(!world.statuses[Z].too_early);
    assert_eq!((world.writes(), world.asks(), world.spare_state()), (2, 2, PartitionState::Unused));
    world.is_let_go();
}

#[test]
fn content_that_goes_once_the_image_is_whole_changes_nothing() {
    let mut world = waiting();
    world.say(Event::Tree { key: X.to_owned(), value: None });
    assert_eq!(world.statuses[X].state, SwState::Loaded);
    world.is_let_go();
}

#[test]
fn an_error_of_the_content_stops_the_drain_and_is_copied() {
    let mut world = waiting();
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
    let mut world = World::new();
    world.slow_writes = true;
    world.want(X, NEW);
    world.loaded(X);
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
    let mut world = World::new();
    world.slow_writes = true;
    world.want(X, NEW);
    world.loaded(X);
    let first = world.write.clone().unwrap();
    world.unwant(X);
    world.want(X, NEW);
    assert_ne!(world.write.clone().unwrap(), first);
    world.say(Event::Written { of: first, outcome: Ok(NEW.to_owned()) });
    assert_eq!(world.asks(), 0);
    world.written();
    assert_eq!(world.asks(), 1);
}
