//! Layers that never shut the gate for good: clock, runtime, network, unread pods, kube-system, virtual machines, probes.

use super::*;
use crate::node::gate::{VirtualIp, Warning};

const WRONG: &str = "the wall clock shows 1970-01-01T00:02:00Z";

fn virtual_ip(holder: &str, ready: bool, renewed: &str) -> GateFact {
    without_address(holder, ready, renewed, &[])
}

fn without_address(holder: &str, ready: bool, renewed: &str, absent: &[&str]) -> GateFact {
    GateFact::Network(vec![VirtualIp {
        absent: texts(absent),
        lease: "kube-system/plndr-cp-lock".to_owned(),
        holder: holder.to_owned(),
        ready,
        renewed: renewed.to_owned(),
    }])
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}

fn unread(layer: Layer) -> GateFact {
    GateFact::Trouble(layer, "403 forbidden".to_owned())
}

/// A layer, what is wrong, what heals it, its limit, whether it shuts the gate until then; a word of what is said, a word of
/// what to do.
type Row = (Layer, Vec<GateFact>, Vec<GateFact>, u64, bool, &'static str, &'static str);

#[expect(clippy::too_many_lines, reason = "one table")]
fn table() -> Vec<Row> {
    let well = || vec![virtual_ip("n2", true, "1"), virtual_ip("n2", true, "2")];
    let same = || vec![virtual_ip("n2", true, "1"), virtual_ip("n2", true, "1")];
    let lost = || vec![virtual_ip("n3", false, "1"), virtual_ip("n3", false, "2")];
    let (net, sys, vms) = (Layer::Network, Layer::System, Layer::Machines);
    let dns = || vec![GateFact::System(texts(&["kube-system/dns-1 (CrashLoopBackOff)"]))];
    let port = || vec![GateFact::Pending(texts(&["kube-system/svclb-1 (no node: its host port is taken)"]))];
    let down = || vec![GateFact::Machines(texts(&["shop/db (being ended since 2026-01-01T00:00:00Z)"]))];
    let probe = |why: &[&str]| {
        let all = why.iter().map(|it| ((*it).to_owned(), "look at what serves it: curl -v U".to_owned()));
        vec![GateFact::Probes(all.collect())]
    };
    let (no_pods, no_pending) =
        (|| vec![GateFact::System(Vec::new())], || vec![GateFact::Pending(Vec::new())]);
    let no_machines = || vec![GateFact::Machines(Vec::new())];
    vec![
        (
            Layer::Clock,
            vec![GateFact::Clock(WRONG.to_owned())],
            vec![GateFact::Clock(String::new())],
            300,
            true,
            "1970",
            "timedatectl",
        ),
        (
            Layer::Runtime,
            vec![GateFact::Runtime("the container runtime cannot be asked: S: no answer".to_owned())],
            vec![GateFact::Runtime(String::new())],
            300,
            true,
            "S: no answer",
            "crictl ps",
        ),
        (
            net,
            vec![virtual_ip("", false, "1")],
            well(),
            600,
            true,
            "plndr-cp-lock: no node holds it",
            "get lease plndr-cp-lock",
        ),
        (
            net,
            vec![
                without_address("n1", true, "1", &["10.0.0.9"]),
                without_address("n1", true, "2", &["10.0.0.9"]),
            ],
            vec![without_address("n1", true, "3", &[]), without_address("n1", true, "4", &[])],
            600,
            true,
            "this node holds it, and has no interface with 10.0.0.9",
            "get lease plndr-cp-lock",
        ),
        (
            net,
            [well(), vec![GateFact::Unconnected(texts(&["longhorn-system/im-1 (network lh)"]))]].concat(),
            vec![GateFact::Unconnected(Vec::new())],
            600,
            true,
            "no address in the network that they ask for: longhorn-system/im-1 (network lh)",
            "-n longhorn-system describe pod im-1",
        ),
        (
            net,
            lost(),
            well(),
            600,
            true,
            "of n3: its holder is not a Ready node",
            "delete lease plndr-cp-lock",
        ),
        (net, same(), well(), 600, true, "of n2: its holder does not renew it", "kube-vip"),
        (net, vec![unread(net)], well(), 600, true, "403 forbidden", "get lease"),
        (
            Layer::Storage,
            vec![unread(Layer::Storage)],
            vec![GateFact::Storage(Vec::new())],
            600,
            true,
            "403 forbidden",
            "get pods",
        ),
        (
            sys,
            dns(),
            no_pods(),
            900,
            false,
            "kube-system/dns-1 (CrashLoopBackOff)",
            "-n kube-system describe pod dns-1",
        ),
        (sys, port(), no_pending(), 900, false, "host port", "-n kube-system describe pod svclb-1"),
        (sys, vec![unread(sys)], no_pending(), 900, false, "403 forbidden", "get pods -A"),
        (vms, down(), no_machines(), 300, false, "shop/db (being ended", "-n shop describe vmi db"),
        (vms, vec![unread(vms)], no_machines(), 300, false, "403 forbidden", "get vmi -A"),
        (
            Layer::Probes,
            probe(&["shop: U answers 503, not 200"]),
            probe(&[]),
            300,
            false,
            "answers 503",
            "curl -v U",
        ),
    ]
}

