//! What has happened since zedkube started, for the counters of the metrics: out of one NodeDrainProgress after another.
//!
//! Pure: no clock, no I/O, no task.

use nodestatus::Totals;
use topics::{GoTime, NodeDrainProgress};

use super::notices::{Kind, Notice};

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
        totals.repair(what, u64::from(count.saturating_sub(held)));
    }
    for notice in said.iter().filter(|it| it.is_new) {
        let end = match notice.kind {
            Kind::Complete => "complete",
            Kind::Skipped => "skipped",
            Kind::Forced => "forced",
            Kind::Failed => "failed",
            Kind::Withdrawn => "withdrawn",
            Kind::Stalled => {
                totals.stalls += 1;
                continue;
            }
            Kind::Started
            | Kind::Blocked
            | Kind::WaitingForTurn
            | Kind::WaitingForWindow
            | Kind::Uncordoned
            | Kind::Paused
            | Kind::StillPaused
            | Kind::Resumed => continue,
        };
        totals.ended(end);
        let skip = now.answer(notice.id).map_or("", |it| it.skip.as_str());
        if matches!(notice.kind, Kind::Skipped | Kind::Forced) && !skip.is_empty() {
            totals.skipped(skip);
        }
        if notice.kind == Kind::Complete && !now.started_at.is_zero() {
            totals.drain_seconds += wall.apart(now.started_at).as_secs();
        }
    }
}
