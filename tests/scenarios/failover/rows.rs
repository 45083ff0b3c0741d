//! Nodes that are silent for each reason there is, and nodes that come back at each step of a failover: as rows of tables.

use std::time::Duration;

use agent::Clock;
use kubeapi::NodeName;
use kubesim::{OneWay, ScriptedFault, Sim};
use outage::failover::rule::FailoverRule;
use outage::failover::{DeclaredNode, FailoverState, calls, record};
use outage::operator;
use scenarios::Agent;
use serde_json::Value;
use topics::{DrainPhase, DrainStatus};

use super::site::{SILENT, Site, pass};

const HEARD: &str = "its kubelet is silent, it is not dead";

/// What becomes of the way of the first node to the API; the other nodes that do not reach it; what those say of it.
type Cut = (&'static str, Option<fn(&Sim, &str)>, &'static [usize], &'static str);

const CUTS: [Cut; 8] = [
    ("both ways", Some(|sim, node| sim.cut_off(node, true)), &[1, 2], SILENT),
    ("in only", Some(|sim, node| sim.cut_one_way(node, OneWay::Requests)), &[1, 2], SILENT),
    ("out only", Some(|sim, node| sim.cut_one_way(node, OneWay::Answers)), &[1, 2], SILENT),
    ("to one peer only", None, &[1], ""),
    ("to all peers only", None, &[1, 2], ""),
    ("to the API only", Some(|sim, node| sim.cut_off(node, true)), &[], HEARD),
    ("its kubelet is dead", Some(|sim, node| sim.run_kubelet(node, false)), &[], HEARD),
    ("to the API and one peer", Some(|sim, node| sim.cut_off(node, true)), &[1], HEARD),
];

#[tokio::test(start_paused = true)]
async fn f2_a_node_that_is_cut_off_is_named_by_what_is_heard_of_it_and_nobody_acts() {
    let mut site = Site::of(3, 0).await;
    for (what, api, peers, words) in CUTS {
        site.seen.note(what);
        if let Some(api) = api {
            api(&site.sim, site.name(0));
        }
        site.links.cut(0, peers, true);
        if words.is_empty() {
            pass(120).await;
        }
        for by in [1, 2] {
            site.told(by, 0, words).await;
        }
        let held = site.holds(1, 0).await.unwrap().1;
        assert_eq!(held.contains(&FailoverRule::Alive), words != SILENT, "{what}: {held:?}");
        pass(180).await;
        for [by, of] in [[1, 0], [2, 0], [0, 1], [0, 2], [1, 2], [2, 1]] {
            let (said, words) = (site.says(by, of), if of == 0 { words } else { "" });
            assert!(
                said.contains(words) && said.is_empty() == words.is_empty(),
                "{what}: {by} of {of}: {said}"
            );
        }
        assert_eq!(site.entries(), [], "{what}");
        site.sim.cut_off(site.name(0), false);
        site.sim.run_kubelet(site.name(0), true);
        site.links.cut(0, peers, false);
        site.is_well(what).await;
    }
    // Its agent is dead, and nothing else.
    site.worlds[0].kill(Agent::Zedkube).await;
    pass(180).await;
    assert_eq!([site.says(1, 0), site.says(2, 0)], ["", ""]);
    site.ends().await;
}

#[tokio::test(start_paused = true)]
async fn f4_an_api_that_is_away_for_an_hour_makes_nobody_dead_and_a_dead_node_is_told_after_it() {
    let mut site = Site::of(3, 0).await;
    // Whether it still reads; when a node dies: before it, in it.
    let rows = [(true, false, false), (false, false, false), (true, true, false), (false, false, true)];
    for (reads, before, within) in rows {
        let what = format!("reads {reads}, dies before {before}, within {within}");
        site.seen.note(&what);
        let dead = site.busy();
        if before {
            site.dies(dead).await;
            site.told(site.but(&[dead])[0], dead, SILENT).await;
        }
        site.sim.quorum(false);
        for method in ["GET", "POST", "PATCH", "PUT", "DELETE"].into_iter().filter(|_| !reads) {
            site.sim.faults().script(method, "/", u32::MAX, ScriptedFault::Cut);
        }
        pass(30).await;
        for minute in 0..60 {
            if minute == 20 && within {
                site.dies(dead).await;
            }
            pass(60).await;
            for by in site.but(&[dead]) {
                for of in site.but(&[by]) {
                    let said = site.says(by, of);
                    assert!(!said.contains("dead"), "{what}, minute {minute}: {by} of {of}: {said}");
                }
            }
        }
        site.sim.faults().clear();
        site.sim.quorum(true);
        if before || within {
            let back = Clock::new().now();
            for by in site.but(&[dead]) {
                site.told(by, dead, SILENT).await;
            }
            let after = Clock::new().now().since(back);
            assert!(after < Duration::from_secs(75), "{what}: told after {after:?}");
            site.boots(dead);
        }
        site.is_well(&what).await;
        assert_eq!(site.entries(), [], "{what}");
    }
    site.ends().await;
}

#[tokio::test(start_paused = true)]
async fn f6_of_two_nodes_that_die_both_are_told_and_one_after_the_other_is_declared_by_the_word_for_it() {
    for (servers, workers, dead) in [(5, 0, [0, 1]), (3, 2, [0, 4])] {
        let mut site = Site::of(servers, workers).await;
        for nth in dead {
            site.dies(nth).await;
        }
        let alive = site.but(&dead);
        for nth in dead {
            for by in &alive {
                site.told(*by, nth, SILENT).await;
            }
        }
        for nth in dead {
            let (entry, held) = site.holds(alive[0], nth).await.unwrap();
            assert_eq!(held, [FailoverRule::Others], "{nth}");
            let passed = FailoverRule::Others.pass().map(str::to_owned).into_iter().collect();
            let word = site.write(alive[0], &DeclaredNode { passed, ..entry }).await.unwrap();
            let moved = site.until(&word, &[FailoverState::Moved]).await;
            assert_eq!(moved.work.iter().filter(|it| !it.waits.is_empty()).count(), 0, "{moved:?}");
        }
        assert!(alive.contains(&site.busy()), "{}", site.seen.history());
        for nth in dead {
            site.boots(nth);
        }
        site.is_well("two").await;
        assert!(site.entries().iter().all(|it| it.state == FailoverState::Returned), "{:#?}", site.entries());
        site.ends().await;
    }
}

#[tokio::test(start_paused = true)]
async fn f7_a_node_that_never_returns_is_gone_with_its_node_object() {
    let mut site = Site::of(3, 0).await;
    site.falls_silent(0).await;
    let word = site.declared(1, 0).await;
    site.until(&word, &[FailoverState::Moved]).await;
    site.sim.remove("nodes", "", site.name(0));
    site.until(&word, &[FailoverState::Gone]).await;
    site.told(1, 0, "").await;
    site.seen.check("gone");
    site.ends().await;
}

#[tokio::test(start_paused = true)]
async fn f6_a_node_that_dies_in_its_turn_holds_it_until_it_is_back_and_the_next_one_waits_for_it() {
    let mut site = Site::of(3, 0).await;
    site.worlds[0].cluster.block().await;
    site.ordered.insert(0);
    site.config(0);
    site.worlds[0].cluster.until_ours().await;
    site.falls_silent(0).await;
    site.ordered.insert(1);
    site.config(1);
    site.worlds[1]
        .progress("to wait for its turn", |it| {
            it.phase == DrainPhase::WaitingForTurn && it.reason.contains("edge-node-1")
        })
        .await;
    let word = site.declared(1, 0).await;
    site.until(&word, &[FailoverState::Moved]).await;
    pass(900).await;
    assert!(!site.worlds[1].cluster.cordoned().await);
    site.worlds[1].cluster.unblock().await;
    site.boots(0);
    site.until(&word, &[FailoverState::Returned]).await;
    for nth in [1, 0] {
        site.worlds[nth].status(DrainStatus::Complete).await;
        site.dies(nth).await;
        site.boots(nth);
        site.worlds[nth].executed(7).await;
    }
    site.is_well("its turn").await;
    site.ends().await;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    At,
    After,
}

/// Does the `nth` write as the command does it: the word, the taint, that it is there; the next is a server's.
async fn writes(
    cluster: &kubeapi::ApiClient,
    nth: usize,
    entry: &mut DeclaredNode,
    read: &mut Option<outage::calls::NodeItem>,
) {
    let (name, now) = (NodeName::parse(&entry.node).unwrap(), Clock::new().wall().to_timestamp());
    match nth {
        0 => {
            let (_, after) = operator::change(cluster, now, |it| record::declare(it, entry)).await.unwrap();
            *entry = record::open(&after).pop().unwrap();
            *read = Some(outage::calls::named(cluster, &name).await.unwrap());
        }
        1 => match calls::taint(cluster, read.as_ref().unwrap(), entry).await {
            Ok(()) => {}
            Err(error) => assert!(error.is_conflict(), "{}", error.line()),
        },
        _ => {
            let tainted = |it: &mut DeclaredNode| it.state = FailoverState::Tainted;
            operator::change(cluster, now, |it| Ok(record::edited(it, entry, tainted))).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn f7_f8_a_node_that_comes_back_at_any_write_of_a_failover_whose_actor_is_killed_has_one_entry_and_no_scar()
 {
    let mut site = Site::of(3, 0).await;
    for write in 0..4 {
        for when in [When::Before, When::At, When::After] {
            let what = format!("back {when:?} write {write}");
            site.seen.note(&what);
            let dead = site.busy();
            let others = site.but(&[dead]);
            site.falls_silent(dead).await;
            let mut entry = site.seen_dead(others[0], dead).await;
            let (cluster, mut read) = (site.worlds[others[0]].cluster.handle(), None);
            for nth in 0..=write.min(2) {
                let now = nth == write;
                if now && when == When::Before {
                    site.boots(dead);
                    pass(1).await;
                }
                let wrote = writes(&cluster, nth, &mut entry, &mut read);
                if now && when == When::At {
                    tokio::join!(wrote, async { site.boots(dead) });
                } else {
                    wrote.await;
                }
            }
            // Also the server that would go on is killed, after its write.
            let killed = others[write % 2];
            if write == 3 {
                let last = if when == When::Before { FailoverState::Tainted } else { FailoverState::Moved };
                site.until(&entry, &[last]).await;
                if when == When::Before {
                    pass(15).await;
                }
            }
            site.worlds[killed].kill(Agent::Zedkube).await;
            if when == When::After || write == 3 {
                pass(if when == When::After { 2 } else { 0 }).await;
                site.boots(dead);
            }
            site.until(&entry, &[FailoverState::Returned, FailoverState::Withdrawn]).await;
            site.worlds[killed].start(Agent::Zedkube);
            let of_it = site.entries().into_iter().filter(|it| it.number >= entry.number).count();
            assert_eq!(of_it, 1, "{what}");
            site.is_well(&what).await;
        }
    }
    site.ends().await;
}

#[tokio::test(start_paused = true)]
async fn f8_a_taint_that_is_written_after_its_word_was_withdrawn_goes_again_in_a_cluster_that_is_quiet() {
    let mut site = Site::of(3, 0).await;
    site.falls_silent(0).await;
    let word = site.declared(1, 0).await;
    site.boots(0);
    site.until(&word, &[FailoverState::Withdrawn]).await;
    site.is_well("withdrawn").await;
    pass(20).await;
    let cluster = site.worlds[1].cluster.handle();
    let mut read =
        Some(outage::calls::named(&cluster, &NodeName::parse(site.name(0)).unwrap()).await.unwrap());
    writes(&cluster, 1, &mut word.clone(), &mut read).await;
    assert_eq!(site.taint(0), word.mark());
    site.until(&word, &[FailoverState::Returned]).await;
    site.is_well("its way back").await;
    site.ends().await;
}

#[tokio::test(start_paused = true)]
async fn f7_a_node_that_dies_three_times_in_a_day_stays_cordoned_until_a_person_lifts_that() {
    let mut site = Site::of(3, 0).await;
    let (dead, by) = (0, 1);
    for times in 1..=3 {
        site.falls_silent(dead).await;
        let when = format!("2026-03-14T0{times}:00:00Z");
        let word = DeclaredNode { when, ..site.seen_dead(by, dead).await };
        let word = site.write(by, &word).await.unwrap();
        site.until(&word, &[FailoverState::Moved]).await;
        site.boots(dead);
        if times == 3 {
            pass(3_600).await;
            let words = "it is back in another boot, declared dead 3 times within 24 h: it stays cordoned";
            let told = site.told(by, dead, words).await.unwrap();
            assert_eq!(
                told.next_step,
                format!("find out why {0} fails; then `kubectl uncordon {0}`", site.name(dead))
            );
            site.sim.edit("nodes", "", site.name(dead), |it| {
                assert!(it["spec"]["unschedulable"] == true, "{it}");
                it["spec"]["unschedulable"] = Value::Null;
            });
        }
        site.until(&word, &[FailoverState::Returned]).await;
        site.is_well("its way back").await;
    }
    site.ends().await;
}