/// The same with a lease that is renewed in time.
fn with_lease(gate: &mut Gate, secs: u64, facts: &[GateFact]) -> GateStatus {
    gate.hear(at(secs), lease(&format!("r{secs}")));
    for fact in facts {
        gate.hear(at(secs), fact.clone());
    }
    gate.judge(at(secs))
}

/// Layers that warn, and whether their limits are over.
fn warned(verdict: &GateStatus) -> Vec<(Layer, bool)> {
    verdict.warnings.iter().map(|it| (it.layer, it.failed)).collect()
}

#[test]
fn r4_u10_a_layer_of_these_waits_until_its_limit_then_warns_by_name_and_heals() {
    for (layer, bad, good, limit, shuts, words, next) in table() {
        let mut gate = open(&[]);
        for secs in (10..10 + limit).step_by(20) {
            let facts: &[GateFact] = if secs == 10 { &bad } else { &[] };
            let verdict = with_lease(&mut gate, secs, facts);
            assert!(!verdict.failed, "{verdict:?}");
            if shuts {
                assert_eq!((verdict.layer, warned(&verdict)), (Some(layer), Vec::new()), "{secs}");
                assert!(verdict.words.contains(words) && verdict.next_step.contains(next), "{verdict:?}");
            } else {
                assert_eq!((verdict.is_open(), verdict.holds_turn), (true, true), "{secs} {verdict:?}");
                assert_eq!(warned(&verdict), [(layer, false)]);
            }
        }
        with_lease(&mut gate, 9 + limit, &[]);
        assert_eq!(gate.due(at(9 + limit)), Some(at(10 + limit)), "{layer:?}");
        with_lease(&mut gate, 10 + limit, &[]);
        let verdict = with_lease(&mut gate, 15 + limit, &[]);
        assert!(verdict.is_open() && !verdict.holds_turn, "{verdict:?}");
        let [warning] = verdict.warnings.as_slice() else { panic!("{verdict:?}") };
        assert_eq!((warning.layer, warning.since, warning.failed), (layer, at(10), true));
        assert!(warning.words.contains(words) && warning.next_step.contains(next), "{warning:?}");
        let verdict = with_lease(&mut gate, 16 + limit, &good);
        assert!(verdict.is_open() && verdict.warnings.is_empty(), "{verdict:?}");
        // Healed within its time, it leaves nothing behind either.
        let mut gate = open(&[]);
        with_lease(&mut gate, 10, &bad);
        with_lease(&mut gate, 20, &good);
        let verdict = with_lease(&mut gate, 26, &[]);
        assert!(verdict.is_open() && !verdict.holds_turn && verdict.warnings.is_empty(), "{verdict:?}");
    }
}

