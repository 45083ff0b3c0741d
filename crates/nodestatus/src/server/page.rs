//! The page at `/`: this node's drain and the cluster's nodes for a person, on a phone too. It loads nothing and runs
//! nothing, and asks for itself again.
//!
//! Every text that comes from elsewhere goes through [`plain`]. Pure: no clock, no I/O, no task.

use std::fmt::Write as _;

use topics::{GoTime, NodeDrainProgress};

use super::app::seconds;
use super::metrics::word;
use super::node_list::Known;
use super::nodes;
use super::view::View;

/// Between two loads of the page.
const AGAIN_SECS: u32 = 5;
/// No list is shown longer.
pub(super) const SHOWN: usize = 100;
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:0 auto;padding:1em;\
    color:#1b1b1b;background:#fff;overflow-wrap:anywhere}h1{font-size:1.4em;margin:0}h2{font-size:1.1em}\
    dl{display:grid;grid-template-columns:minmax(7em,auto) 1fr;gap:.2em 1em}dt{color:#555}dd{margin:0}\
    .what{font-weight:600}li{margin:.4em 0}table{border-collapse:collapse;width:100%}\
    th,td{text-align:left;vertical-align:top;padding:.2em .6em .2em 0;border-bottom:1px solid #8884}th{color:#555}.code{color:#8a1c00;font-weight:600}footer{color:#555;font-size:.85em}\
    @media(prefers-color-scheme:dark){body{color:#eee;background:#16181a}dt,th,footer{color:#aaa}.code{color:#ff9c80}}";

/// The page as it is at `now`.
pub(super) fn page(view: &View, known: Option<&Known>, now: GoTime) -> String {
    let node = if view.node.is_empty() { "this node" } else { &view.node };
    let node = plain(node);
    let mut body = String::new();
    match &view.progress {
        Some(progress) => drain(&mut body, progress),
        None => body.push_str("<p>Nothing is known of this node's drain yet.</p>"),
    }
    let cluster = nodes::cluster(view, known, now);
    format!(
        "<!DOCTYPE html><html lang=en><head><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=refresh content={AGAIN_SECS}><link rel=icon href=\"data:,\">\
         <title>{node}: drain</title><style>{STYLE}</style></head><body><h1>{node}</h1>{body}{cluster}\
         <footer><p>As of {}; loads itself again every {AGAIN_SECS} s.</p></footer></body></html>\n",
        plain(&at(now))
    )
}

fn drain(out: &mut String, progress: &NodeDrainProgress) {
    let counts = progress.counts;
    let phase = word(&progress.phase);
    write!(out, "<p class=what id=phase>Drain: {} ({})</p>", plain(&phase), progress.status.text())
        .unwrap_or_default();
    let attempt = match progress.attempt {
        0 => String::new(),
        nth => format!("{nth} of {}", progress.max_attempts),
    };
    let pods = if counts.total == 0 {
        String::new()
    } else {
        format!(
            "{} of {} gone, {} going, {} waiting, {} blocked",
            counts.gone, counts.total, counts.going, counts.waiting, counts.blocked
        )
    };
    out.push_str("<dl>");
    for (name, value) in [
        ("For", progress.context.clone()),
        ("Since", at(progress.started_at)),
        ("Attempt", attempt),
        ("Pods", pods),
        ("Ends by", at(progress.deadline)),
        ("Expected", at(progress.estimate)),
        ("Left out", progress.skip.clone()),
        ("Why", progress.reason.clone()),
        ("What to do", progress.next_step.clone()),
    ] {
        if !value.is_empty() {
            write!(out, "<dt>{name}</dt><dd>{}</dd>", plain(&value)).unwrap_or_default();
        }
    }
    out.push_str("</dl>");
    let blocker = |it: &topics::Blocker| {
        let (pod, code, reason) = (plain(&it.pod), plain(&it.code), plain(&it.reason));
        format!("{pod} <span class=code>{code}</span> since {}<br>{reason}", plain(&at(it.since)))
    };
    let machine = |it: &topics::MachineProgress| {
        let (name, state, reason) = (plain(&it.name), plain(&it.state), plain(&it.reason));
        format!("{name} <span class=code>{state}</span><br>{reason}")
    };
    let machines = progress.machines.iter().map(machine);
    list(out, ("Virtual machines", "machines"), machines, progress.machines_omitted);
    let NodeDrainProgress { blockers_omitted, volumes_omitted, left_omitted, .. } = progress;
    list(out, ("Blocked", "blockers"), progress.blockers.iter().map(blocker), *blockers_omitted);
    let volumes = progress.volumes.iter().map(|it| plain(it));
    list(out, ("Volumes still attached", "volumes"), volumes, *volumes_omitted);
    let storage = |it: &topics::StorageWait| format!("{}<br>{}", plain(&it.volume), plain(&it.reason));
    let storage = progress.storage.iter().map(storage);
    list(out, ("Volumes without a healthy copy elsewhere", "storage"), storage, progress.storage_omitted);
    let left = progress.left.iter().map(|it| plain(it));
    list(out, ("Left in place by policy", "left"), left, *left_omitted);
    list(out, ("Hooks", "hooks"), progress.hooks.iter().map(|it| plain(it)), 0);
}

/// A list, if there is anything in it; `items` are HTML, and `omitted` are those that the value has no room for.
fn list(
    out: &mut String,
    (title, id): (&str, &str),
    items: impl ExactSizeIterator<Item = String>,
    omitted: u32,
) {
    let all = items.len().saturating_add(usize::try_from(omitted).unwrap_or(usize::MAX));
    if all == 0 {
        return;
    }
    write!(out, "<h2>{title}: {all}</h2><ul id={id}>").unwrap_or_default();
    for item in items.take(SHOWN) {
        write!(out, "<li>{item}</li>").unwrap_or_default();
    }
    if all > SHOWN {
        write!(out, "<li>and {} more</li>", all - SHOWN).unwrap_or_default();
    }
    out.push_str("</ul>");
}

/// A time to the second; nothing for one that is not set.
pub(super) fn at(time: GoTime) -> String {
    if time.is_zero() {
        return String::new();
    }
    seconds(time)
}

/// Text as HTML shows it.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::{Blocker, DrainPhase, DrainStatus, KubeLeaderElectInfo, StorageWait};

    const EVIL: &str = "<script>alert(\"1\")</script>&'";

    #[test]
    fn every_text_is_escaped_wherever_it_comes_from() {
        let text = EVIL.to_owned();
        let blocker = Blocker {
            pod: text.clone(),
            uid: text.clone(),
            code: text.clone(),
            reason: text.clone(),
            since: GoTime::ZERO,
        };
        let progress = NodeDrainProgress {
            context: text.clone(),
            phase: DrainPhase::Draining,
            status: DrainStatus::Cordoned,
            tier: text.clone(),
            blockers: vec![blocker],
            machines: vec![topics::MachineProgress {
                name: text.clone(),
                state: text.clone(),
                reason: text.clone(),
            }],
            volumes: vec![text.clone()],
            storage: vec![StorageWait {
                volume: text.clone(),
                reason: text.clone(),
                ..StorageWait::default()
            }],
            left: vec![text.clone()],
            skip: text.clone(),
            reason: text.clone(),
            next_step: text.clone(),
            ..NodeDrainProgress::default()
        };
        let leader = KubeLeaderElectInfo { leader_identity: text.clone(), ..KubeLeaderElectInfo::default() };
        let view = View { node: text, progress: Some(progress), leader: Some(leader), ..View::default() };
        let page = page(&view, None, GoTime::ZERO);
        assert!(!page.contains("<script") && !page.contains("alert(\""), "{page}");
        // Node twice, blocker three times, machine three times, four members, one volume, storage twice, one left, one
        // leader.
        assert_eq!(page.matches("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;&#39;").count(), 17);
    }

    #[test]
    fn the_page_loads_nothing_and_a_long_list_is_cut() {
        let blockers = vec![Blocker { pod: "shop/web-0".to_owned(), ..Blocker::default() }; SHOWN + 7];
        let progress = NodeDrainProgress { blockers, ..NodeDrainProgress::default() };
        let page = page(&View { progress: Some(progress), ..View::default() }, None, GoTime::ZERO);
        assert_eq!(page.matches("shop/web-0").count(), SHOWN);
        assert!(page.contains("and 7 more") && page.contains("Blocked: 107"));
        for word in ["http:", "https:", "//", "src=", "<script", "url(", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
    }
}
