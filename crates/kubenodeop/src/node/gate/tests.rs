//! The gate after a boot, layer by layer.
//!
//! Layers that never shut the gate for good: clock, runtime, network, unread pods, kube-system, virtual machines,
//! probes.

use std::time::Duration;

use checks::network::VirtualIp;
use checks::workloads::{self, not_up};
use checks::{Finding, IllObject};
use step::Mono;
use topics::GateWarning;

use crate::node::gate::{
    Check, Gate, GateFact, GateNode, GateStatus, Layer, LayerLimits, LeaseSeen, since_boot,
};
use crate::storage::{VolumesBefore, VolumesSeen};

const T0: Mono = Mono::from_start(Duration::from_secs(100));
const TAINT: &str = "node.kubernetes.io/unreachable:NoExecute";

fn at(secs: u64) -> Mono {
    T0 + Duration::from_secs(secs)
}

fn lease(renewed: &str) -> GateFact {
    GateFact::Lease(Ok(LeaseSeen { renewed: renewed.to_owned(), lasts: Duration::from_secs(40) }))
}

fn node(not_ready: &str, taints: &[&str]) -> GateFact {
    let taints = taints.iter().map(|it| (*it).to_owned()).collect();
    GateFact::Node(Ok(GateNode { not_ready: not_ready.to_owned(), taints, ..GateNode::default() }))
}

fn well(check: Check) -> GateFact {
    GateFact::Found(check, Vec::new())
}

fn no_device() -> GateFact {
    GateFact::Found(Check::Devices, checks::nodes::devices(|_| false))
}

fn pods(check: Check, what: &str, pod: &str, verb: &str) -> GateFact {
    let ill = match pod.split_once(" (") {
        Some((name, why)) => IllObject::new(name.to_owned(), why.trim_end_matches(')')),
        None => IllObject::alone(pod.to_owned()),
    };
    GateFact::Found(check, workloads::named(what, &[ill], verb))
}

fn crashing(pod: &str) -> GateFact {
    pods(Check::CrashLoops, "storage pods are crash-looping", pod, "logs --previous")
}

/// A gate that has heard at its start that all is healthy, but for one renewal.
fn healthy(taints: &[&str]) -> Gate {
    let mut gate = Gate::new("n1", LayerLimits::default(), T0);
    let api = [
        well(Check::Unconnected),
        node("", taints),
        lease("r0"),
        GateFact::Volumes(Ok(VolumesSeen::default())),
        GateFact::VirtualIps(Ok(Vec::new())),
    ];
    for fact in api.into_iter().chain(Check::UNKNOWN.map(|it| well(it.0))) {
        gate.hear(T0, fact);
    }
    gate
}

fn open(taints: &[&str]) -> Gate {
    let mut gate = healthy(taints);
    gate.hear(at(1), lease("r1"));
    assert_eq!(gate.judge(at(1)).layer, Some(Layer::Steady));
    assert!(gate.judge(at(6)).is_open());
    gate
}

fn faulted() -> GateFact {
    let faulted = [("pvc-1".to_owned(), "shop/data (pvc-1)".to_owned())].into();
    GateFact::Volumes(Ok(VolumesSeen { faulted, ..VolumesSeen::default() }))
}

fn recorded(volume: &str) -> VolumesBefore {
    VolumesBefore { volumes: [(volume.to_owned(), true)].into(), ..VolumesBefore::default() }
}

fn unread(check: Check) -> GateFact {
    GateFact::Found(check, check.unread("403 forbidden"))
}

fn layer(verdict: &GateStatus) -> &'static str {
    verdict.layer.map_or("open", Layer::text)
}

#[test]
fn r4_the_gate_opens_when_all_layers_have_held_for_the_set_time() {
    let mut gate = healthy(&[]);
    assert_eq!(layer(&gate.judge(T0)), "node-lease");
    gate.hear(at(3), lease("r1"));
    assert_eq!(layer(&gate.judge(at(3))), "steady");
    assert_eq!(gate.due(at(3)), Some(at(8)));
    assert_eq!(layer(&gate.judge(at(7))), "steady");
    // A layer that fails in between starts the time again.
    gate.hear(at(7), node("Ready is False", &[]));
    assert_eq!(layer(&gate.judge(at(7))), "node-ready");
    gate.hear(at(8), node("", &[]));
    assert_eq!(layer(&gate.judge(at(9))), "steady");
    assert_eq!(layer(&gate.judge(at(13))), "steady");
    assert_eq!(layer(&gate.judge(at(14))), "open");
}

