//! The table of stages, one row a case.

use agent::partitions::{Label, PartitionState};
use topics::{BaseOsStatus, SwState};

use super::way::spare_holds;
use super::world::{NEW, NEWER, OLD, World, X};
use crate::core::{Event, LastBootReport};

type Case = (&'static str, fn(&mut World), Row);
type Row = (SwState, bool, bool, &'static str, &'static str);

fn row(status: &BaseOsStatus) -> (SwState, bool, bool, &str, &str) {
    (status.state, status.activated, status.too_early, &status.partition_label, &status.partition_state)
}

#[test]
fn each_row_of_the_table_gives_its_status() {
    let loaded = SwState::Loaded;
    let cases: Vec<Case> = vec![
        ("fresh", |world| world.want(X, NEW), (SwState::from(0), false, false, "", "")),
        (
            "downloading",
            |world| {
                world.want(X, NEW);
                world.tree(X, |tree| tree.state = SwState::from(103));
            },
            (SwState::from(103), false, false, "", ""),
        ),
        (
            "loaded, not to be activated",
            |world| {
                world.config(X, NEW, |config| config.activate = false);
                world.loaded(X);
            },
            (loaded, false, false, "", ""),
        ),
        (
            "loaded and written",
            |world| {
                world.want(X, NEW);
                world.loaded(X);
            },
            (loaded, false, false, "IMGB", "unused"),
        ),
        ("runs", |world| world.want(X, OLD), (SwState::Installed, true, false, "IMGA", "active")),
        (
            "in the other partition, not to be activated",
            |world| {
                spare_holds(world, NEW, PartitionState::Unused);
                world.config(X, NEW, |config| config.activate = false);
                world.loaded(X);
            },
            (loaded, false, false, "IMGB", "unused"),
        ),
        (
            "failed before",
            |world| {
                spare_holds(world, NEW, PartitionState::Inprogress);
                world.want(X, NEW);
                world.loaded(X);
            },
            (SwState::Downloaded, false, false, "IMGB", "inprogress"),
        ),
        (
            "another image is booted next",
            |world| {
                spare_holds(world, NEWER, PartitionState::Updating);
                world.want(X, NEW);
                world.loaded(X);
            },
            (loaded, false, true, "", ""),
        ),
        (
            "the running image is in test",
            |world| {
                world.partition(Label::A).state = PartitionState::Inprogress;
                spare_holds(world, "", PartitionState::Active);
                world.want(X, NEW);
                world.loaded(X);
            },
            (loaded, false, true, "", ""),
        ),
    ];
    for (name, arrange, expected) in cases {
        let mut world = World::new();
        arrange(&mut world);
        assert_eq!(row(&world.statuses[X]), expected, "{name}");
        assert_eq!(world.statuses[X].base_os_version, if name == "runs" { OLD } else { NEW });
    }
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
    let mut world = World::new();
    spare_holds(&mut world, NEW, PartitionState::Inprogress);
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
    use crate::core::{BaseOs, Counters, Effect, SavedUpdates};
    use step::{Core as _, Mono};
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
