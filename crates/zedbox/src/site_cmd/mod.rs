//! `zedbox site`: the whole site off, rebooted, and how far it is, over the cluster's own record.
//!
//! Not here: what may be written (`outage::site::operator`), and who acts on it (zedkube on each node).

mod restart;
mod status;

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};

use agent::Clock;
use anyhow::{Context as _, bail};
use kubeapi::ApiClient;
use outage::operator as lease;
use outage::site::operator::{self, SiteRequest};
use outage::site::preflight::{self, Finding};
use outage::site::record::{OperatorStatement, SiteKind, SitePhase};
use outage::turn::record::TurnRecord;
use serde::Serialize;
use step::Inserted as _;
use topics::SiteFinding;

use crate::Exit;
use crate::args::{BeginOptions, Output, SiteAction, SiteCommand, Surroundings};
use crate::drain_cmd::person;
use crate::drain_cmd::voice::Voice;
use sheet::text::number;

/// Does what `command` says. What goes wrong is said on standard error in plain words.
pub(crate) async fn run(command: &SiteCommand) -> Exit {
    let surroundings = Surroundings::of_this_process();
    let voice = Voice::new(command.place.output, &surroundings);
    Voice::exit("site", act(command, &surroundings, &voice).await.map(|()| Exit::Done))
}

async fn act(command: &SiteCommand, surroundings: &Surroundings, voice: &Voice) -> anyhow::Result<()> {
    let cluster = command.place.cluster()?;
    let clock = Clock::new();
    let said = |reason: &str| -> anyhow::Result<OperatorStatement> {
        Ok(OperatorStatement {
            who: format!("operator {}", person::at(surroundings)),
            why: person::reason(reason)?.to_owned(),
            when: clock.wall().to_timestamp().to_string(),
            phase: String::new(),
        })
    };
    match &command.action {
        SiteAction::Check => {
            let findings = checked(&cluster, clock).await.context("check the site")?;
            show(&findings, &[], voice)?;
            let count = u32::try_from(findings.len()).unwrap_or(u32::MAX);
            anyhow::ensure!(findings.is_empty(), "pass the checks: {}", number(count, "finding"));
            Ok(())
        }
        SiteAction::Status { wait: true } => restart::follow(&cluster, clock, None, voice).await,
        SiteAction::Status { wait: false } => status::run(&cluster, clock, &command.place.root, voice).await,
        #[cfg(feature = "demo")]
        SiteAction::Drill(options) => Box::pin(crate::demo::drill(options)).await,
        SiteAction::Restart(options) => {
            let by = said(&options.reason).context("restart the site")?;
            restart::begin(&cluster, clock, (options, by), voice).await
        }
        SiteAction::Shutdown(options) => {
            let said = said(&options.reason).context("shut the site down")?;
            begin(&cluster, clock, SiteKind::Shutdown, (options, said), voice).await
        }
        SiteAction::Reboot(options) => {
            let said = said(&options.reason).context("reboot the site")?;
            begin(&cluster, clock, SiteKind::Reboot, (options, said), voice).await
        }
        SiteAction::Continue { skip: Some(node), reason, .. } => {
            let said = said(reason).context("continue")?;
            let edit = |record: &TurnRecord| operator::skip(record, node, &said);
            change(&cluster, clock, edit, "continue").await?;
            let text = format!(
                "Node {node} is left out of the restart and not rebooted by it, by {}: {}. A turn that it holds is still \
                 waited for: `zedbox lock status`.",
                said.who, said.why
            );
            say(voice, "continued", &text)
        }
        SiteAction::Continue { phase, node, reason, skip: None } => {
            let phase = SitePhase::from(phase.clone().unwrap_or_default());
            let said = said(reason).context("continue")?;
            let edit = |record: &TurnRecord| operator::pass(record, &phase, node.as_deref(), &said);
            let (_, after) = change(&cluster, clock, edit, "continue").await?;
            if operator::current(&after)?.is_some_and(|it| it.kind == SiteKind::Restart) {
                let text = format!("The restart of the site continues, by {}: {}.", said.who, said.why);
                return say(voice, "continued", &text);
            }
            let text = format!(
                "The site no longer waits for what phase {} waits for, by {}: {}. What was waited for stays as it is.",
                phase.text(),
                said.who,
                said.why
            );
            say(voice, "continued", &text)
        }
        SiteAction::Cancel { reason } => {
            let said = said(reason).context("withdraw the whole-site operation")?;
            let edit = |record: &TurnRecord| operator::cancel(record, &said);
            let (before, _) = change(&cluster, clock, edit, "withdraw the whole-site operation").await?;
            let before = operator::current(&before)?;
            if before.as_ref().is_some_and(|it| it.kind == SiteKind::Restart) {
                let text = "Withdrew the restart of the site: the drain of the node that goes is withdrawn, and no other node \
                            starts; a machine that was ordered to reboot does so.";
                return say(voice, "cancelled", text);
            }
            let phase = before.map(|it| it.phase);
            let off = phase == Some(SitePhase::WorkersGoing);
            let machines = if off { " Workers that are off have to be switched on." } else { "" };
            let text = format!(
                "Withdrew the whole-site operation: cordons are removed, then applications are scaled up again.{machines} \
                 `zedbox site status` shows how far that is."
            );
            say(voice, "cancelled", &text)
        }
    }
}