#[test]
fn r4_each_layer_in_turn_shuts_the_gate_by_name_with_what_was_seen_and_what_to_do() {
    let refused = || GateFact::Away("connection refused".to_owned());
    let forbidden = || "403 forbidden".to_owned();
    let table = [
        (no_device(), "device-nodes", "/dev/kmsg", "mknod"),
        (refused(), "kubernetes-service", "connection refused", "systemctl status k3s"),
        (node("Ready is False KubeletNotReady", &[]), "node-ready", "KubeletNotReady", "describe node n1"),
        (GateFact::Node(Err(forbidden())), "node-ready", "403 forbidden", "describe node n1"),
        (GateFact::Lease(Err(forbidden())), "node-lease", "403 forbidden", "get lease n1"),
        (crashing("longhorn-system/manager"), "storage-pods", "longhorn-system/manager", "logs"),
        (unread(Check::CrashLoops), "storage-pods", "403 forbidden", "get pods"),
        (faulted(), "storage-volumes", "shop/data (pvc-1)", "get volumes"),
        (GateFact::Volumes(Err(forbidden())), "storage-volumes", "403 forbidden", "get volumes"),
    ];
    for (fact, expected, words, next) in table {
        let mut gate = open(&[]);
        gate.hear(at(10), fact.clone());
        let verdict = gate.judge(at(10));
        assert_eq!(layer(&verdict), expected, "{fact:?}");
        let shown = &verdict.shown;
        assert!(shown.words.contains(words) && shown.next_step.contains(next), "{verdict:?}");
        assert_eq!((shown.since, shown.failed), (since_boot(at(10)), false), "{fact:?}");
    }
}

#[test]
fn kernel_parameters_that_are_lost_are_said_before_the_cordon_goes_and_hold_nothing_up() {
    let mut gate = open(&[]);
    gate.lost = vec!["hugepages=8".to_owned()];
    let verdict = gate.judge(at(10));
    assert!(verdict.is_open());
    assert_eq!(verdict.shown.words, "the node is healthy; its kernel was started without hugepages=8");
    assert!(verdict.shown.next_step.contains("kernel_parameters"), "{verdict:?}");
}

#[test]
fn r4_of_several_layers_the_lowest_is_reported() {
    let mut gate = Gate::new("n1", LayerLimits::default(), T0);
    gate.hear(T0, crashing("longhorn-system/m"));
    gate.hear(T0, node("no", &[]));
    gate.hear(T0, GateFact::Away("refused".to_owned()));
    gate.hear(T0, no_device());
    let mut seen = vec![layer(&gate.judge(T0))];
    for fact in [
        well(Check::Devices),
        well(Check::Unconnected),
        node("", &[]),
        lease("r0"),
        lease("r1"),
        well(Check::Runtime),
        GateFact::VirtualIps(Ok(Vec::new())),
        well(Check::CrashLoops),
        GateFact::Volumes(Ok(VolumesSeen::default())),
    ] {
        gate.hear(T0, fact);
        seen.push(layer(&gate.judge(T0)));
    }
    let expected = "device-nodes kubernetes-service node-ready node-lease node-lease runtime network storage-pods \
        storage-volumes steady";
    assert_eq!(seen.join(" "), expected);
}

#[test]
fn r4_a_layer_over_its_limit_has_failed_and_still_becomes_sound() {
    let facts = [
        (Layer::Devices, no_device(), well(Check::Devices), 60),
        (Layer::Service, GateFact::Away("refused".to_owned()), well(Check::Unconnected), 600),
        (Layer::Node, node("no", &[]), node("", &[]), 600),
        (Layer::Lease, GateFact::Lease(Err("403".to_owned())), lease("r9"), 120),
        (Layer::Storage, crashing("l/m"), well(Check::CrashLoops), 600),
    ];
    for (expected, bad, good, secs) in facts {
        let mut gate = open(&[]);
        let after = |secs: u64| at(10 + secs);
        let mut step = |now: Mono, fact: Option<&GateFact>, beat: &str| {
            if expected != Layer::Lease {
                gate.hear(now, lease(beat));
            }
            if let Some(fact) = fact {
                gate.hear(now, fact.clone());
            }
            gate.judge(now)
        };
        assert_eq!(step(after(0), Some(&bad), "r2").layer, Some(expected));
        for late in (30..secs).step_by(30) {
            let verdict = step(after(late), Some(&bad), &format!("r2 {late}"));
            assert_eq!((verdict.layer, verdict.shown.failed), (Some(expected), false), "{late}");
        }
        let verdict = step(after(secs), Some(&bad), "r3");
        assert_eq!((verdict.layer, verdict.shown.failed), (Some(expected), true));
        // Never stuck: later is not too late.
        step(after(secs + 1), Some(&good), "r4");
        step(after(secs + 2), Some(&if expected == Layer::Lease { lease("r10") } else { good }), "r5");
        assert!(step(after(secs + 8), None, "r6").is_open(), "{expected:?}");
    }
}

