//! Layers that never shut the gate for good: clock, runtime, network, unread pods, kube-system, virtual machines, probes.

use checks::network::VirtualIp;
use checks::workloads::not_up;
use topics::GateWarning;

use super::*;

const WRONG: &str = "the wall clock shows 1970-01-01T00:02:00Z";

fn virtual_ip(holder: &str, ready: bool, renewed: &str) -> GateFact {
    without_address(holder, ready, renewed, &[])
}

fn without_address(holder: &str, ready: bool, renewed: &str, absent: &[&str]) -> GateFact {
    let address = absent.iter().map(|it| format!("this node holds it, and has no interface with {it}"));
    GateFact::VirtualIps(Ok(vec![VirtualIp {
        address: address.collect(),
        lease: "kube-system/plndr-cp-lock".to_owned(),
        holder: holder.to_owned(),
        ready,
        renewed: renewed.to_owned(),
        stale: String::new(),
    }]))
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}

/// A layer, what is wrong, what heals it; a word of what is said, a word of what to do.
type Row = (Layer, Vec<GateFact>, Vec<GateFact>, &'static str, &'static str);

/// The limit of a layer in seconds, and whether it shuts the gate until then.
fn held(layer: Layer) -> (u64, bool) {
    let limits = LayerLimits::default();
    assert_eq!(limits.layers.map(|it| it.as_secs() / 60), [1, 5, 10, 10, 2, 5, 10, 10, 10, 15, 5, 5]);
    (limits.of(layer).unwrap().as_secs(), layer < Layer::System)
}

