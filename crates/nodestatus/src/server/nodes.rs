//! The cluster on the page: who leads, and each node with whether it is Ready, cordoned, and what it is for.
//!
//! The leader shows what it reports; another node what it has read lately, and says how old that is. Pure: no clock, no
//! I/O, no task.

use std::fmt::Write as _;
use std::time::Duration;

use kubeapi::nodes::Member;
use topics::{GoTime, KubeNodeInfo, KubeNodeStatus};

use super::metrics::between;
use super::node_list::Known;
use super::page::{SHOWN, at, plain};
use super::view::View;

/// So long the page waits for the nodes; else it shows what was known before.
pub(super) const WAIT: Duration = Duration::from_millis(500);
/// Name of the part of the statistics that tells the nodes.
const PART: &str = "nodes";

/// A node as it is shown.
struct Row<'a> {
    name: &'a str,
    state: &'static str,
    cordoned: bool,
    control_plane: bool,
    etcd: bool,
}

/// All of it as HTML; nothing where nothing is known.
pub(super) fn cluster(view: &View, known: Option<&Known>, now: GoTime) -> String {
    let mut out = String::new();
    let leader = view.leader.as_ref().map(|it| it.leader_identity.as_str());
    let (rows, source) = rows(view, known, now);
    if leader.is_none() && rows.is_empty() {
        return out;
    }
    out.push_str("<h2>Cluster</h2>");
    if let (Some(name), Some(leads)) = (leader, view.leader.as_ref().map(|it| it.is_stats_leader)) {
        let name = if name.is_empty() { "nobody yet" } else { name };
        let here = if leads { " (this node)" } else { "" };
        write!(out, "<dl><dt>Leader</dt><dd id=leader>{}{here}</dd></dl>", plain(name)).unwrap_or_default();
    }
    if rows.is_empty() {
        out.push_str("<p>The other nodes are not known yet.</p>");
        return out;
    }
    out.push_str("<table id=nodes><thead><tr><th>Node<th>State<th>Roles</thead><tbody>");
    for row in rows.iter().take(SHOWN) {
        let name = plain(row.name);
        let own = if row.name == view.node { " (this node)" } else { "" };
        let (state, class) = (row.state, if row.state == "Ready" { "" } else { " class=code" });
        let cordoned = if row.cordoned { ", <span class=code>cordoned</span>" } else { "" };
        let roles = roles(row);
        write!(out, "<tr><td>{name}{own}<td><span{class}>{state}</span>{cordoned}<td>{roles}")
            .unwrap_or_default();
    }
    out.push_str("</tbody></table>");
    if rows.len() > SHOWN {
        write!(out, "<p>and {} more</p>", rows.len() - SHOWN).unwrap_or_default();
    }
    write!(out, "<p id=nodes-as-of>{} nodes {}.</p>", rows.len(), plain(&source)).unwrap_or_default();
    out
}

/// The nodes, and how current they are.
fn rows<'a>(view: &'a View, known: Option<&'a Known>, now: GoTime) -> (Vec<Row<'a>>, String) {
    if let Some(nodes) = &view.nodes {
        let late = view.stats.iter().flat_map(|it| &it.parts).find(|it| it.name == PART);
        let source = late.map_or_else(
            || "as this node follows them for the cluster's report".to_owned(),
            |part| format!("as they were {} s ago: {}", between(part.since, now), part.error),
        );
        return (nodes.iter().map(reported).collect(), source);
    }
    known.map_or_else(Default::default, |known| {
        let source = format!("as of {}, {} s ago", at(known.at), between(known.at, now));
        (known.members.iter().map(read).collect(), source)
    })
}

fn reported(node: &KubeNodeInfo) -> Row<'_> {
    Row {
        name: &node.name,
        state: match node.status {
            KubeNodeStatus::Ready => "Ready",
            KubeNodeStatus::NotReady => "not Ready",
            KubeNodeStatus::NotReachable | KubeNodeStatus::Unknown | KubeNodeStatus::Stranger(_) => {
                "not heard of"
            }
        },
        cordoned: !node.schedulable,
        control_plane: node.is_master,
        etcd: node.uses_etcd,
    }
}

