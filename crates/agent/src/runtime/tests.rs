//! The client against a runtime on a socket.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::UnixListener;

use super::mock::{RuntimeReply, frame, pod, serve};
use super::{Runtime, SOCKETS};
use crate::Clock;

fn uids(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}

async fn asked(answer: RuntimeReply) -> Result<BTreeSet<String>, String> {
    let root = TempDir::new().unwrap();
    let _server = serve(&root.path().join(SOCKETS[0]), move || answer.clone()).unwrap();
    Runtime::new(root.path(), "").live_pods().await.map_err(|why| {
        let place = root.path().join(SOCKETS[0]).display().to_string();
        why.replace(&place, "S")
    })
}

#[tokio::test(start_paused = true)]
async fn d9_a_pod_lives_while_its_sandbox_or_a_container_of_it_is_not_known_to_have_ended() {
    let table = [
        (Some(0), Some(1), true, "runs"),
        (Some(0), Some(2), true, "its sandbox is ready: a container may be started again"),
        (Some(0), None, true, "no container yet"),
        (Some(1), Some(1), true, "a container runs all the same"),
        (None, Some(1), true, "a container without a sandbox"),
        (Some(1), Some(0), true, "created, about to start"),
        (Some(1), Some(3), true, "unknown is not ended"),
        (Some(1), Some(7), true, "a state of a later version"),
        (Some(7), None, true, "the same of a sandbox"),
        (Some(1), Some(2), false, "both have ended"),
        (Some(1), None, false, "a sandbox that has ended"),
        (None, Some(2), false, "a container that has ended"),
        (None, None, false, "nothing of it"),
    ];
    for (sandbox, container, lives, why) in table {
        let found = asked(RuntimeReply::Pods(vec![("a".into(), sandbox, container), pod("b", true)])).await;
        let expected = if lives { uids(&["a", "b"]) } else { uids(&["b"]) };
        assert_eq!(found.unwrap(), expected, "{why}");
    }
    assert_eq!(asked(RuntimeReply::Pods(Vec::new())).await.unwrap(), uids(&[]));
    // Another process, and more pods than any node has.
    let many: Vec<_> = (0..5000).map(|it| pod(&format!("uid-{it}"), it % 2 == 0)).collect();
    assert_eq!(asked(RuntimeReply::Pods(many)).await.unwrap().len(), 2500);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_none_is_never_an_empty_list() {
    let cannot = |why: &str| format!("the container runtime cannot be asked: S: {why}");
    let sane = frame(&[]);
    let table = [
        (RuntimeReply::Silence, "it does not answer within 5 s"),
        (RuntimeReply::Endless, "its answer is longer than 16 MiB"),
        (RuntimeReply::Page, "it is no container runtime: status 200 OK"),
        (
            RuntimeReply::Refused("unknown service"),
            "it does not know ListPodSandbox: unknown service (gRPC status 12)",
        ),
        (RuntimeReply::CutOff(sane), "its answer cannot be read: it is cut off"),
        (RuntimeReply::CutOff(vec![0, 0]), "its answer cannot be read: it is cut off"),
        (RuntimeReply::Body(Vec::new()), "its answer cannot be read: it is cut off"),
        (RuntimeReply::Body(vec![0, 0, 0]), "its answer cannot be read: it is cut off"),
        (RuntimeReply::Body(vec![1, 0, 0, 0, 0]), "its answer cannot be read: it is compressed"),
        (
            RuntimeReply::Body(vec![0, 0, 0, 0, 9, 1]),
            "its answer cannot be read: it is not as long as it says",
        ),
        (
            RuntimeReply::Body(vec![0, 0xff, 0xff, 0xff, 0xff]),
            "its answer cannot be read: it is not as long as it says",
        ),
    ];
    for (answer, why) in table {
        assert_eq!(asked(answer.clone()).await.unwrap_err(), cannot(why), "{answer:?}");
    }
    for answer in [RuntimeReply::Body(frame(b"garbage")), RuntimeReply::Body(frame(&[0x0a, 0x7f, 0x01]))] {
        let why = asked(answer).await.unwrap_err();
        assert!(why.starts_with(&cannot("its answer cannot be read: ")), "{why}");
    }
    let why = asked(RuntimeReply::HangUp).await.unwrap_err();
    assert!(why.starts_with(&cannot("HTTP/2: ")), "{why}");
}

#[tokio::test(start_paused = true)]
async fn whoever_speaks_no_http_or_nothing_at_all_holds_nothing_up() {
    for speaks in [true, false] {
        let root = TempDir::new().unwrap();
        let socket = root.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let mut server = tokio::task::JoinSet::new();
        server.spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                if speaks {
                    let mut stream = stream.into_std().unwrap();
                    stream.write_all(b"220 ready to serve mail, what do you want of me today\r\n").unwrap();
                    held.push(stream);
                } else {
                    held.push(stream.into_std().unwrap());
                }
            }
        });
        let clock = Clock::new();
        let before = clock.now();
        let why = Runtime::new(root.path(), &socket.display().to_string()).live_pods().await.unwrap_err();
        let took = clock.now().since(before);
        assert!(took <= Duration::from_secs(6), "{took:?} {why}");
        assert_eq!(why.contains("HTTP/2"), speaks, "{why}");
        server.abort_all();
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_to_a_socket_that_is_asked_anyway_is_passed_over_and_any_other_link_is_not() {
    let root = TempDir::new().unwrap();
    let at = |place: &str| root.path().join(place);
    let ask = async || Runtime::new(root.path(), "").live_pods().await;
    let _k3s = serve(&at(SOCKETS[1]), || RuntimeReply::Pods(vec![pod("k", true)])).unwrap();
    std::fs::create_dir_all(at(SOCKETS[0]).parent().unwrap()).unwrap();
    symlink(at(SOCKETS[1]), at(SOCKETS[0])).unwrap();
    assert_eq!(ask().await.unwrap(), uids(&["k"]));
    // Link targets are not asked.
    std::fs::remove_file(at(SOCKETS[0])).unwrap();
    let _elsewhere = serve(&at("elsewhere"), || RuntimeReply::Pods(vec![])).unwrap();
    symlink(at("elsewhere"), at(SOCKETS[0])).unwrap();
    assert!(ask().await.unwrap_err().contains("it is no socket"));
    std::fs::create_dir_all(at(SOCKETS[2]).parent().unwrap()).unwrap();
    symlink(at("elsewhere"), at(SOCKETS[2])).unwrap();
    assert!(ask().await.unwrap_err().contains("it is no socket"), "two links to one place");
}

