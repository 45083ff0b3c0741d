//! What has happened since zedkube started, for the counters of the metrics: out of one NodeDrainProgress after another.
//!
//! Pure: no clock, no I/O, no task.

use nodestatus::Totals;
use topics::{Answer, GoTime, NodeDrainProgress, RepairKind};

use super::notices::{Notice, NoticeKind};

/// Adds what `now` has more than `before`, and what was said of it.
pub(crate) fn add(
    totals: &mut Totals,
    before: Option<&NodeDrainProgress>,
    now: &NodeDrainProgress,
    said: &[Notice],
    wall: GoTime,
) {
    // What an earlier run of zedkube has counted is not counted again.
    let Some(before) = before else { return };
    let same = (before.started_at, before.requested_at) == (now.started_at, now.requested_at);
    let more =
        |held: u32, now: u32, same: bool| u64::from(if same && now >= held { now - held } else { now });
    totals.evictions += more(before.evicted, now.evicted, same);
    totals.recordons += more(before.recordons, now.recordons, same);
    let same = same && before.attempt == now.attempt;
    for (word, count) in &now.replies {
        let held = before.replies.get(word).copied().unwrap_or_default();
        totals.reply(word, more(held, *count, same));
    }
    for (what, count) in &now.repairs {
        let held = before.repairs.get(what).copied().unwrap_or_default();
        totals.repair(RepairKind::of(what), u64::from(count.saturating_sub(held)));
    }
    for notice in said.iter().filter(|it| it.is_new) {
        totals.stalls += u64::from(notice.kind == NoticeKind::Stalled);
        let Some(end) = notice.kind.end() else { continue };
        totals.ended(end);
        if matches!(notice.kind, NoticeKind::Skipped | NoticeKind::Forced)
            && let Some(skip) = now.answer(notice.id).and_then(Answer::skipped)
        {
            totals.skipped(skip.kind);
        }
        if notice.kind == NoticeKind::Complete && !now.started_at.is_zero() {
            totals.drain_seconds += wall.apart(now.started_at).as_secs();
        }
    }
}