fn read(member: &Member) -> Row<'_> {
    let facts = &member.facts;
    Row {
        name: &member.name,
        state: match facts.ready.as_str() {
            "True" => "Ready",
            "False" => "not Ready",
            _ => "not heard of",
        },
        cordoned: facts.unschedulable,
        control_plane: facts.control_plane,
        etcd: facts.etcd,
    }
}

fn roles(row: &Row<'_>) -> &'static str {
    match (row.control_plane, row.etcd) {
        (true, true) => "control plane, etcd",
        (true, false) => "control plane",
        (false, true) => "etcd",
        (false, false) => "worker",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubeapi::nodes::Node;
    use topics::{KubeLeaderElectInfo, KubeStatsPart, KubeStatsState};

    fn now() -> GoTime {
        "2026-03-14T09:31:10Z".parse().unwrap()
    }

    #[test]
    fn who_does_not_lead_shows_what_it_has_read_and_how_old_that_is() {
        let member = |name: &str, ready: &str, unschedulable, etcd| Member {
            name: name.to_owned(),
            facts: Node {
                ready: ready.to_owned(),
                unschedulable,
                etcd,
                control_plane: etcd,
                ..Node::default()
            },
            ..Member::default()
        };
        let members = [
            member("n1", "True", false, true),
            member("n<2>", "False", true, false),
            member("n3", "", false, false),
        ];
        let known = Known::at("2026-03-14T09:31:01.5Z".parse().unwrap(), members);
        let view = View { node: "n1".to_owned(), ..View::default() };
        let told = cluster(&view, Some(&known), now());
        for text in [
            "<td>n1 (this node)<td><span>Ready</span><td>control plane, etcd",
            "<td>n&lt;2&gt;<td><span class=code>not Ready</span>, <span class=code>cordoned</span><td>worker",
            "<td>n3<td><span class=code>not heard of</span><td>worker",
            "3 nodes as of 2026-03-14T09:31:01Z, 9 s ago.",
        ] {
            assert!(told.contains(text), "{text}: {told}");
        }
        assert_eq!(cluster(&View::default(), None, now()), "");
    }

    #[test]
    fn the_leader_shows_what_it_reports_and_says_when_that_is_old() {
        let node =
            KubeNodeInfo { name: "n2".to_owned(), status: KubeNodeStatus::Ready, ..KubeNodeInfo::default() };
        let leader = KubeLeaderElectInfo {
            is_stats_leader: true,
            leader_identity: "n1".to_owned(),
            ..KubeLeaderElectInfo::default()
        };
        let mut view = View { leader: Some(leader), nodes: Some(vec![node]), ..View::default() };
        let told = cluster(&view, None, now());
        assert!(told.contains("<dd id=leader>n1 (this node)</dd>"), "{told}");
        assert!(
            told.contains("<td>n2<td><span>Ready</span>, <span class=code>cordoned</span><td>worker"),
            "{told}"
        );
        assert!(told.contains("1 nodes as this node follows them"), "{told}");
        let since = "2026-03-14T09:30:00Z".parse().unwrap();
        let part = KubeStatsPart {
            name: PART.to_owned(),
            since,
            error: "403 <no>".to_owned(),
            ..KubeStatsPart::default()
        };
        view.stats = Some(KubeStatsState { parts: vec![part], ..KubeStatsState::default() });
        let told = cluster(&view, None, now());
        assert!(told.contains("as they were 70 s ago: 403 &lt;no&gt;."), "{told}");
    }

    #[test]
    fn a_crowd_is_cut() {
        let members: Vec<Member> =
            (0..SHOWN + 7).map(|nth| Member { name: format!("node-{nth}"), ..Member::default() }).collect();
        let told = cluster(&View::default(), Some(&Known::at(now(), members)), now());
        assert_eq!(told.matches("<td>node-").count(), SHOWN);
        assert!(told.contains("and 7 more"), "{told}");
    }
}