#[tokio::test(start_paused = true)]
async fn each_usual_place_is_asked_and_the_named_one_alone() {
    let root = TempDir::new().unwrap();
    let at = |place: &str| root.path().join(place);
    let ask = |named: &str| {
        let runtime = Runtime::new(root.path(), named);
        async move { runtime.live_pods().await }
    };
    let none = ask("").await.unwrap_err();
    assert!(none.starts_with("no socket of a container runtime at "), "{none}");
    assert!(none.ends_with("(`runtime_socket` of the limits file names it)"), "{none}");
    let _k3s = serve(&at(SOCKETS[1]), || RuntimeReply::Pods(vec![pod("k", true)])).unwrap();
    assert_eq!(ask("").await.unwrap(), uids(&["k"]));
    // One that belongs to something else: what any of them says lives does.
    let other = serve(&at(SOCKETS[0]), || RuntimeReply::Pods(vec![pod("o", true), pod("k", false)])).unwrap();
    assert_eq!(ask("").await.unwrap(), uids(&["k", "o"]));
    drop(other);
    // Without a listener: its containers may run all the same.
    let why = ask("").await.unwrap_err();
    assert!(
        why.starts_with("one container runtime answers, and another") && why.contains(SOCKETS[0]),
        "{why}"
    );
    assert!(why.contains("`runtime_socket`"), "{why}");
    let named = at(SOCKETS[1]).display().to_string();
    assert_eq!(ask(&named).await.unwrap(), uids(&["k"]), "the one that is named counts");
    let named = at(SOCKETS[0]).display().to_string();
    // A program that another test is just starting has a copy of what listened there, for a moment.
    let mut why = String::new();
    for _ in 0..1000 {
        why = ask(&named).await.unwrap_err();
        if why.contains("cannot connect") {
            return;
        }
    }
    panic!("{why}");
}

