//! The table of claims, row by row.

use super::*;

const OURS: &str = "b3e2f1a0-5c4d-4e6f-8a9b-0c1d2e3f4a5b";
const WRITE_OURS: &str = "write b3e2f1a0-5c4d-4e6f-8a9b-0c1d2e3f4a5b";
const OTHER: &str = "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c";

#[derive(Default)]
struct Fake {
    open: Vec<u32>,
    alive: Vec<i64>,
}

impl HostProbe for Fake {
    fn listens(&self, port: u32) -> bool {
        self.open.contains(&port)
    }

    fn is_edgeview(&self, pid: i64) -> bool {
        self.alive.contains(&pid)
    }
}

fn at(secs: u64) -> Mono {
    Mono::START + Duration::from_secs(secs)
}

fn wanted(apps: &[&str]) -> LiteMap<String, Console> {
    let console = || Console { machine: "ubuntu-b3e2f-0ab1cd".to_owned(), port: 5901 };
    apps.iter().map(|it| ((*it).to_owned(), console())).collect()
}

fn console(machine: &str, port: u32, app: &str, pid: i64) -> ConsoleFileState {
    ConsoleFileState::Console(VmiVnc {
        vmi_name: machine.to_owned(),
        vnc_port: port,
        app_uuid: app.to_owned(),
        caller_pid: pid,
    })
}

/// Decisions after a long time, without and with a claim.
fn decided(seen: &ConsoleFileState, fake: &Fake) -> (ConsoleAction, ConsoleAction) {
    let decide = |wanted: &LiteMap<String, Console>| {
        let mut claim = ConsoleFileHistory::default();
        claim.decide(at(0), wanted, seen, fake);
        claim.decide(at(100), wanted, seen, fake)
    };
    (decide(&wanted(&[])), decide(&wanted(&[OURS])))
}

#[test]
fn e7_every_row_of_the_claim_table() {
    let our_file = file(OURS, wanted(&[OURS]).get(OURS).unwrap());
    let vm = "ubuntu-b3e2f-0ab1cd";
    let open = |ports: &[u32], pids: &[i64]| Fake { open: ports.to_vec(), alive: pids.to_vec() };
    let (rest, remove, write) = (ConsoleAction::Rest, ConsoleAction::Remove, ConsoleAction::Write(our_file));
    let wait = ConsoleAction::Wait("");
    for (row, seen, fake, without, with) in [
        ("no file", ConsoleFileState::Absent, open(&[], &[]), &rest, &write),
        ("no file, port in use", ConsoleFileState::Absent, open(&[5901], &[]), &rest, &wait),
        ("unparsable", ConsoleFileState::Unusable, open(&[], &[]), &rest, &remove),
        ("edgeview at work", console(vm, 5902, OTHER, 7), open(&[5902], &[7]), &rest, &wait),
        ("edgeview for this application", console(vm, 5901, OURS, 7), open(&[5901], &[7]), &rest, &wait),
        ("edgeview lives, port closed", console(vm, 5902, OTHER, 7), open(&[], &[7]), &rest, &remove),
        ("edgeview dead, port open", console(vm, 5902, OTHER, 7), open(&[5902], &[]), &rest, &remove),
        ("edgeview dead", console(vm, 5902, OTHER, 7), open(&[], &[]), &rest, &remove),
        ("ours, in place", console(vm, 5901, OURS, 0), open(&[], &[]), &remove, &rest),
        ("ours, in place and open", console(vm, 5901, OURS, 0), open(&[5901], &[]), &remove, &rest),
        (
            "ours, another machine",
            console("ubuntu-b3e2f-0zzzzz", 5901, OURS, 0),
            open(&[5901], &[]),
            &remove,
            &remove,
        ),
        ("ours, another port", console(vm, 5902, OURS, 0), open(&[], &[]), &remove, &remove),
        // Unwanted: no other program writes a file without a caller (D-V3).
        ("another application", console("web", 5902, OTHER, 0), open(&[], &[]), &remove, &remove),
        ("another application, open", console("web", 5902, OTHER, 0), open(&[5902], &[]), &remove, &remove),
        ("no application", console("web", 5902, "", 0), open(&[], &[]), &rest, &remove),
        ("no application, open", console("web", 5902, "", 0), open(&[5902], &[]), &rest, &wait),
    ] {
        let found = decided(&seen, &fake);
        let bare = |act: ConsoleAction| {
            if matches!(act, ConsoleAction::Wait(_)) { ConsoleAction::Wait("") } else { act }
        };
        assert_eq!((bare(found.0), bare(found.1)), (without.clone(), with.clone()), "{row}");
    }
}

