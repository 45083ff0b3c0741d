//! Stories of a drain: one line of steps and of what holds after them, instead of a line of code for each.
//!
//! Pure: no clock, no I/O, no task.
//!
//! The first step says how it begins (`start`). What follows is heard by the core (`does`) or holds then (`holds`); what answers
//! a call has the number of the drain as it is. A line that begins with `|` is one step, with its commas.

use std::fmt::Debug;
use std::time::Duration;

use kubenodeop::node::CordonSeen;
use kubenodeop::node::boot::NodeAtRest;
use kubenodeop::node::gate::Layer;
use outage::keeper::Ask;
use outage::turn::event::{TurnState, Unconfirmed};
use outage::turn::record::Op;
use outage::turn::rule::TurnRule;
use step::Core as _;
use topics::{
    CordonOwner, DrainStatus, GoTime, NodeDrainRequest, OperationPause, OutageKind, PauseScope, Requester,
    SkipKind,
};

use super::bench::{Bench, T0, booted_at, request};
use super::turns::{self, pause, window};
use super::{
    CordonTurn, Effect, Event, Force, Membership, NodeLook, Pass, SiteHold, StartObstacle, gated, restarted,
    voided,
};
use crate::limits::Limits;

/// A taint of an outage.
pub(super) const TAINT: &str = "node.kubernetes.io/unreachable:NoExecute";

/// Plays a story from its beginning; its end, for what takes more than a word.
pub(super) fn tell(text: &str) -> Bench {
    let (first, rest) = text.trim().split_once(',').unwrap();
    let mut bench = start(first.trim());
    go(&mut bench, rest);
    bench
}

/// Plays these steps, from where the bench is.
pub(super) fn go(bench: &mut Bench, text: &str) {
    let steps = text.lines().flat_map(|line| match line.trim().strip_prefix('|') {
        Some(step) => vec![step],
        None => line.split(',').collect(),
    });
    for (nth, step) in steps.map(str::trim).filter(|it| !it.is_empty()).enumerate() {
        let words: Vec<&str> = step.split(' ').collect();
        if !does(bench, &words) {
            holds(bench, &words, &format!("step {nth} `{step}` of {text}"));
        }
    }
}

fn start(words: &str) -> Bench {
    match *words.split(' ').collect::<Vec<_>>() {
        ["new"] => Bench::with(None),
        ["new", "in", "turns"] => Bench::at(T0, turns::limits(), None),
        ["idle"] => Bench::idle(),
        ["idle", "in", "turns"] => turns::idle(),
        ["idle", "without", "turns"] => Bench::idle_with(Limits { take_turns: false, ..turns::limits() }),
        ["asked", word] => Bench::asked(who(word)),
        ["draining", word] => Bench::draining(who(word)).0,
        ["complete", word] => voided::complete_for(who(word)),
        ["requested", "in", "turns"] => turns::requested(),
        ["cordoning", "in", "turns"] => turns::cordoning().0,
        ["hooking", "in", "turns"] => turns::hooks::hooking(),
        ["draining", "in", "turns"] => turns::draining().0,
        ["complete", "in", "turns"] => turns::complete(),
        ["back", "in", "turns"] => turns::back(),
        ["outside"] => window::outside(),
        ["retrying"] => restarted::retrying().0,
        ["begun"] => restarted::begun_with(),
        ["booted"] => gated::booted(),
        ["open"] => gated::open(),
        _ => panic!("begins with {words}"),
    }
}

/// The one of these with this name.
fn named<T: Clone + Debug>(all: &[T], word: &str) -> T {
    all.iter().find(|it| word == format!("{it:?}")).unwrap_or_else(|| panic!("{word}")).clone()
}

