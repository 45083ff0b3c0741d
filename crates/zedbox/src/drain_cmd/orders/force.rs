//! `zedbox drain force`: the force file, written and removed with the agents' own rules.

use std::path::{Path, PathBuf};

use agent::force::{FALLBACK, LIMIT_BYTES, PLACES};
use anyhow::{Context as _, bail};
use pubsub::{TopicRoot, store};
use sheet::{DrainView, status_name};
use topics::{DrainStatus, FORCE_FILE, ForceFile, NodeDrainStatus, Requester, go_json, number, read_force};

use super::confirm;
use super::{read_as_agents_do, refuse_directory};
use crate::Exit;
use crate::args::{ForceOptions, Whom};
use crate::drain_cmd::voice::Voice;
use crate::drain_cmd::{Shell, person};

/// So many blockers are named before the question.
const NAMED: usize = 5;

/// Writes or removes the force file.
pub(in crate::drain_cmd) async fn run(shell: &Shell, options: &ForceOptions) -> anyhow::Result<Exit> {
    let seen = shell.look();
    match options.status {
        Some(DrainStatus::Complete) if options.whom.is_none() => {
            Voice::warn("COMPLETE needs a target: `--for reboot` or `--for update`");
            Ok(Exit::Usage)
        }
        Some(status) if !options.remove => {
            let reason = options.reason.as_deref().unwrap_or_default();
            let reason = person::reason(reason).context("force a status")?;
            let order = ForceFile {
                status,
                requested_by: options.whom.map_or(Requester::None, Whom::requester),
                reason: reason.to_owned(),
                by: shell.who(),
            };
            write(shell, &seen, &order, options).await
        }
        Some(_) | None => remove(shell, &seen),
    }
}

async fn write(
    shell: &Shell,
    seen: &DrainView,
    order: &ForceFile,
    options: &ForceOptions,
) -> anyhow::Result<Exit> {
    let status = order.status;
    let doing = || format!("force {}", status_name(status));
    let bytes = go_json::to_vec(order).with_context(doing)?;
    let waits = waits(seen, options.whom);
    if status == DrainStatus::Complete && waits.is_none() && !options.even_if_nobody_waits {
        bail!("{}: {}; to force the next one, add --even-if-nobody-waits", doing(), nobody(options.whom));
    }
    if !options.yes && matches!(status, DrainStatus::Complete | DrainStatus::NotSupported) {
        let happens = happens(seen, order, waits.as_deref(), options.whom);
        confirm(&shell.voice, &happens, &status_name(status).to_lowercase()).with_context(doing)?;
    }
    let (file, forced) = order_it(&shell.topic_root, order, options.replace).await.with_context(doing)?;
    if status == DrainStatus::Complete {
        Voice::warn(
            "WARNING: no drain is proved; what still runs on this node is cut off when the operation goes ahead",
        );
    }
    let text = format!(
        "{} says {}: {}",
        file.display(),
        String::from_utf8_lossy(&bytes),
        effect(status, waits.as_deref(), options.whom)
    );
    shell.voice.done("forced", &file, ("Order", forced), &text)
}

/// Puts the order where the agents read it. Returns the file, and what they make of it.
pub(in crate::drain_cmd) async fn order_it(
    topic_root: &TopicRoot,
    order: &ForceFile,
    replace: bool,
) -> anyhow::Result<(PathBuf, NodeDrainStatus)> {
    let bytes = go_json::to_vec(order)?;
    // The agents' own judgement, in their words.
    let forced = read_force(&bytes)?;
    let file = topic_root.path(FORCE_FILE);
    refuse_directory(&file)?;
    let file = match put(&file, &bytes, replace) {
        Err(cause) if takes_nothing(&cause) => {
            let fallback = topic_root.path(FALLBACK);
            refuse_directory(&fallback)?;
            put(&fallback, &bytes, replace)?;
            Voice::warn(&format!(
                "{cause:#}: the order is in {} instead; that the operation was carried out cannot be recorded, so \
                 it may be carried out once more after the boot",
                fallback.display()
            ));
            fallback
        }
        done => {
            done?;
            file
        }
    };
    read_as_agents_do(topic_root, &file).await?;
    Ok((file, forced))
}

fn remove(shell: &Shell, seen: &DrainView) -> anyhow::Result<Exit> {
    let mut removed = None;
    // First the one that can be removed while /persist cannot be written.
    for place in PLACES.into_iter().rev() {
        let file = shell.topic_root.path(place);
        if store::remove(&file).map_err(person::root_needed).context("remove the force file")? {
            removed = Some(file);
        }
    }
    let Some(file) = removed else {
        bail!("remove the force file: there is no {}", shell.topic_root.path(FORCE_FILE).display());
    };
    let order = seen.force.as_ref().and_then(|it| it.order);
    let what = match (&seen.force, order) {
        (_, Some(order)) => format!("it ordered {order}"),
        (Some(forced), None) => format!("it was refused: {}", forced.refused),
        (None, None) => "it could not be read".to_owned(),
    };
    let text = format!(
        "Removed {}; {what}. The real status shows again; an operation that went ahead because of it is not stopped.",
        file.display()
    );
    shell.voice.done("removed", &file, ("Order", order), &text)
}

