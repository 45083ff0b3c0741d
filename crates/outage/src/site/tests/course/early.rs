//! Before the servers go: orders of device configs that come, are taken back and come again in any order; a withdrawal.

use super::*;
use crate::turn::record::{Holder, Op, Phase};

#[test]
fn u13_a_site_that_is_armed_begins_once_the_last_node_is_ordered_it_and_nobody_holds_a_turn() {
    for seed in 0..SEEDS {
        let mut site = Site3::begun(seed, 3, 1, SiteKind::Reboot, true);
        site.record.grant(Holder {
            node: name(3),
            node_uid: "u3".to_owned(),
            boot_id: "b1".to_owned(),
            op: Op::Drain,
            counter: 0,
            fence: 0,
            phase: Phase::Drained,
            server: false,
            since: String::new(),
            earlier: None,
            rest: serde_json::Map::new(),
        });
        let mut order = vec![0, 1, 2, 3];
        while !order.is_empty() {
            let at = order.remove(site.below(order.len()));
            site.machines[at].asked = true;
            // An order that is taken back, and given again.
            let doubted = site.below(4);
            let again = std::mem::replace(&mut site.machines[doubted].asked, false);
            let quiet = site.below(40);
            site.turns_of(true, quiet);
            site.machines[doubted].asked = again;
            let quiet = site.below(40);
            site.turns_of(true, quiet);
            assert_eq!(site.site().map(|it| it.phase), Some(SitePhase::Armed), "seed {seed}");
            let untouched = |it: &Machine| !it.cordoned && it.disk.is_none();
            assert!(site.machines.iter().all(untouched), "seed {seed}: {:?}", site.machines);
        }
        (site.record.holders, site.version) = (Vec::new(), site.version + 1);
        for at in 0..4 {
            if !site.machines[at].up {
                site.power_on(at);
            }
        }
        let withdrawn = operator::cancel(&site.record, &said()).unwrap();
        assert_eq!(withdrawn, TurnRecord { mode: None, ..site.record.clone() }, "seed {seed}");
        site.off.clear();
        assert!(site.turns(false, Site3::is_over), "seed {seed}: {:?}", site.site());
        assert_eq!(site.off, [3, 1, 2, 0], "seed {seed}: each went once, in order");
        site.assert_restored(&format!("seed {seed}"));
    }
}

#[test]
fn u13_a_withdrawal_in_any_phase_before_the_servers_go_takes_all_back() {
    for seed in 0..SEEDS {
        let mut site = Site3::new(seed, 3, 1, SiteKind::Shutdown);
        let looks = site.below(60);
        site.looks(looks);
        let Ok(record) = operator::cancel(&site.record, &said()) else { continue };
        (site.record, site.version) = (record, site.version + 1);
        site.turns(false, |it| it.record.mode.is_none());
        for at in 0..4 {
            if !site.machines[at].up {
                assert!(!site.machines[at].server, "seed {seed}: a server went");
                site.power_on(at);
            }
        }
        assert!(site.turns(false, Site3::is_over), "seed {seed}: {:?}", site.site());
        site.assert_restored(&format!("seed {seed}"));
    }
}