#[tokio::test(start_paused = true)]
async fn d9_one_that_answers_hides_none_that_fails_and_one_without_the_interface_is_passed_over() {
    let cases = [
        (RuntimeReply::Pods(vec![pod("o", true)]), Some(uids(&["k", "o"]))),
        (RuntimeReply::Refused("unknown service"), Some(uids(&["k"]))),
        // From here on it is one that fails.
        (RuntimeReply::Silence, None),
        (RuntimeReply::HangUp, None),
        (RuntimeReply::Page, None),
        (RuntimeReply::Body(frame(b"garbage")), None),
    ];
    for (answer, found) in cases {
        let root = TempDir::new().unwrap();
        let said = answer.clone();
        let _other = serve(&root.path().join(SOCKETS[0]), move || said.clone()).unwrap();
        let named = root.path().join(SOCKETS[0]).display().to_string();
        let alone = Runtime::new(root.path(), &named).trouble().await;
        assert_eq!(alone.is_some(), found.is_none(), "{answer:?} {alone:?}");
        assert!(alone.is_none_or(|it| it.starts_with(&format!("the container runtime cannot be asked: {named}: "))));
        let _k3s = serve(&root.path().join(SOCKETS[1]), || RuntimeReply::Pods(vec![pod("k", true)])).unwrap();
        let runtime = Runtime::new(root.path(), "");
        assert_eq!(runtime.live_pods().await.ok(), found, "{answer:?}");
        assert_eq!(runtime.trouble().await, None, "one answers");
    }
    assert_eq!(Runtime::new(TempDir::new().unwrap().path(), "").trouble().await, None, "no socket");
}

#[test]
fn k6_what_is_no_socket_of_roots_is_not_asked() {
    let root = TempDir::new().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let said = |place: &Path| {
        let named = place.display().to_string();
        let found = runtime.block_on(Runtime::new(root.path(), &named).live_pods());
        found.map_err(|why| why.replace(&named, "S"))
    };
    let real = root.path().join("real");
    let _server = serve(&real, || RuntimeReply::Pods(vec![pod("a", true)])).unwrap();
    assert_eq!(said(&real).unwrap(), uids(&["a"]));
    let (link, file) = (root.path().join("link"), root.path().join("file"));
    symlink(&real, &link).unwrap();
    std::fs::File::create(&file).unwrap();
    for it in [&link, &file] {
        assert_eq!(said(it).unwrap_err(), "the container runtime cannot be asked: S: it is no socket");
    }
    if !rustix::process::geteuid().is_root() {
        writeln!(std::io::stderr(), "skipped: only root can give a socket to another user").unwrap();
        return;
    }
    std::os::unix::fs::chown(&real, Some(1234), None).unwrap();
    let why = "the container runtime cannot be asked: S: it belongs to user 1234, not to root";
    assert_eq!(said(&real).unwrap_err(), why);
}

#[test]
fn s4_any_bytes_as_an_answer_are_refused_with_a_reason_or_read() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/runtime");
    let (mut read, mut refused) = (0, 0);
    for file in std::fs::read_dir(kept).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for outcome in super::trial(&bytes) {
            match outcome {
                Ok(_) => read += 1,
                Err(why) => {
                    assert!(!why.is_empty(), "{bytes:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(read >= 6 && refused >= 10, "{read} read, {refused} refused");
}
