//! Which containers are read, and how long their marks stay.

use crate::pods::{Container, ContainerState};
use topics::{AppInstanceConfig, VmMode};

use super::super::samples::at;

use super::*;

fn container(name: &str, init: bool) -> Container {
    Container { name: name.to_owned(), init, restarts: 0, state: ContainerState::Running }
}

fn pod(name: &str, containers: Vec<Container>) -> AppPod {
    AppPod { name: name.to_owned(), uid: format!("uid of {name}"), containers, ..AppPod::default() }
}

fn app(display: &str, mode: VmMode, designated: bool) -> App {
    let mut config = AppInstanceConfig { display_name: display.to_owned(), ..AppInstanceConfig::default() };
    config.is_designated_node_id = designated;
    config.fixed_resources.virtualization_mode = mode;
    App::of(&config)
}

fn book(apps: &[(&str, App)], pods: Vec<AppPod>) -> AppTable {
    let mut book = AppTable::new([]);
    for (key, app) in apps {
        book.configured((*key).to_owned(), Some(app.clone()));
    }
    book.configs_read();
    book.node("n1".to_owned());
    book.set_pods(pods);
    book
}

fn web() -> AppPod {
    pod("web-00000-0-x7k2p", vec![container("web-00000-0", false)])
}

/// `app/container` of all that is read at once.
fn read(course: &mut LogCourse) -> Vec<String> {
    std::iter::from_fn(|| course.due(at(0))).map(|(it, _)| format!("{}/{}", it.app, it.container)).collect()
}

fn course_of(book: &AppTable) -> LogCourse {
    let mut course = LogCourse::default();
    course.see(at(0), &Scene::of(book));
    course
}

#[test]
fn containers_of_native_applications_are_read_and_the_console_of_machines() {
    let launcher = |name: &str| {
        pod(
            name,
            vec![container("guest-console-log", true), container("compute", false), container("x", true)],
        )
    };
    let pods = vec![
        pod("web-00000-0-x7k2p", vec![container("init", true), container("a", false), container("b", false)]),
        launcher("virt-launcher-vm-00000-0ab1cd-x7k2p"),
        launcher("virt-launcher-web-00000-0ab1cd-x7k2p"),
        pod("vm-00000-00-x7k2p", vec![container("c", false)]),
    ];
    let apps = [("n", app("web", VmMode::NoHyper, true)), ("m", app("vm", VmMode::default(), true))];
    assert_eq!(read(&mut course_of(&book(&apps, pods.clone()))), ["m/guest-console-log", "n/a", "n/b"]);
    let elsewhere = [("n", app("web", VmMode::NoHyper, false)), ("m", app("vm", VmMode::default(), false))];
    assert!(read(&mut course_of(&book(&elsewhere, pods))).is_empty(), "its designated node reads it");
}

#[test]
fn marks_stay_as_long_as_their_pod_and_their_application_do() {
    let native = |designated| ("n", app("web", VmMode::NoHyper, designated));
    let mut course = course_of(&book(&[native(true)], vec![web()]));
    let kept = course.changed();
    let marks = kept[0].1.clone().unwrap();
    assert_eq!((kept[0].0.as_str(), marks.containers[0].pod_uid.as_str()), ("n", "uid of web-00000-0-x7k2p"));
    // Not read for a while.
    course.see(at(0), &Scene::of(&book(&[native(false)], vec![web()])));
    assert!(course.changed().is_empty());
    course.see(at(0), &Scene::of(&book(&[native(true)], vec![web()])));
    assert!(course.changed().is_empty());
    course.see(at(0), &Scene::of(&book(&[native(true)], vec![])));
    assert_eq!(course.changed(), [("n".to_owned(), None)], "its pod is gone");
    // After a restart.
    let mut course = LogCourse::new([("n", &marks), ("o", &marks)]);
    course.see(at(0), &Scene::default());
    assert!(course.changed().is_empty(), "nothing is known yet");
    course.see(at(0), &Scene::of(&book(&[native(true)], vec![web()])));
    assert_eq!(course.changed(), [("o".to_owned(), None)], "its application is gone");
}

#[test]
fn a_pod_that_goes_during_a_reading_is_read_to_its_end() {
    let native = [("n", app("web", VmMode::NoHyper, true))];
    let mut course = course_of(&book(&native, vec![web()]));
    let (source, _) = course.due(at(0)).unwrap();
    course.changed();
    course.see(at(1), &Scene::of(&book(&native, vec![])));
    let line = LogLine { at: jiff::Timestamp::UNIX_EPOCH, text: String::new(), left_out: 0 };
    assert_eq!(course.sift(&source, vec![line.clone()]), None, "it is doubted, as the first of its run");
    course.ended(&source, at(1), ReadEnd::Doubtful);
    assert_eq!(course.changed(), [("n".to_owned(), None)]);
    assert_eq!(course.sift(&source, vec![line]), Some(vec![]));
}
