//! This node in a shutdown or reboot of the whole site: its own record on disk, what it does to itself, and, where it is
//! the one that works for all, what it does for all.
//!
//! Not here: any decision (`outage::site`), and what the drain makes of it (`core::context`). What runs it: `zedkube::run`.

mod restart;
mod run;

pub(crate) use run::Sites;

/// What is waited for, without the figures and names behind it that change.
fn topic_of(waits: &str) -> &str {
    waits.split(':').next().unwrap_or_default()
}

/// Logs what has changed of this node's record, but figures.
fn log_changed(record: Option<&topics::SiteOperation>, before: Option<&topics::SiteOperation>) {
    fn shown(it: &topics::SiteOperation) -> [&str; 4] {
        [&it.id, &it.step, &it.phase, topic_of(&it.waiting_for)]
    }
    match record {
        Some(it) if before.map(shown) != Some(shown(it)) => tracing::info!(
            operation = it.id,
            phase = it.phase,
            step = it.step,
            waits = it.waiting_for,
            "whole-site {}",
            it.op.word()
        ),
        None if before.is_some() => tracing::info!("the whole-site operation is over"),
        Some(_) | None => {}
    }
}