/// What is decided, as `rest`, `remove`, `wait` or why, or `write` and the application, of each look: at that second, when these
/// consoles are wanted, with this file, with these ports in use while edgeview has these processes.
type Look<'a> = (u64, &'a [&'a str], &'a ConsoleFileState, &'a [u32], &'a [i64], &'a str);

fn course(looks: &[Look<'_>]) {
    let mut claim = ConsoleFileHistory::default();
    for (secs, apps, seen, open, alive, expected) in looks {
        let mut apps = wanted(apps);
        // So that each has a port of its own.
        if let Some(app) = apps.get_mut(OTHER) {
            app.port = 5902;
        }
        let fake = Fake { open: open.to_vec(), alive: alive.to_vec() };
        let found = match claim.decide(at(*secs), &apps, seen, &fake) {
            ConsoleAction::Rest => "rest".to_owned(),
            ConsoleAction::Wait(why) if why == *expected => why.to_owned(),
            ConsoleAction::Wait(_) => "wait".to_owned(),
            ConsoleAction::Remove => "remove".to_owned(),
            ConsoleAction::Write(file) => format!("write {}", file.app_uuid),
        };
        assert_eq!(found, *expected, "at {secs} s");
    }
}

const ABSENT: &ConsoleFileState = &ConsoleFileState::Absent;

#[test]
fn d_v2_of_two_consoles_the_one_that_is_open_stays_until_it_is_wanted_no_more() {
    let other = console("ubuntu-b3e2f-0ab1cd", 5902, OTHER, 0);
    course(&[
        (0, &[OURS, OTHER], &other, &[], &[], "rest"),
        (9, &[OURS], &other, &[], &[], "remove"),
        (10, &[OURS], ABSENT, &[], &[], "wait"),
        (12, &[OURS], ABSENT, &[], &[], WRITE_OURS),
    ]);
}

#[test]
fn the_two_seconds_count_from_the_first_look_while_a_console_is_wanted() {
    course(&[
        (0, &[], ABSENT, &[], &[], "rest"),
        // Changes meanwhile were not seen.
        (100, &[OURS], ABSENT, &[], &[], "wait"),
        (102, &[OURS], ABSENT, &[], &[], WRITE_OURS),
    ]);
}

#[test]
fn a_port_in_use_holds_up_no_other_application() {
    let both: &[&str] = &[OURS, OTHER];
    course(&[
        (0, both, ABSENT, &[], &[], "wait"),
        (2, both, ABSENT, &[5901], &[], "write d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c"),
        (3, both, ABSENT, &[5901, 5902], &[], "its port is in use"),
        (4, both, ABSENT, &[5902], &[], WRITE_OURS),
    ]);
}

#[test]
fn d_v4_a_console_is_changed_only_after_the_proxy_has_closed() {
    let old = console("ubuntu-b3e2f-0zzzzz", 5907, OURS, 0);
    let mut looks: Vec<Look<'_>> = vec![(0, &[OURS], &old, &[5907], &[], "remove")];
    looks.extend((1..60).map(|secs| (secs, &[OURS][..], ABSENT, &[5907][..], &[][..], "wait")));
    looks.push((60, &[OURS], ABSENT, &[], &[], WRITE_OURS));
    course(&looks);
    // Also when the port is closed at once.
    course(&[
        (0, &[OURS], &old, &[], &[], "remove"),
        (1, &[OURS], ABSENT, &[], &[], "wait"),
        (3, &[OURS], ABSENT, &[], &[], WRITE_OURS),
    ]);
}

#[test]
fn edgeview_has_its_thirty_seconds_and_a_torn_file_another_look() {
    let opening = console("vm", 5902, OTHER, 7);
    course(&[
        (0, &[OURS], &opening, &[], &[7], "wait"),
        (29, &[OURS], &opening, &[], &[7], "wait"),
        (30, &[OURS], &opening, &[], &[7], "remove"),
    ]);
    let torn = ConsoleFileState::Unusable;
    course(&[(0, &[OURS], &torn, &[], &[], "wait"), (2, &[OURS], &torn, &[], &[], "remove")]);
}

#[test]
fn a_port_listens_by_its_line_and_state_at_any_address() {
    let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
        \x20  0: 0100007F:170D 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n\
        \x20  1: 0100007F:170E 0100007F:D2F0 01 00000000:00000000 00:00000000 00000000     0\n\
        \x20  2: 00000000000000000000000000000000:170F 00000000000000000000000000000000:0000 0A 0:0 0:0 0\n";
    let open: Vec<u32> = (5898..5912).filter(|port| is_listening(table, *port)).collect();
    assert_eq!(open, [5901, 5903]);
    assert!(!is_listening("", 5901));
}
