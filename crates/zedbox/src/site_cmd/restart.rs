//! `zedbox site restart`: one node after another, and following that to its end.
//!
//! Not here: the order, what is waited for and what stops it (`outage::site::restart`).

use std::collections::BTreeMap;
use std::time::Duration;

use agent::Clock;
use anyhow::{Context as _, bail};
use checks::{Finding, verify};
use kubeapi::ApiClient;
use outage::operator::{self as lease, TurnView};
use outage::site::operator::{self, SiteRequest};
use outage::site::record::{NodeStep, OperatorStatement, SiteKind, SitePhase, SiteRecord};
use topics::VerifyResult;

use super::{change, checked, identity, none_blocks, say, status};
use crate::args::RestartOptions;
use crate::drain_cmd::voice::Voice;

/// Pause between two looks of whoever follows it.
const AGAIN: Duration = Duration::from_secs(2);

pub(super) async fn begin(
    cluster: &ApiClient,
    clock: Clock,
    (options, by): (&RestartOptions, OperatorStatement),
    voice: &Voice,
) -> anyhow::Result<()> {
    let what = "restart the site";
    let mut findings = checked(cluster, clock).await.context(what)?;
    // Turns are waited for.
    findings.retain(|it| it.code != "turn");
    for layer in Box::pin(verify::look(cluster, || clock.wall().to_timestamp())).await {
        let bad = layer.findings.iter().filter(|it| it.result >= VerifyResult::Unknown);
        let new = bad.map(|it| Finding::new(&layer.layer, it.text.clone(), it.next_step.clone()));
        let new: Vec<Finding> = new.filter(|it| findings.iter().all(|of| of.text != it.text)).collect();
        findings.extend(new);
    }
    none_blocks(&findings, &options.pass, what, voice)?;
    let view = lease::view(cluster).await.context(what)?;
    let wish = SiteRequest {
        id: identity(&by),
        kind: SiteKind::Restart,
        by,
        leave_machines: false,
        although_held: true,
        findings,
    };
    let record = view.held.map(|it| it.record).unwrap_or_default();
    let order = operator::begun(&record, &wish, &view.nodes).context(what)?.order.join(", ");
    let order = format!("Order: {order}; of the servers, the one that leads etcd by then goes last.");
    if options.dry_run {
        return say(voice, "clear", &format!("{order} Nothing was begun."));
    }
    change(cluster, clock, |record| operator::begin(record, &wish, &view.nodes), what).await?;
    let begun = format!(
        "The restart of the site {} has begun, by {}: {}. {order} `zedbox site status` shows how far it is; \
         `zedbox site cancel` ends it.",
        wish.id, wish.by.who, wish.by.why
    );
    if !options.wait {
        return say(voice, "begun", &begun);
    }
    Voice::warn_of("site", &begun);
    follow(cluster, clock, Some(wish.id), voice).await
}

/// Follows the restart `id`, or the one that is in progress, until it has ended or has stopped; then shows it. A cluster that does
/// not answer, as where its only server reboots, is waited for.
pub(super) async fn follow(
    cluster: &ApiClient,
    clock: Clock,
    mut id: Option<String>,
    voice: &Voice,
) -> anyhow::Result<()> {
    let (mut steps, mut said, mut known) = (BTreeMap::new(), String::new(), None);
    let mut tell = |line: String| {
        if line != said {
            Voice::warn_of("site", &line);
            said = line;
        }
    };
    loop {
        match lease::view(cluster).await {
            Err(why) => tell(format!("waiting for the cluster: {why}")),
            Ok(view) => {
                let (site, ended) = restart_of(&view, id.as_deref(), known.as_ref())?;
                id = Some(site.id.clone());
                known = Some(site.clone());
                for line in news(&site, &mut steps) {
                    tell(line);
                }
                let stopped = !ended && site.phase == SitePhase::Stopped;
                if ended || stopped {
                    status::show(Some(&site), ended, &view, clock, voice)?;
                    return result(&site, stopped);
                }
                if !site.waits.is_empty() {
                    tell(format!("waits for {}", site.waits));
                }
            }
        }
        clock.sleep_until(Some(clock.now() + AGAIN)).await;
    }
}

/// The restart of this identity, and whether it has ended.
fn restart_of(
    view: &TurnView,
    id: Option<&str>,
    known: Option<&SiteRecord>,
) -> anyhow::Result<(SiteRecord, bool)> {
    let record = view.held.as_ref().map(|it| it.record.clone()).unwrap_or_default();
    let ours = |it: &SiteRecord| it.kind == SiteKind::Restart && id.is_none_or(|id| it.id == id);
    if let Some(site) = operator::current(&record).context("follow the restart")?.filter(ours) {
        return Ok((site, false));
    }
    let last = operator::last_restart(&record).filter(|it| id.is_some() && ours(it));
    if let Some(known) = known.filter(|_| last.is_none()) {
        let left = |it: &&String| !matches!(known.step(it), Some(NodeStep::Done | NodeStep::Skipped));
        let left: Vec<&str> = known.order.iter().filter(left).map(String::as_str).collect();
        bail!(
            "follow the restart {}: its record is gone from the Lease, and nothing works on it any more; not restarted: {}",
            known.id,
            left.join(", ")
        );
    }
    let Some(last) = last else {
        bail!("follow the restart: there is none in progress; look: zedbox site status");
    };
    Ok((last, true))
}

/// What has changed of the nodes since it was asked last.
fn news(site: &SiteRecord, steps: &mut BTreeMap<String, NodeStep>) -> Vec<String> {
    let mut lines = Vec::new();
    for node in &site.order {
        let Some(step) = site.step(node).filter(|it| **it != NodeStep::Seen) else { continue };
        if steps.insert(node.clone(), step.clone()).as_ref() != Some(step) {
            lines.push(format!("node {node}: {}", status::word(step)));
        }
    }
    lines
}

fn result(site: &SiteRecord, stopped: bool) -> anyhow::Result<()> {
    if stopped {
        bail!("restart the site: it has stopped: {}; {}", site.waits, site.next);
    }
    if let Some(it) = &site.cancelled {
        bail!("restart the site: withdrawn by {}: {}", it.who, it.why);
    }
    Ok(())
}