fn who(word: &str) -> Requester {
    named(Requester::NAMED, word)
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn secs(word: &str) -> Duration {
    Duration::from_secs(number(word))
}

/// A request of this requester, made in this second.
fn asks(by: &str, at: &str) -> NodeDrainRequest {
    request(who(by), number(at))
}

/// Whether it is a step.
fn does(bench: &mut Bench, words: &[&str]) -> bool {
    let of = bench.core.drain.run_id;
    let limits = || bench.core.node.limits.clone();
    match *words {
        ["join"] => bench.join(),
        ["requests", "read"] => bench.read_requests(),
        ["look", "fails"] => bench.hear(Event::Looked(bench.nth(), Err("500".into()))),
        ["look", "pods", owner, ..] => {
            let owner = named(&[CordonOwner::Ours, CordonOwner::Foreign], owner);
            bench.look(NodeLook::HasPods(owner, words[3..].iter().map(|it| voided::pod(it)).collect()));
        }
        ["look", seen] => {
            let all = [NodeLook::Open, NodeLook::Foreign, NodeLook::Ours, NodeLook::NotReady];
            bench.look(named(&all, seen));
        }
        ["drains"] => assert_eq!(bench.until_draining(), of),
        ["done"] => bench.done(of),
        ["fail"] => bench.fail(of),
        ["fails", "all"] => bench.fail_all(of),
        ["away", most] => {
            bench.away(secs(most));
        }
        ["force", status, by] if status != "gone" => bench.force(named(DrainStatus::NAMED, status), who(by)),
        ["wait"] => assert!(bench.wait() > Duration::ZERO),
        ["wait", time] => assert_eq!(bench.wait(), secs(time), "{:?}", bench.last),
        ["at", time] => restarted::pass_to(bench, restarted::at(number(time))),
        ["blocked"] => restarted::held(bench),
        ["pass", time] => bench.now = bench.now + secs(time),
        ["crash"] => *bench = Bench::at(bench.now, limits(), Some(bench.core.journal())),
        ["restart", ..] => {
            let asked: Vec<_> = words[1..].chunks(2).map(|it| asks(it[0], it[1])).collect();
            *bench = Bench::again(bench.now, limits(), bench.core.journal(), &asked);
        }
        ["question", nth, kind] => {
            let all = [OutageKind::None, OutageKind::LastLook, OutageKind::Turn, OutageKind::Emergency];
            turns::ask(bench, number(nth), named(&all, kind));
        }
        _ => match event(bench, words) {
            Some(event) => bench.hear(event),
            None => return false,
        },
    }
    true
}

/// What is heard in a step that is nothing else.
fn event(bench: &Bench, words: &[&str]) -> Option<Event> {
    let rest = |from: usize| words[from..].join(" ");
    let of = bench.core.drain.run_id;
    Some(match *words {
        ["ask", by] => Event::Request(who(by), Some(asks(by, "1"))),
        ["ask", by, at] => Event::Request(who(by), Some(asks(by, at))),
        ["withdraw", by] => Event::Request(who(by), None),
        ["read", by] => Event::RequestsRead(who(by)),
        ["named"] => Event::NodeKnown { name: "n1".into() },
        ["member", word] => {
            Event::Member(named(&[Membership::Member, Membership::Leaving, Membership::Outside], word))
        }
        ["activity"] => Event::NodeActivity("a pod".into()),
        ["probed"] => Event::Probed(of, Ok(())),
        ["unreachable"] => Event::Probed(of, Err("refused".into())),
        ["preflight", "clean"] => Event::Preflighted(of, Ok(Vec::new())),
        ["preflight", "finds"] => Event::Preflighted(of, Ok(vec![turns::preflight::refused(bench)])),
        ["preflight", "away"] => {
            let (why, next_step) = ("no route to host".into(), "check the network".into());
            Event::Preflighted(of, Err(StartObstacle { why, next_step, away: true, of_node: true }))
        }
        ["cordoned"] => Event::Cordoned(of, Ok(CordonOwner::Ours)),
        ["cordoned", "Foreign"] => Event::Cordoned(of, Ok(CordonOwner::Foreign)),
        ["cordon", "fails"] => Event::Cordoned(of, Err("409".into())),
        ["force", "gone"] => Event::Force(Force::Absent),
        ["hold"] => Event::Hold(true),
        ["tick"] => Event::Tick,
        ["wall", hours] => Event::Wall(booted_at().plus(Duration::from_hours(number(hours)))),
        ["gate", "warns"] => gated::warned(bench, false),
        ["gate", "warned"] => gated::warned(bench, true),
        ["gate", layer, ..] => {
            let layer = (layer != "open").then(|| named(Layer::ALL, layer));
            let listed = |word| if words[2..].contains(&word) { &[TAINT][..] } else { &[] };
            gated::report(bench, layer, listed("taint"), listed("fixed"))
        }
        ["tainted"] => Event::Tainted(vec![TAINT.to_owned()]),
        ["seen", cordon] => {
            let cordon = named(&[CordonSeen::None, CordonSeen::Ours, CordonSeen::Foreign], cordon);
            Event::AtRest(NodeAtRest { cordon: Some(cordon), ..NodeAtRest::default() })
        }
        ["left"] => Event::Leftovers(String::new(), String::new()),
        ["left", ..] => Event::Leftovers(rest(1), "give the role".to_owned()),
        ["held", fence] => turns::held(fence.parse().unwrap()),
        ["waits", rule] => turns::waits(named(TurnRule::ALL, rule)),
        ["lost"] => turns::lost(),
        ["turn", "of", "before"] => Event::Turn(Box::new(TurnState::Booted { fence: 7, listed: true })),
        ["confirmed"] => Event::TurnConfirmed(Ok(())),
        ["unconfirmed"] => Event::TurnConfirmed(Err(Unconfirmed::Unknown("no answer".into()))),
        ["window", "open"] => Event::Window(None),
        ["window", "shut", hours] => window::closed(number(hours)),
        ["word", "gone"] => Event::WindowPass(None),
        ["word", by, at] => {
            Event::WindowPass(Some(Pass { of: asks(by, at).id(), by: "root: the pump is dry".into() }))
        }
        ["pause"] => Event::Pause(Some(pause::pause())),
        ["pause", "controller"] => {
            Event::Pause(Some(OperationPause { scope: PauseScope::Controller, ..pause::pause() }))
        }
        ["resume"] => Event::Pause(None),
        ["site", "goes"] => Event::Site(SiteHold::Go("reboot of the whole site op-1".into())),
        ["hook", "runs"] => Event::Hooking(of, "hook 10-a is running".into()),
        ["hook", "fails"] => Event::Hooked(of, Err("hook 10-a: no backup".into())),
        ["hooks", "done"] => Event::Hooked(of, Ok(())),
        ["hooks", "in", "place"] => Event::HooksLeft { in_place: true, after_boot: false },
        ["hooks", "after", "boot"] => Event::HooksLeft { in_place: false, after_boot: true },
        ["hooks", "undone"] => Event::HooksUndone,
        ["server"] => Event::Server(true),
        ["worker"] => Event::Server(false),
        ["looked", nth, "well"] => Event::LookedLast(number(nth), Ok(())),
        ["looked", nth, ..] => Event::LookedLast(number(nth), Err(Unconfirmed::NoMargin(rest(2)))),
        _ => return None,
    })
}

/// What an effect asks for, in a word.
fn word(effect: &Effect) -> String {
    let open = |is: bool| if is { "open" } else { "shut" };
    match effect {
        Effect::Look { uncordon: true, gate_open, .. } => format!("uncordon-{}", open(*gate_open)),
        Effect::Gate(watched) => format!("{}-gate", if *watched { "watch" } else { "leave" }),
        Effect::Taints(watched) => format!("{}-taints", if *watched { "watch" } else { "leave" }),
        Effect::Leftovers(scope) => format!("undo-{scope:?}"),
        Effect::Turn(Ask::Want(None)) => "want-none".to_owned(),
        Effect::Turn(Ask::Want(Some(wish))) => match (wish.emergency, &wish.op, wish.fit) {
            (true, Op::Restart, true) => format!("want-emergency-{}", wish.counter),
            (false, Op::Restart, true) => format!("want-restart-{}", wish.counter),
            (_, _, fit) => (if fit { "want-fit" } else { "want-unfit" }).to_owned(),
        },
        Effect::Turn(Ask::Gate(is)) => format!("turn-{}", open(*is)),
        Effect::Turn(Ask::LastLook(nth)) => format!("last-look-{nth}"),
        Effect::Turn(Ask::Phase(phase)) => format!("phase-{phase:?}"),
        Effect::Turn(Ask::Confirm) => "confirm".to_owned(),
        Effect::Turn(Ask::Look) => "look-at-turn".to_owned(),
        Effect::Turn(Ask::Retry(_)) => "retry".to_owned(),
        Effect::UndoHooks => "undo-hooks".to_owned(),
        Effect::HooksAfterBoot => "hooks-after-boot".to_owned(),
        Effect::Journal(_)
        | Effect::History(_)
        | Effect::Progress(_)
        | Effect::Status(_)
        | Effect::Candidacy(_)
        | Effect::OutageAnswer(_)
        | Effect::Probe(_)
        | Effect::Preflight(_)
        | Effect::Margin { .. }
        | Effect::Cordon(..)
        | Effect::Drain(..)
        | Effect::Await(..)
        | Effect::Cancel
        | Effect::Guard
        | Effect::Look { .. }
        | Effect::CordonRemoved
        | Effect::Say(_) => {
            let text = format!("{effect:?}");
            text.split(|it: char| !it.is_alphanumeric()).next().unwrap_or_default().to_lowercase()
        }
    }
}

/// What a story may say of effects: these words, or ones that begin so.
const EFFECTS: &str = "any-look begin cancel confirm cordon drain guard hooks-after-boot last-look- leave- look phase- preflight \
    probe retry turn uncordon undo- want- watch-";

/// Whether the last step has asked for this, or for one of its kind.
fn did(bench: &Bench, wanted: &str) -> bool {
    const BEGIN: [&str; 4] = ["preflight", "probe", "cordon", "drain"];
    assert!(EFFECTS.split_whitespace().any(|it| wanted.starts_with(it)), "no effect is called {wanted}");
    bench.has(|it| {
        let word = word(it);
        match wanted {
            "begin" => BEGIN.contains(&&*word) || word.starts_with("want-") && word != "want-none",
            "turn" => matches!(it, Effect::Turn(_)),
            "any-look" => matches!(it, Effect::Look { .. }),
            "uncordon" => word.starts_with("uncordon-"),
            _ => word == wanted,
        }
    })
}

/// Whether `found` is, has, lacks, starts or ends as the words say.
fn text_holds(found: &str, words: &[&str], what: &str) {
    let wanted = words[1..].join(" ");
    let holds = match words[0] {
        "is" => found == wanted,
        "has" => found.contains(&wanted),
        "lacks" => !found.contains(&wanted),
        "starts" => found.starts_with(&wanted),
        "ends" => found.ends_with(&wanted),
        other => panic!("{what}: {other}"),
    };
    assert!(holds, "{what}: {found}");
}

/// Whether it is, or is not, what has this name.
fn is(found: &impl Debug, wanted: &[&str], what: &str) {
    match wanted {
        ["not", wanted] => assert_ne!(format!("{found:?}"), *wanted, "{what}"),
        wanted => assert_eq!(format!("{found:?}"), wanted.join(" "), "{what}"),
    }
}

fn holds(bench: &Bench, words: &[&str], what: &str) {
    let rest = |from: usize| words[from..].join(" ");
    let shown = bench.core.progress();
    match *words {
        ["does", "nothing"] => assert_eq!(bench.last, [], "{what}"),
        ["does", ..] => {
            let missed: Vec<_> = words[1..].iter().filter(|it| !did(bench, it)).collect();
            assert!(missed.is_empty(), "{what}: {missed:?} in {:?}", bench.last);
        }
        ["not", ..] => {
            let done: Vec<_> = words[1..].iter().filter(|it| did(bench, it)).collect();
            assert!(done.is_empty(), "{what}: {done:?} in {:?}", bench.last);
        }
        ["cordons", "in", fence] => {
            let grant = CordonTurn { fence: fence.parse().unwrap(), lease_uid: "lease".into() };
            assert!(bench.has(|it| matches!(it, Effect::Cordon(_, _, held) if *held == grant)), "{what}");
        }
        ["retries", ..] => assert!(turns::asked(bench, &Ask::Retry(rest(1))), "{what}: {:?}", bench.last),
        ["cancels", "first"] => assert!(bench.cancels_first(), "{what}"),
        ["now", time] => assert_eq!(bench.now.since(T0), secs(time), "{what}"),
        ["due", "never"] => assert_eq!(bench.core.next_wake(), None, "{what}"),
        ["status", "not", nth] => assert_ne!(u64::from(bench.status().0), number(nth), "{what}"),
        ["status", nth] => assert_eq!(u64::from(bench.status().0), number(nth), "{what}"),
        ["status", nth, by] => {
            assert_eq!(bench.status(), (nth.parse().unwrap(), by.parse().unwrap()), "{what}");
        }
        ["showed", nth, by] => {
            assert!(bench.statuses.contains(&(nth.parse().unwrap(), by.parse().unwrap())), "{what}");
        }
        ["shown", ..] => is(&shown.status, &words[1..], what),
        ["phase", ..] => is(&shown.phase, &words[1..], what),
        ["owner", ..] => is(&shown.cordon, &words[1..], what),
        ["reason", ..] => text_holds(&shown.reason, &words[1..], what),
        ["next", ..] => text_holds(&shown.next_step, &words[1..], what),
        ["failed", ..] => text_holds(&restarted::has_failed(bench), &words[1..], what),
        ["no", "skip"] => assert_eq!(shown.skip, "", "{what}"),
        ["says", times, ..] => assert_eq!(bench.said(&rest(2)).to_string(), times, "{what}"),
        ["for", "nobody"] => assert!(shown.requested_at.is_zero(), "{what}"),
        ["for", by] => assert_eq!(shown.requested_by, who(by), "{what}"),
        ["for", by, at] => {
            assert_eq!(
                (shown.requested_by, shown.requested_at),
                (who(by), asks(by, at).requested_at),
                "{what}"
            );
        }
        ["blockers", ..] => {
            let codes: Vec<_> = shown.blockers.iter().map(|it| it.code.as_str()).collect();
            let codes = if codes.is_empty() { "none".to_owned() } else { codes.join(" ") };
            assert_eq!(codes, rest(1), "{what}");
        }
        ["deadline", "none"] => assert_eq!(shown.deadline, GoTime::ZERO, "{what}"),
        ["deadline", "some"] => assert!(!shown.deadline.is_zero(), "{what}"),
        ["deadline", "hour", hour] => {
            assert_eq!(shown.deadline, booted_at().plus(Duration::from_hours(number(hour))), "{what}");
        }
        ["shows", "pause"] => assert_eq!(shown.pause, pause::pause(), "{what}"),
        ["none", "complete"] => {
            let answers = bench.core.journal().answers;
            assert!(answers.iter().all(|it| it.status != DrainStatus::Complete), "{what}: {answers:?}");
        }
        ["answers", ..] => {
            let all = bench.core.journal().answers;
            let all: Vec<_> = all.iter().map(|it| format!("{:?} {:?}", it.requested_by, it.status)).collect();
            assert_eq!(all.join("; "), rest(1), "{what}");
        }
        ["skipped", kind] => {
            let kind = named(&[SkipKind::Forced, SkipKind::ApiUnreachable, SkipKind::Other], kind);
            assert!(shown.answers.iter().any(|it| it.skip_kind == kind), "{what}");
        }
        ["kept", step, ..] => {
            let steps = &bench.core.history.kept.drains[0].steps;
            let kept = steps.iter().find(|it| format!("{:?}", it.step) == step);
            text_holds(&kept.unwrap_or_else(|| panic!("{what}: {steps:?}")).text, &words[2..], what);
        }
        ["layer", "none"] => {
            assert!(shown.gate.open && shown.gate.layer.is_empty(), "{what}: {:?}", shown.gate);
        }
        ["stale", count] => {
            assert_eq!(shown.gate.stale_taints, vec![TAINT; count.parse().unwrap()], "{what}");
        }
        ["repaired", "nothing"] => assert!(shown.repairs.is_empty(), "{what}: {:?}", shown.repairs),
        ["repaired", times] => {
            assert_eq!(shown.repairs, [(TAINT.to_owned(), times.parse().unwrap())].into(), "{what}");
        }
        ["warnings", count] => assert_eq!(shown.gate.warnings.len().to_string(), count, "{what}"),
        ["well"] => assert!(bench.core.cleanup.is_healthy(), "{what}"),
        _ => answered(bench, words, what),
    }
}

/// What nodeagent is answered.
fn answered(bench: &Bench, words: &[&str], what: &str) {
    let rest = |from: usize| words[from..].join(" ");
    match *words {
        ["verdict", ..] => is(&turns::verdict(bench), &words[1..], what),
        ["answer", "none"] => assert_eq!(turns::answer(bench), None, "{what}"),
        ["answer", nth, ..] => {
            let said = turns::answer(bench).unwrap_or_else(|| panic!("{what}: {:?}", bench.last));
            let unread = if said.unread { " unread" } else { "" };
            assert_eq!(
                (said.number, format!("{:?}{unread}", said.verdict)),
                (number(nth), rest(2)),
                "{what}"
            );
        }
        ["place", nth] => assert_eq!(turns::answer(bench).unwrap().place.to_string(), nth, "{what}"),
        ["role", ..] => is(&turns::answer(bench).unwrap().role, &words[1..], what),
        ["why", ..] => text_holds(&turns::answer(bench).unwrap().why, &words[1..], what),
        ["then", ..] => text_holds(&turns::answer(bench).unwrap().next_step, &words[1..], what),
        _ => panic!("{what}: no such step"),
    }
}
