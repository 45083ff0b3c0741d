//! The storage layer of the gate: volumes that were healthy before the outage are not faulted, and degraded ones have
//! had their time.
//!
//! What was healthy before is read from a record on the Node object, which a drain writes before it ends; when its
//! cordon goes, the record is kept for the rest of that boot with the time, so that a restart holds the turn no longer.
//! After an outage without a drain there is none: then each faulted volume counts. One that counts shuts the gate until
//! its limit, and no longer, as Longhorn starts nothing on a cordoned node that it may need to bring the volume back
//! (its instance manager: controller/instance_manager_controller.go). Degraded volumes shut nothing for the same
//! reason; they hold the turn of the node, and so does what is still faulted then. Pure: no clock, no I/O, no task.

use std::time::Duration;

use kubeapi::names::listed;
use step::Mono;

use crate::storage::{VolumesBefore, VolumesSeen};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Volumes {
    pub(super) seen: Result<VolumesSeen, String>,
    before: Option<VolumesBefore>,
    /// When an earlier run of the agent found the node healthy: degraded volumes have had their time since then.
    resumed: Option<Mono>,
    /// Since when all below is healthy and this is not: faulted or unknown, and degraded.
    shut_since: Option<Mono>,
    degraded_since: Option<Mono>,
}

/// What the layer says at one moment.
#[derive(Debug, Default)]
pub(super) struct VolumesVerdict {
    pub(super) shut: Option<String>,
    /// Why the turn is held although the gate is open, or what passed as its time was over; empty when all is well.
    pub(super) words: String,
    pub(super) holds_turn: bool,
    pub(super) due: Option<Mono>,
}

impl Volumes {
    pub(super) fn unknown(why: String) -> Self {
        Self { seen: Err(why), before: None, resumed: None, shut_since: None, degraded_since: None }
    }

    /// Hears of the record. It goes before a later boot does, and still says what was faulted before.
    pub(super) fn recorded(&mut self, record: &VolumesBefore) {
        if self.before.is_none() {
            let at = record.opened.as_ref().map(|(_, at)| Mono::from_start(Duration::from_millis(*at)));
            self.resumed = at;
        }
        self.before = Some(record.clone());
    }

    /// Something below is not healthy: time starts again.
    pub(super) fn wait(&mut self) {
        (self.shut_since, self.degraded_since) = (None, None);
    }

    /// What it says now that all below is healthy.
    pub(super) fn judge(&mut self, now: Mono, limit: Duration, hold: Duration) -> VolumesVerdict {
        let (nothing, names) = (VolumesSeen::default(), |all: Vec<String>| listed(&all, ", "));
        let (seen, unread) = match &self.seen {
            Ok(seen) => (seen, None),
            Err(why) => (&nothing, Some(format!("volumes: {why}"))),
        };
        let was_good = |it: &String| self.before.as_ref().is_none_or(|all| all.volumes.contains_key(it));
        let shown = |counts: bool| -> Vec<String> {
            let some = seen.faulted.iter().filter(|(it, _)| was_good(it) == counts);
            some.map(|(_, name)| name.clone()).collect()
        };
        let (faulted, others, mut words) = (shown(true), shown(false), Vec::new());
        if !others.is_empty() {
            words.push(format!("faulted, and not known to have been healthy before: {}", names(others)));
        }
        let is_faulted = || format!("volumes are faulted: {}", names(faulted.clone()));
        match unread.or_else(|| (!faulted.is_empty()).then(is_faulted)) {
            None => self.shut_since = None,
            Some(why) => {
                let end = *self.shut_since.get_or_insert(now) + limit;
                if now < end {
                    return VolumesVerdict { shut: Some(why), due: Some(end), ..VolumesVerdict::default() };
                }
                words.push(format!("{why}, after {} s", limit.as_secs()));
            }
        }
        let whole = |it: &String| self.before.as_ref().is_none_or(|all| all.volumes.get(it) == Some(&true));
        let degraded = seen.degraded.iter().filter(|(it, _)| whole(it)).map(|(_, name)| name.clone());
        let degraded: Vec<String> = degraded.chain(faulted).collect();
        let (mut holds_turn, mut due) = (false, None);
        if degraded.is_empty() {
            self.degraded_since = self.degraded_since.filter(|_| self.seen.is_err());
        } else {
            let since =
                self.degraded_since.get_or_insert_with(|| self.resumed.take().map_or(now, |it| it.min(now)));
            let end = *since + hold;
            holds_turn = now < end;
            due = holds_turn.then_some(end);
            let secs = hold.as_secs();
            let until = if holds_turn {
                format!("its turn is held for {secs} s for")
            } else {
                format!("after {secs} s still")
            };
            words.push(format!("{until} unhealthy volumes: {}", names(degraded)));
        }
        VolumesVerdict { shut: None, words: words.join("; "), holds_turn, due }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);
    const HOLD: Duration = Duration::from_secs(300);

    fn at(secs: u64) -> Mono {
        Mono::from_start(Duration::from_secs(secs))
    }

    fn names(all: &[&str]) -> BTreeMap<String, String> {
        all.iter().map(|it| ((*it).to_owned(), format!("shop/{it}"))).collect()
    }

