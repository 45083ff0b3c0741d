//! Before the servers go: a withdrawal.

use super::*;

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