#[test]
fn r4_a_lease_that_only_stands_there_is_not_renewed_and_one_that_was_is_so_no_longer() {
    let mut gate = healthy(&[]);
    // Told again, by a list or a change of something else.
    for secs in 1..100 {
        gate.hear(at(secs), lease("r0"));
        assert_eq!(layer(&gate.judge(at(secs))), "node-lease", "{secs}");
    }
    // Whatever time it names, also one far back.
    gate.hear(at(100), lease("1970-01-01T00:00:00Z"));
    assert!(gate.judge(at(100)).layer > Some(Layer::Lease));
    assert!(gate.judge(at(106)).is_open());
    assert_eq!(gate.due(at(106)), Some(at(140)));
    assert_eq!(layer(&gate.judge(at(139))), "open");
    let verdict = gate.judge(at(140));
    assert_eq!((layer(&verdict), verdict.shown.words.contains("no longer renewed")), ("node-lease", true));
}

#[test]
fn r5_stale_taints_go_after_60_s_of_renewals_and_not_before() {
    let mut gate = open(&[TAINT]);
    assert_eq!(gate.judge(at(6)).shown.stale_taints, [TAINT]);
    assert!(gate.judge(at(6)).shown.words.contains("60 s"));
    for secs in (11..61).step_by(10) {
        gate.hear(at(secs), lease(&format!("r{secs}")));
        assert!(!gate.removes_taints(at(secs)), "{secs}");
    }
    // The span of renewals counts, not the time since the first.
    assert!(!gate.removes_taints(at(65)));
    gate.hear(at(65), lease("r65"));
    assert!(gate.removes_taints(at(65)));
    // One try, and the next one after a pause.
    assert!(!gate.removes_taints(at(66)));
    assert!(gate.removes_taints(at(70)));
    gate.hear(at(71), node("", &[]));
    assert!(!gate.removes_taints(at(90)));
}

#[test]
fn r5_a_gap_in_the_renewals_starts_the_60_s_anew() {
    let mut gate = open(&[TAINT]);
    for (secs, goes) in [(30, false), (71, false), (101, false), (131, true)] {
        gate.hear(at(secs), lease(&format!("r{secs}")));
        assert_eq!(gate.removes_taints(at(secs)), goes, "{secs}");
    }
}

#[test]
fn r5_no_taint_goes_while_the_kubelet_is_not_ready_or_silent_or_the_api_away() {
    let renewed = || {
        let mut gate = open(&[TAINT]);
        for secs in [30, 60, 65] {
            gate.hear(at(secs), lease(&format!("r{secs}")));
        }
        gate
    };
    assert!(renewed().removes_taints(at(65)));
    let mut silent = renewed();
    assert!(!silent.removes_taints(at(105)));
    for fact in [node("Ready is False", &[TAINT]), GateFact::Away("refused".to_owned()), node("", &[])] {
        let mut gate = renewed();
        gate.hear(at(65), fact.clone());
        assert!(!gate.removes_taints(at(65)), "{fact:?}");
    }
    // Storage may wait for just these taints to go.
    let mut gate = renewed();
    gate.hear(at(65), crashing("longhorn-system/m"));
    assert!(gate.removes_taints(at(65)));
}

#[test]
fn u10_degraded_volumes_leave_the_gate_open_and_hold_the_turn_for_their_time() {
    let mut gate = healthy(&[]);
    let degraded = [("pvc-1".to_owned(), "shop/data (pvc-1)".to_owned())].into();
    gate.hear(T0, GateFact::Volumes(Ok(VolumesSeen { degraded, ..VolumesSeen::default() })));
    let mut judge = |secs| with_lease(&mut gate, secs, &[]);
    assert_eq!(layer(&judge(1)), "steady");
    for secs in [6].into_iter().chain((30..600).step_by(30)) {
        let verdict = judge(secs);
        assert_eq!((layer(&verdict), verdict.holds_turn), ("open", true), "{secs}");
    }
    judge(590);
    assert_eq!(gate.due(at(590)), Some(at(601)));
    let verdict = gate.judge(at(601));
    assert_eq!((layer(&verdict), verdict.holds_turn), ("open", false));
    let words = &verdict.shown.words;
    assert!(words.ends_with("after 600 s still unhealthy volumes: shop/data (pvc-1)"), "{words}");
}

