//! The record on disk, as the rule has it and as the topic has it.
//!
//! Pure: no clock, no I/O, no task.

use outage::site::member::{LocalSite, Next, SiteMemberAction};
use outage::site::record::{NodeStep, SiteKind, SiteRecord};
use topics::{DeviceOp, GoTime, SiteOperation};

use crate::core::SiteHold;

/// What is done with the machine, for its own agents.
pub(super) fn op(kind: &SiteKind) -> DeviceOp {
    if matches!(kind, SiteKind::Reboot | SiteKind::Restart) { DeviceOp::Reboot } else { DeviceOp::Shutdown }
}

/// What the rule needs of the record.
pub(super) fn local(record: &SiteOperation) -> LocalSite {
    LocalSite {
        id: record.id.clone(),
        kind: match record.op {
            DeviceOp::Reboot => SiteKind::Reboot,
            DeviceOp::Shutdown => SiteKind::Shutdown,
        },
        step: NodeStep::from(record.step.clone()),
        boot_id: record.boot_id.clone(),
        server: record.server,
        order: record.order.clone(),
        all_ready: record.all_ready,
        released: record.released,
    }
}

/// The record of what follows; `None` while there is no operation. `site` is what the Lease says, if that could be read;
/// `newest` is the newest drain that is over.
pub(super) fn record(
    next: &Next,
    site: Option<&SiteRecord>,
    before: Option<&SiteOperation>,
    (at, newest): (GoTime, &str),
) -> Option<SiteOperation> {
    let local = next.local.as_ref()?;
    let before = before.cloned().unwrap_or_default();
    let go = matches!(next.hold, SiteMemberAction::Go | SiteMemberAction::Drain);
    let by = site.map(|it| format!("{}: {}", it.by.who, it.by.why));
    let is_ordered = before.id == local.id && before.step == local.step.text();
    let record = SiteOperation {
        drains_before: if is_ordered { before.drains_before.clone() } else { newest.to_owned() },
        id: local.id.clone(),
        op: op(&local.kind),
        step: local.step.text().to_owned(),
        boot_id: local.boot_id.clone(),
        go,
        server: local.server,
        order: local.order.clone(),
        all_ready: local.all_ready,
        released: local.released,
        phase: site.map_or(before.phase.clone(), |it| it.phase.text().to_owned()),
        by: by.unwrap_or_else(|| before.by.clone()),
        waiting_for: next.waits.clone(),
        next_step: if next.waits.is_empty() { "" } else { "zedbox site status" }.to_owned(),
        at: before.at,
    };
    // The moment alone is no reason to write.
    Some(if record == before { before } else { SiteOperation { at, ..record } })
}

/// What the record holds this node to, in the boot `boot_id`.
pub(super) fn hold(record: Option<&SiteOperation>, boot_id: &str) -> SiteHold {
    let Some(record) = record.filter(|it| !it.released) else { return SiteHold::None };
    let what = format!("whole-site {} {}", record.op.word(), record.id);
    if record.go && record.boot_id == boot_id { SiteHold::Go(what) } else { SiteHold::Kept(what) }
}