fn table() -> Vec<Row> {
    let served = || vec![virtual_ip("n2", true, "1"), virtual_ip("n2", true, "2")];
    let same = || vec![virtual_ip("n2", true, "1"), virtual_ip("n2", true, "1")];
    let lost = || vec![virtual_ip("n3", false, "1"), virtual_ip("n3", false, "2")];
    let (net, sys, vms) = (Layer::Network, Layer::System, Layer::Machines);
    let described = |check, pod: &str| vec![pods(check, "pods are not Ready", pod, "describe pod")];
    let dns = || described(Check::SystemPods, "kube-system/dns-1 (CrashLoopBackOff)");
    let port = || described(Check::Pending, "kube-system/svclb-1 (no node: its host port is taken)");
    let down = || {
        let all = [IllObject::new("shop/db".to_owned(), "being ended since 2026-01-01T00:00:00Z")];
        vec![GateFact::Found(Check::Machines, not_up("vmi", &all))]
    };
    let probe = |why: &[&str]| {
        let all = why.iter().map(|it| Finding::new("probe", *it, "look at what serves it: curl -v U"));
        vec![GateFact::Found(Check::Probes, all.collect())]
    };
    let (no_pods, no_pending) = (|| vec![well(Check::SystemPods)], || vec![well(Check::Pending)]);
    vec![
        (Layer::Clock, vec![wrong_clock()], vec![well(Check::Clock)], "1970", "timedatectl"),
        (
            Layer::Runtime,
            vec![GateFact::Found(Check::Runtime, vec![checks::nodes::runtime("S: no answer".to_owned())])],
            vec![well(Check::Runtime)],
            "S: no answer",
            "crictl ps",
        ),
        (
            net,
            vec![virtual_ip("", false, "1")],
            served(),
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
            "this node holds it, and has no interface with 10.0.0.9",
            "get lease plndr-cp-lock",
        ),
        (
            net,
            [served(), described(Check::Unconnected, "longhorn-system/im-1 (network lh)")].concat(),
            vec![well(Check::Unconnected)],
            "longhorn-system/im-1 (network lh)",
            "-n longhorn-system describe pod im-1",
        ),
        (net, lost(), served(), "of n3: its holder is not a Ready node", "delete lease plndr-cp-lock"),
        (net, same(), served(), "of n2: its holder does not renew it", "kube-vip"),
        (
            net,
            vec![GateFact::VirtualIps(Err("403 forbidden".to_owned()))],
            served(),
            "403 forbidden",
            "get lease",
        ),
        (
            Layer::Storage,
            vec![unread(Check::CrashLoops)],
            vec![well(Check::CrashLoops)],
            "403 forbidden",
            "get pods",
        ),
        (sys, dns(), no_pods(), "kube-system/dns-1 (CrashLoopBackOff)", "-n kube-system describe pod dns-1"),
        (sys, port(), no_pending(), "host port", "-n kube-system describe pod svclb-1"),
        (sys, vec![unread(Check::Pending)], no_pending(), "403 forbidden", "get pods -A"),
        (vms, down(), vec![well(Check::Machines)], "shop/db (being ended", "-n shop describe vmi db"),
        (vms, vec![unread(Check::Machines)], vec![well(Check::Machines)], "403 forbidden", "get vmi -A"),
        (Layer::Probes, probe(&["shop: U answers 503, not 200"]), probe(&[]), "answers 503", "curl -v U"),
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
fn warned(verdict: &GateStatus) -> Vec<(&str, bool)> {
    verdict.shown.warnings.iter().map(|it| (it.layer.as_str(), it.failed)).collect()
}

fn wrong_clock() -> GateFact {
    GateFact::Found(Check::Clock, vec![checks::nodes::wrong_clock(WRONG.to_owned())])
}

#[test]
fn r4_u10_a_layer_of_these_waits_until_its_limit_then_warns_by_name_and_heals() {
    for (layer, bad, good, words, next) in table() {
        let (limit, shuts) = held(layer);
        let is_unread =
            |it: &GateFact| matches!(it, GateFact::Found(_, all) if all.iter().all(|it| it.unread));
        let quiet = if bad.iter().all(is_unread) { 10 + limit / 2 } else { 0 };
        let mut gate = open(&[]);
        for secs in (10..10 + limit).step_by(20) {
            let facts: &[GateFact] = if secs == 10 { &bad } else { &[] };
            let verdict = with_lease(&mut gate, secs, facts);
            assert!(!verdict.shown.failed, "{verdict:?}");
            if shuts {
                assert_eq!((verdict.layer, warned(&verdict)), (Some(layer), Vec::new()), "{secs}");
                let shown = &verdict.shown;
                assert!(shown.words.contains(words) && shown.next_step.contains(next), "{verdict:?}");
            } else {
                assert_eq!((verdict.is_open(), verdict.holds_turn), (true, true), "{secs} {verdict:?}");
                let told = (secs >= quiet).then_some((layer.text(), false));
                assert_eq!(warned(&verdict), told.into_iter().collect::<Vec<_>>(), "{secs}");
            }
        }
        with_lease(&mut gate, 9 + limit, &[]);
        assert_eq!(gate.due(at(9 + limit)), Some(at(10 + limit)), "{layer:?}");
        with_lease(&mut gate, 10 + limit, &[]);
        let verdict = with_lease(&mut gate, 15 + limit, &[]);
        assert!(verdict.is_open() && !verdict.holds_turn, "{verdict:?}");
        let [warning] = verdict.shown.warnings.as_slice() else { panic!("{verdict:?}") };
        let since = since_boot(at(10));
        assert_eq!((warning.layer.as_str(), warning.since, warning.failed), (layer.text(), since, true));
        assert!(warning.words.contains(words) && warning.next_step.contains(next), "{warning:?}");
        let verdict = with_lease(&mut gate, 16 + limit, &good);
        assert!(verdict.is_open() && verdict.shown.warnings.is_empty(), "{verdict:?}");
        // Healed within its time, it leaves nothing behind either.
        let mut gate = open(&[]);
        with_lease(&mut gate, 10, &bad);
        with_lease(&mut gate, 20, &good);
        let verdict = with_lease(&mut gate, 26, &[]);
        assert!(verdict.is_open() && !verdict.holds_turn && verdict.shown.warnings.is_empty(), "{verdict:?}");
    }
}

#[test]
fn the_time_of_each_counts_while_all_below_it_is_sound_and_trouble_below_does_not_start_it_again() {
    for (layer, bad, ..) in table() {
        let (limit, shuts) = held(layer);
        let below = [no_device(), well(Check::Devices)];
        let mut gate = open(&[]);
        with_lease(&mut gate, 10, &bad);
        let verdict = with_lease(&mut gate, 20, &below[..1]);
        assert_eq!(
            (verdict.layer, verdict.shown.warnings),
            (Some(Layer::Devices), Vec::<GateWarning>::new())
        );
        with_lease(&mut gate, 30, &below[1..]);
        for secs in (40..20 + limit).step_by(20) {
            let verdict = with_lease(&mut gate, secs, &[]);
            assert_eq!((verdict.layer == Some(layer), verdict.holds_turn), (shuts, !shuts), "{verdict:?}");
        }
        assert_eq!(gate.due(at(19 + limit)), Some(at(20 + limit)), "ten seconds counted before");
        assert_eq!(warned(&with_lease(&mut gate, 20 + limit, &[])), [(layer.text(), true)]);
    }
}

#[test]
fn u10_machines_and_pods_seen_before_the_node_was_ready_do_not_let_the_turn_go() {
    let mut gate = open(&[]);
    let seen = Check::UPPER.map(well);
    with_lease(&mut gate, 10, &[&[node("KubeletNotReady", &[])], &seen[..]].concat());
    let verdict = with_lease(&mut gate, 20, &[node("", &[])]);
    assert_eq!(warned(&verdict), []);
    assert!(verdict.holds_turn && gate.waits_for_upper(at(20)), "{verdict:?}");
    let (limit, _) = held(Layer::Machines);
    let verdict = with_lease(&mut gate, 20 + limit / 2, &[]);
    assert!(warned(&verdict).contains(&("machines", false)) && verdict.holds_turn, "{verdict:?}");
    let verdict = with_lease(&mut gate, 30 + limit / 2, &seen);
    assert!(!verdict.holds_turn && verdict.shown.warnings.is_empty(), "{verdict:?}");
}

#[test]
fn of_the_layers_that_shut_it_the_lowest_is_named_and_one_whose_limit_is_over_lets_the_next_one_speak() {
    let mut gate = open(&[]);
    let (clock, away) = (wrong_clock(), GateFact::Away("refused".to_owned()));
    let verdict = with_lease(&mut gate, 10, &[clock, away]);
    assert_eq!(verdict.layer, Some(Layer::Clock), "what comes later is known to be wrong by it");
    gate.hear(at(310), GateFact::Away("refused".to_owned()));
    let verdict = gate.judge(at(310));
    assert_eq!((verdict.layer, warned(&verdict)), (Some(Layer::Service), vec![("clock", true)]));
}

#[test]
fn seed_0_06_another_address_than_before_the_boot_is_reported_at_once_and_holds_nothing() {
    let at_home = |it: &[&str]| GateFact::Node(Ok(GateNode { addresses: texts(it), ..GateNode::default() }));
    for (known, now, expected) in [
        (&["10.0.0.2", "fd00::2"][..], &["fd00::2", "10.0.0.2"][..], ""),
        (&["10.0.0.2"], &["10.0.0.7"], "has the address 10.0.0.7; before this boot it had 10.0.0.2"),
        (&["10.0.0.2", "fd00::2"], &["10.0.0.2"], "has the address 10.0.0.2; before this boot"),
        (&["10.0.0.2"], &["10.0.0.2", "fd00::2"], "has the address 10.0.0.2, fd00::2; before"),
        (&[], &["10.0.0.7"], ""),
        (&["10.0.0.2"], &[], ""),
    ] {
        let mut gate = open(&[]);
        gate.known = texts(known);
        let verdict = with_lease(&mut gate, 10, &[at_home(now)]);
        assert!(verdict.is_open() && !verdict.holds_turn, "{verdict:?}");
        let said = verdict.shown.warnings.first();
        let said = said.map(|it| (it.words.contains(expected), it.since, it.failed));
        assert_eq!(said, (!expected.is_empty()).then_some((true, since_boot(at(10)), true)), "{verdict:?}");
        // It is also said before the gate opens.
        let verdict = with_lease(&mut gate, 20, &[crashing("longhorn-system/m")]);
        assert_eq!(verdict.shown.warnings.len(), usize::from(!expected.is_empty()), "{verdict:?}");
        let verdict = with_lease(&mut gate, 30, &[at_home(known)]);
        assert!(verdict.shown.warnings.is_empty(), "{verdict:?}");
    }
}