#[test]
fn r4_a_volume_that_was_healthy_before_and_is_faulted_keeps_the_gate_shut_until_its_limit_and_then_passes_by_name()
 {
    let mut gate = healthy(&[]);
    let volumes = Some(recorded("pvc-1"));
    gate.hear(T0, GateFact::Node(Ok(GateNode { volumes, ..GateNode::default() })));
    gate.hear(T0, faulted());
    for secs in (0..=600).step_by(20) {
        gate.hear(at(secs), lease(&format!("r{secs}")));
        gate.judge(at(secs));
    }
    assert_eq!(gate.judge(at(619)).layer, Some(Layer::Volumes));
    gate.judge(at(620));
    let verdict = gate.judge(at(626));
    let is_named = verdict.shown.words.contains("volumes are faulted: shop/data (pvc-1), after 600 s");
    assert!(verdict.is_open() && verdict.holds_turn && is_named, "{verdict:?}");
}

#[test]
fn r4_what_was_faulted_before_shuts_nothing_once_the_record_has_gone_with_the_cordon() {
    let mut gate = healthy(&[]);
    let volumes = Some(recorded("pvc-2"));
    gate.hear(T0, GateFact::Node(Ok(GateNode { volumes, ..GateNode::default() })));
    gate.hear(T0, faulted());
    gate.hear(T0, GateFact::Node(Ok(GateNode::default())));
    assert_ne!(gate.judge(at(1)).layer, Some(Layer::Volumes));
}

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
    let ip = |holder: &str, ready, all: [&str; 2]| all.map(|it| virtual_ip(holder, ready, it)).to_vec();
    let served = || ip("n2", true, ["1", "2"]);
    let absent =
        |at: [&str; 2], absent: &[&str]| at.map(|it| without_address("n1", true, it, absent)).to_vec();
    let net = Layer::Network;
    let described = |check, pod: &str| pods(check, "pods are not Ready", pod, "describe pod");
    let im = described(Check::Unconnected, "longhorn-system/im-1 (network lh)");
    let (away, lock) = ("this node holds it, and has no interface with 10.0.0.9", "get lease plndr-cp-lock");
    let forbidden = vec![GateFact::VirtualIps(Err("403 forbidden".to_owned()))];
    let mut rows = vec![
        (net, vec![virtual_ip("", false, "1")], served(), "plndr-cp-lock: no node holds it", lock),
        (net, absent(["1", "2"], &["10.0.0.9"]), absent(["3", "4"], &[]), away, lock),
        (
            net,
            ip("n3", false, ["1", "2"]),
            served(),
            "of n3: its holder is not a Ready node",
            "delete lease plndr",
        ),
        (net, ip("n2", true, ["1", "1"]), served(), "of n2: its holder does not renew it", "kube-vip"),
        (net, forbidden, served(), "403 forbidden", "get lease"),
    ];
    let runtime = checks::nodes::runtime("S: no answer".to_owned());
    let down = [IllObject::new("shop/db".to_owned(), "being ended since 2026-01-01T00:00:00Z")];
    let probe = Finding::new("probe", "shop: U answers 503, not 200", "look at what serves it: curl -v U");
    let found = |check, finding: Finding| (check, GateFact::Found(check, vec![finding]));
    let dns = "kube-system/dns-1 (CrashLoopBackOff)";
    let port = "kube-system/svclb-1 (no node: its host port is taken)";
    let (sys, vms) = (Layer::System, Layer::Machines);
    let named = |check, pod: &str| (check, described(check, pod));
    let unread = |check| (check, unread(check));
    for (layer, (check, bad), words, next) in [
        (Layer::Clock, (Check::Clock, wrong_clock()), "1970", "timedatectl"),
        (Layer::Runtime, found(Check::Runtime, runtime), "S: no answer", "crictl ps"),
        (net, (Check::Unconnected, im), "system/im-1 (network lh)", "-n longhorn-system describe pod im-1"),
        (Layer::Storage, unread(Check::CrashLoops), "403 forbidden", "get pods"),
        (sys, named(Check::SystemPods, dns), dns, "-n kube-system describe pod dns-1"),
        (sys, named(Check::Pending, port), "host port", "-n kube-system describe pod svclb-1"),
        (sys, unread(Check::Pending), "403 forbidden", "get pods -A"),
        (
            vms,
            found(Check::Machines, not_up("vmi", &down).remove(0)),
            "shop/db (being ended",
            "shop describe vmi db",
        ),
        (vms, unread(Check::Machines), "403 forbidden", "get vmi -A"),
        (Layer::Probes, found(Check::Probes, probe), "answers 503", "curl -v U"),
    ] {
        let served = if layer == net { served() } else { Vec::new() };
        rows.push((layer, [served, vec![bad]].concat(), vec![well(check)], words, next));
    }
    rows
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