/// Whether /persist takes nothing, whoever asks.
fn takes_nothing(cause: &anyhow::Error) -> bool {
    matches!(cause.downcast_ref(), Some(pubsub::Error::Io { source, .. }) if person::is_of_the_disk(source))
}

/// Puts the order there; an existing one is replaced only when that is asked for.
fn put(file: &Path, bytes: &[u8], replace: bool) -> anyhow::Result<()> {
    if replace {
        return store::replace(file, bytes).map_err(person::root_needed);
    }
    if store::create(file, bytes).map_err(person::root_needed)? {
        return Ok(());
    }
    let held = match store::read(file, LIMIT_BYTES) {
        Ok(held) => format!("holds {}", String::from_utf8_lossy(&held.unwrap_or_default()).trim()),
        Err(error) => format!("cannot be used ({error})"),
    };
    bail!(
        "{} exists already and {held}; add --replace, or remove it with `zedbox drain force --remove`",
        file.display()
    )
}

/// What waits for a drain on behalf of `whom`, in words.
fn waits(seen: &DrainView, whom: Option<Whom>) -> Option<String> {
    match whom? {
        Whom::Reboot => {
            let held = || seen.holds("zedagent").then(|| "reboot or shutdown".to_owned());
            let pending = || seen.pending.values().next().map(|it| it.op.word().to_owned());
            seen.requests.get("zedagent").map(|it| it.context.clone()).or_else(pending).or_else(held)
        }
        Whom::Update => seen.requests.get("baseosmgr").map(|it| format!("update to {}", it.context)),
    }
}

/// Whose operation waits: the one that is drained for, or else a reboot or shutdown before an update.
pub(in crate::drain_cmd) fn who_waits(seen: &DrainView) -> anyhow::Result<Whom> {
    let served = |it: &Whom| seen.served().is_some_and(|of| of.requested_by == it.requester());
    let mut all = vec![Whom::Reboot, Whom::Update];
    all.retain(|it| waits(seen, Some(*it)).is_some());
    let first = all.iter().find(|it| served(it)).or(all.first());
    first.copied().context("no operation waits for a drain: `zedbox status` shows what is going on")
}

fn nobody(whom: Option<Whom>) -> &'static str {
    match whom {
        Some(Whom::Update) => "no update is pending (baseosmgr has no NodeDrainRequest)",
        Some(Whom::Reboot) | None => "no reboot or shutdown is pending (zedagent has no NodeDrainRequest)",
    }
}

/// What the order does.
fn effect(status: DrainStatus, waits: Option<&str>, whom: Option<Whom>) -> String {
    match (status, waits) {
        (DrainStatus::Complete, Some(waits)) => {
            format!("the pending {waits} goes ahead WITHOUT a proved drain. The file is used once.")
        }
        (DrainStatus::Complete, None) => {
            let next = if whom == Some(Whom::Update) { "update" } else { "reboot or shutdown" };
            format!("the next {next} of this boot goes ahead WITHOUT a proved drain. The file is used once.")
        }
        (DrainStatus::NotSupported, _) => {
            "the agents act as if this node were in no cluster: operations go ahead WITHOUT a drain while the file \
             stays. `zedbox drain force --remove` ends it."
                .to_owned()
        }
        _ => "this status is shown while the file stays. `zedbox drain force --remove` ends it.".to_owned(),
    }
}

/// What comes of it, for a person who has to be sure.
fn happens(seen: &DrainView, order: &ForceFile, waits: Option<&str>, whom: Option<Whom>) -> Vec<String> {
    let mut lines =
        vec![format!("This forces {}: {}", status_name(order.status), effect(order.status, waits, whom))];
    let left = seen.agreed().map(|it| it.counts).map_or(0, |it| it.total.saturating_sub(it.gone));
    let blockers = seen.agreed().map(|it| it.blockers.as_slice()).unwrap_or_default();
    lines.push(match (left, blockers.len()) {
        (0, 0) => {
            "How many pods run on this node is not known here: `zedbox plan` lists them. They are cut off."
                .to_owned()
        }
        (left, _) => format!("Not gone yet, and then cut off: {} of the drain:", number(left, "pod")),
    });
    let first = blockers.iter().take(NAMED);
    lines.extend(first.map(|it| format!("  [{}] {}: {}", it.code, it.subject(), it.reason)));
    if blockers.len() > NAMED {
        lines.push(format!("  and {} more: `zedbox status`", blockers.len() - NAMED));
    }
    if let Some(pause) = &seen.pause {
        lines.push(format!("Operations of this node are {}. This goes past that.", pause.words()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_of_complete_and_not_supported_says_that_no_drain_is_proved() {
        for (status, loud) in [(9, true), (1, true), (2, false), (5, false), (8, false)] {
            let told = effect(DrainStatus::from(status), Some("reboot"), Some(Whom::Reboot));
            assert_eq!(told.contains("WITHOUT"), loud, "{status}: {told}");
        }
    }
}