    fn volumes(faulted: &[&str], degraded: &[&str], before: Option<&[(&str, bool)]>) -> Volumes {
        let before = before.map(|all| VolumesBefore {
            volumes: all.iter().map(|(it, whole)| ((*it).to_owned(), *whole)).collect(),
            ..VolumesBefore::default()
        });
        Volumes {
            seen: Ok(VolumesSeen { faulted: names(faulted), degraded: names(degraded) }),
            before,
            ..Volumes::unknown(String::new())
        }
    }

    /// Shut, holding its turn or open, at first and after so many seconds.
    fn course(mut volumes: Volumes, secs: u64) -> [&'static str; 2] {
        [at(0), at(secs)].map(|now| {
            let verdict = volumes.judge(now, LIMIT, HOLD);
            match (verdict.shut.is_some(), verdict.holds_turn) {
                (true, _) => "shut",
                (false, true) => "holds",
                (false, false) => "open",
            }
        })
    }

    #[test]
    fn r4_u10_what_was_healthy_before_must_not_be_faulted_and_what_was_whole_has_a_time_to_be_so_again() {
        let table = [
            (volumes(&[], &[], None), 600, ["open", "open"]),
            // With a record: what was healthy shuts it until the limit, and nothing else does.
            (volumes(&["a"], &[], Some(&[("a", true)])), 599, ["shut", "shut"]),
            (volumes(&["a"], &[], Some(&[("a", false)])), 599, ["shut", "shut"]),
            (volumes(&["a"], &[], Some(&[("a", true)])), 600, ["shut", "holds"]),
            (volumes(&["a"], &[], Some(&[("b", true)])), 0, ["open", "open"]),
            // Without one: until the limit.
            (volumes(&["a"], &[], None), 599, ["shut", "shut"]),
            (volumes(&["a"], &[], None), 600, ["shut", "holds"]),
            // Degraded ones hold the turn, and only if they were whole.
            (volumes(&[], &["a"], Some(&[("a", true)])), 299, ["holds", "holds"]),
            (volumes(&[], &["a"], Some(&[("a", true)])), 300, ["holds", "open"]),
            (volumes(&[], &["a"], Some(&[("a", false)])), 0, ["open", "open"]),
            (volumes(&[], &["a"], None), 300, ["holds", "open"]),
            // Not known: until the limit.
            (Volumes::unknown("403".to_owned()), 599, ["shut", "shut"]),
            (Volumes::unknown("403".to_owned()), 600, ["shut", "open"]),
        ];
        for (number, (volumes, secs, expected)) in table.into_iter().enumerate() {
            assert_eq!(course(volumes, secs), expected, "row {number}");
        }
    }

    #[test]
    fn u10_what_passes_does_so_with_a_warning_by_name() {
        let mut volumes = volumes(&["b"], &["a"], None);
        let words: Vec<String> = [0, 600, 900].map(|secs| volumes.judge(at(secs), LIMIT, HOLD).words).into();
        let faulted = "volumes are faulted: shop/b, after 600 s";
        assert_eq!(words[0], "");
        let both = "unhealthy volumes: shop/a, shop/b";
        assert_eq!(words[1], format!("{faulted}; its turn is held for 300 s for {both}"));
        assert_eq!(words[2], format!("{faulted}; after 300 s still {both}"));
    }

    #[test]
    fn u10_a_restart_of_the_agent_does_not_start_the_time_of_degraded_volumes_again() {
        let record = VolumesBefore { volumes: [("a".to_owned(), true)].into(), ..VolumesBefore::default() };
        let mut first = volumes(&[], &["a"], None);
        first.recorded(&record);
        assert!(first.judge(at(100), LIMIT, HOLD).holds_turn);
        let record = record.opened("b2", at(100));
        assert!(record.is_before("b2") && !record.is_before("b3"), "a record of a boot that is over");
        // The same run goes by what it has seen itself.
        first.recorded(&record);
        for mut run in [first, volumes(&[], &["a", "b"], None)] {
            run.recorded(&record);
            // Nothing is known of the layers below at first.
            run.wait();
            assert!(run.judge(at(399), LIMIT, HOLD).holds_turn);
        }
        let mut restarted = volumes(&[], &["a", "b"], None);
        restarted.recorded(&record);
        restarted.wait();
        let verdict = restarted.judge(at(399), LIMIT, HOLD);
        assert_eq!(
            (verdict.due, verdict.words.contains("shop/b")),
            (Some(at(400)), false),
            "{}",
            verdict.words
        );
        assert!(!restarted.judge(at(400), LIMIT, HOLD).holds_turn);
        // A layer below that fails then starts it again, as ever.
        restarted.wait();
        assert!(restarted.judge(at(400), LIMIT, HOLD).holds_turn);
    }

    #[test]
    fn a_layer_below_that_fails_starts_the_times_again() {
        let mut degraded = volumes(&[], &["a"], None);
        let mut faulted = volumes(&["a"], &[], None);
        let mut judge = |secs| {
            let (one, other) = (degraded.judge(at(secs), LIMIT, HOLD), faulted.judge(at(secs), LIMIT, HOLD));
            if secs == 299 {
                degraded.wait();
                faulted.wait();
            }
            (one.holds_turn, other.shut.is_some())
        };
        let seen = [0, 299, 400, 699, 700, 999, 1000].map(&mut judge);
        assert_eq!(seen.map(|it| it.0), [true, true, true, true, false, false, false]);
        assert_eq!(seen.map(|it| it.1), [true, true, true, true, true, true, false]);
    }
}
