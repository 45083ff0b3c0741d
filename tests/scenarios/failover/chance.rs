//! Nodes that die, are cut off, boot and are declared dead in any order, by a person who says what is true; and what the
//! onlooker says where somebody does not do as he should.

use kubesim::OneWay;
use std::hash::{BuildHasher as _, RandomState};

use outage::failover::rule::FailoverRule;
use outage::failover::{DeclaredNode, FailoverState, calls};
use scenarios::{AT_ONCE, Agent, Dice, by_chance, within_still};
use serde_json::json;

use super::site::{SILENT, Site, pass};

#[tokio::test(start_paused = true)]
async fn m2_m5_a_false_word_a_second_entry_and_a_taint_taken_off_in_its_boot_are_seen_and_told() {
    let mut site = Site::of(3, 0).await;
    let is = |site: &Site, words: &[&str]| {
        let faults = site.seen.faults();
        assert_eq!(faults.len(), words.len(), "{faults:#?}\n{}", site.seen.history());
        for words in words {
            assert!(faults.iter().any(|it| it.contains(words)), "{words}: {faults:#?}");
        }
    };
    // It runs, and is cut off.
    site.sim.cut_off(site.name(0), true);
    site.links.cut(0, &[1, 2], true);
    site.told(1, 0, SILENT).await;
    let (entry, _) = site.holds(1, 0).await.unwrap();
    is(&site, &[]);
    let word = site.write(1, &entry).await.unwrap();
    site.until(&word, &[FailoverState::Moved]).await;
    is(&site, &["machine till is at work on", "volume disk is at work on", "volume data is at work on"]);
    // A second one beside it.
    let second = DeclaredNode { node: site.name(1).to_owned(), ..entry };
    site.write(1, &second).await.unwrap();
    is(&site, &["(number 2, declared) beside node"]);
    // It comes back in the same boot.
    site.sim.cut_off(site.name(0), false);
    site.links.cut(0, &[1, 2], false);
    for by in [1, 2] {
        let told = site.told(by, 0, "LIVES in the boot that operator anna has declared dead").await.unwrap();
        assert!(told.next_step.starts_with(&format!("switch {} off now", site.name(0))), "{told:?}");
    }
    pass(1_200).await;
    is(&site, &[]);
    assert_eq!(site.taint(0), "pillar-rs-1");
    // It is switched off, as it was to be.
    site.dies(0).await;
    site.boots(0);
    site.until(&word, &[FailoverState::Returned]).await;
    site.is_well("a false word").await;
    // A taint that somebody takes off while the node is dead.
    let dead = site.busy();
    site.falls_silent(dead).await;
    let word = site.declared(site.but(&[dead])[0], dead).await;
    site.until(&word, &[FailoverState::Moved]).await;
    is(&site, &[]);
    site.sim.edit("nodes", "", site.name(dead), |it| it["spec"]["taints"] = json!([]));
    is(&site, &["in the boot that was declared dead"]);
    site.until(&word, &[FailoverState::Lifted]).await;
    site.boots(dead);
    site.is_well("a taint taken off").await;
    site.ends().await;
}

/// Each takes hours of the agents' clock.
const RUNS: u64 = 4;

#[test]
fn m2_m4_m5_whatever_happens_to_nodes_no_work_runs_twice_by_a_true_word_and_nothing_is_left_behind() {
    let seed = RandomState::new().hash_one(0);
    let outcome = by_chance("failover", seed, (RUNS, AT_ONCE), |dice| within_still(run(dice)));
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n\n"));
    assert_eq!(outcome.runs, usize::try_from(RUNS).unwrap());
}

async fn run(mut dice: Dice) -> String {
    let count = 3 + 2 * usize::try_from(dice.below(2)).unwrap();
    let mut site = Site::of(count, 0).await;
    let (mut off, mut cut): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut any = |limit: usize| usize::try_from(dice.below(limit as u64)).unwrap();
    for _ in 0..18 {
        let nth = if any(2) == 0 { off.first().copied().unwrap_or(any(count)) } else { any(count) };
        let is_off = off.contains(&nth);
        match any(8) {
            0..=2 if !is_off && off.len() * 2 < count - 1 => {
                site.dies(nth).await;
                off.push(nth);
            }
            0 if is_off => {
                site.boots(nth);
                off.retain(|it| *it != nth);
            }
            1..=3 if is_off => {
                let Some(by) = site.but(&off).into_iter().find(|it| !cut.contains(it)) else { continue };
                declares(&site, by, nth, any(4)).await;
            }
            4 => {
                let how = any(4);
                site.seen.note(&format!("cut {how} of {}", site.name(nth)));
                match how {
                    0 => site.sim.cut_off(site.name(nth), true),
                    1 => site.sim.cut_one_way(site.name(nth), OneWay::Requests),
                    2 => site.sim.run_kubelet(site.name(nth), false),
                    _ => site.sim.cut_one_way(site.name(nth), OneWay::Answers),
                }
                let peers: Vec<usize> = site.but(&[nth]).into_iter().filter(|_| any(3) > 0).collect();
                site.links.cut(nth, &peers, true);
                cut.push(nth);
            }
            5 => {
                joined(&site, nth);
                cut.retain(|it| *it != nth);
            }
            6 => {
                let is_there = any(3) > 0;
                site.seen.note(&format!("the API writes: {is_there}"));
                site.sim.quorum(is_there);
            }
            7 if !is_off => {
                site.seen.note(&format!("zedkube of {} ends", site.name(nth)));
                site.worlds[nth].kill(Agent::Zedkube).await;
                pass(any(60) as u64).await;
                site.worlds[nth].start(Agent::Zedkube);
            }
            _ => {}
        }
        pass(any(120) as u64).await;
    }
    site.seen.note("all is mended");
    site.sim.quorum(true);
    (0..count).for_each(|nth| joined(&site, nth));
    for nth in off {
        site.boots(nth);
    }
    site.is_well("by chance").await;
    let states: Vec<String> = site.entries().iter().map(DeclaredNode::words).collect();
    site.ends().await;
    format!("{count} nodes: {}", states.join(", "))
}

fn joined(site: &Site, nth: usize) {
    site.sim.cut_off(site.name(nth), false);
    site.sim.run_kubelet(site.name(nth), true);
    site.links.cut(nth, &site.but(&[nth]), false);
}

/// A person at `by` declares `of`, which is off, with the word for others that are away if that is all; the command is killed
/// after so many writes. Nothing where that is refused, or the API does not answer.
async fn declares(site: &Site, by: usize, of: usize, writes: usize) -> Option<()> {
    let limit = std::time::Duration::from_mins(5);
    let (entry, held) = tokio::time::timeout(limit, site.holds(by, of)).await.ok()??;
    if held.iter().any(|it| !matches!(it, FailoverRule::Others | FailoverRule::Again)) {
        return None;
    }
    let passed = held.into_iter().filter_map(FailoverRule::pass).map(str::to_owned).collect();
    let cluster = site.worlds[by].cluster.handle();
    let word = DeclaredNode { passed, ..entry };
    let entry = tokio::time::timeout(limit, site.write(by, &word)).await.ok()??;
    if writes > 0 {
        let name = kubeapi::NodeName::parse(&entry.node).unwrap();
        let node = outage::calls::named(&cluster, &name).await.ok()?;
        calls::taint(&cluster, &node, &entry).await.ok()?;
    }
    Some(())
}