async fn change(
    cluster: &ApiClient,
    clock: Clock,
    edit: impl Fn(&TurnRecord) -> Result<TurnRecord, outage::turn::rule::OperatorRefusal>,
    what: &'static str,
) -> anyhow::Result<(TurnRecord, TurnRecord)> {
    lease::change(cluster, clock.wall().to_timestamp(), edit).await.context(what)
}

async fn begin(
    cluster: &ApiClient,
    clock: Clock,
    kind: SiteKind,
    (options, by): (&BeginOptions, OperatorStatement),
    voice: &Voice,
) -> anyhow::Result<()> {
    let what = if kind == SiteKind::Reboot { "reboot the site" } else { "shut the site down" };
    let findings = checked(cluster, clock).await.context(what)?;
    let mut pass = options.pass.clone();
    if options.although_held {
        pass.push("turn".to_owned());
    }
    none_blocks(&findings, &pass, what, voice)?;
    let nodes = lease::view(cluster).await.context(what)?.nodes;
    let wish = SiteRequest {
        id: identity(&by),
        kind,
        by,
        leave_machines: options.leave_machines,
        although_held: pass.iter().any(|it| it == "turn"),
        findings,
    };
    change(cluster, clock, |record| operator::begin(record, &wish, &nodes), what).await?;
    let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let text = format!(
        "The whole-site {} {} has begun for {}, by {}: {}. `zedbox site status` shows \
         how far it is; `zedbox site cancel` withdraws it until the servers go.",
        wish.kind.text(),
        wish.id,
        number(count, "node"),
        wish.by.who,
        wish.by.why
    );
    say(voice, "begun", &text)
}

/// Two persons at once get two identities; the record takes one.
fn identity(by: &OperatorStatement) -> String {
    let chance = RandomState::new().hash_one(&by.who) & 0xffff;
    format!("{}-{chance:04x}", by.when.get(..19).unwrap_or(&by.when))
}

/// Shows the findings, and refuses what they speak against and nobody passes.
fn none_blocks(findings: &[Finding], pass: &[String], what: &str, voice: &Voice) -> anyhow::Result<()> {
    let blocking = preflight::blocking(findings, pass);
    if voice.output == Output::Text || !blocking.is_empty() {
        show(findings, pass, voice)?;
    }
    if blocking.is_empty() {
        return Ok(());
    }
    let codes: BTreeSet<&str> = blocking.iter().map(|it| it.code.as_str()).into_set();
    let words: Vec<String> = codes.into_iter().map(|it| format!("--pass {it}")).collect();
    bail!(
        "{what}: its checks have found what speaks against it, and nothing was begun; repair that, or begin all the same with \
         {}",
        words.join(" ")
    )
}

/// What speaks against it now.
async fn checked(cluster: &ApiClient, clock: Clock) -> anyhow::Result<Vec<Finding>> {
    let record = lease::view(cluster).await?.held.map(|it| it.record).unwrap_or_default();
    if let Some(site) = operator::current(&record)? {
        bail!(
            "the whole-site operation {} ({}) is in progress; look at it: zedbox site status",
            site.kind.text(),
            site.id
        );
    }
    Ok(preflight::look(cluster, &record, clock.wall().to_timestamp()).await)
}

/// Shows what the checks have found.
fn show(findings: &[Finding], pass: &[String], voice: &Voice) -> anyhow::Result<()> {
    if voice.output == Output::Json {
        let findings = status::findings(findings);
        return Voice::json(
            &Checked { result: if findings.is_empty() { "clear" } else { "found" }, findings },
            false,
        )
        .map(drop);
    }
    if findings.is_empty() {
        return voice.paragraph("The checks have found nothing that speaks against it.").map(drop);
    }
    for it in findings {
        let passed = if pass.contains(&it.code) { "; passed" } else { "" };
        voice.paragraph(&format!("[{}] {}{passed}. {}", it.code, it.text, it.next))?;
    }
    Ok(())
}

/// What the checks have found, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Checked<'a> {
    /// `clear` or `found`.
    result: &'a str,
    findings: Vec<SiteFinding>,
}

/// What was done, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct SiteResult<'a> {
    /// `begun`, `continued`, `cancelled`.
    result: &'a str,
}

fn say(voice: &Voice, result: &str, text: &str) -> anyhow::Result<()> {
    match voice.output {
        Output::Json => Voice::json(&SiteResult { result }, false),
        Output::Text => voice.paragraph(text),
    }
    .map(drop)
}