#[test]
fn the_time_of_each_counts_while_all_below_it_is_sound_and_trouble_below_does_not_start_it_again() {
    for (layer, bad, _, limit, shuts, ..) in table() {
        let below = [GateFact::Devices(texts(&["/dev/kmsg"])), GateFact::Devices(Vec::new())];
        let mut gate = open(&[]);
        with_lease(&mut gate, 10, &bad);
        let verdict = with_lease(&mut gate, 20, &below[..1]);
        assert_eq!((verdict.layer, verdict.warnings), (Some(Layer::Devices), Vec::<Warning>::new()));
        with_lease(&mut gate, 30, &below[1..]);
        for secs in (40..20 + limit).step_by(20) {
            let verdict = with_lease(&mut gate, secs, &[]);
            assert_eq!((verdict.layer == Some(layer), verdict.holds_turn), (shuts, !shuts), "{verdict:?}");
        }
        assert_eq!(gate.due(at(19 + limit)), Some(at(20 + limit)), "ten seconds counted before");
        assert_eq!(warned(&with_lease(&mut gate, 20 + limit, &[])), [(layer, true)]);
    }
}

#[test]
fn u10_machines_and_pods_seen_before_the_node_was_ready_do_not_let_the_turn_go() {
    let mut gate = open(&[]);
    let seen = [GateFact::Machines(Vec::new()), GateFact::Pending(Vec::new()), GateFact::Probes(Vec::new())];
    with_lease(&mut gate, 10, &[&[node("KubeletNotReady", &[])], &seen[..]].concat());
    let verdict = with_lease(&mut gate, 20, &[node("", &[])]);
    assert_eq!(warned(&verdict), [(Layer::System, false), (Layer::Machines, false), (Layer::Probes, false)]);
    assert!(verdict.holds_turn && gate.waits_for_upper(at(20)), "{verdict:?}");
    let verdict = with_lease(&mut gate, 30, &seen);
    assert!(!verdict.holds_turn && verdict.warnings.is_empty(), "{verdict:?}");
}

#[test]
fn of_the_layers_that_shut_it_the_lowest_is_named_and_one_whose_limit_is_over_lets_the_next_one_speak() {
    let mut gate = open(&[]);
    let (clock, away) = (GateFact::Clock(WRONG.to_owned()), GateFact::Service(Err("refused".to_owned())));
    let verdict = with_lease(&mut gate, 10, &[clock, away]);
    assert_eq!(verdict.layer, Some(Layer::Clock), "what comes later is known to be wrong by it");
    gate.hear(at(310), GateFact::Away("refused".to_owned()));
    let verdict = gate.judge(at(310));
    assert_eq!((verdict.layer, warned(&verdict)), (Some(Layer::Service), vec![(Layer::Clock, true)]));
}

#[test]
fn seed_0_06_another_address_than_before_the_boot_is_reported_at_once_and_holds_nothing() {
    let at_home = |it: &[&str]| GateFact::Node(GateNode { addresses: texts(it), ..GateNode::default() });
    for (known, now, expected) in [
        (&["10.0.0.2", "fd00::2"][..], &["fd00::2", "10.0.0.2"][..], ""),
        (&["10.0.0.2"], &["10.0.0.7"], "has the address 10.0.0.7; before this boot it had 10.0.0.2"),
        (&["10.0.0.2", "fd00::2"], &["10.0.0.2"], "has the address 10.0.0.2; before this boot"),
        (&["10.0.0.2"], &["10.0.0.2", "fd00::2"], "has the address 10.0.0.2, fd00::2; before"),
        (&[], &["10.0.0.7"], ""),
        (&["10.0.0.2"], &[], ""),
    ] {
        let mut gate = open(&[]);
        let verdict = with_lease(&mut gate, 10, &[GateFact::Known(texts(known)), at_home(now)]);
        assert!(verdict.is_open() && !verdict.holds_turn, "{verdict:?}");
        let said = verdict.warnings.first().map(|it| (it.words.contains(expected), it.since, it.failed));
        assert_eq!(said, (!expected.is_empty()).then_some((true, at(10), true)), "{verdict:?}");
        // It is also said before the gate opens.
        let verdict = with_lease(&mut gate, 20, &[GateFact::Storage(texts(&["longhorn-system/m"]))]);
        assert_eq!(verdict.warnings.len(), usize::from(!expected.is_empty()), "{verdict:?}");
        let verdict = with_lease(&mut gate, 30, &[at_home(known)]);
        assert!(verdict.warnings.is_empty(), "{verdict:?}");
    }
}
