//! The page as HTML: texts of others, long lists, the nodes. How it looks in a browser: `tests/page.rs` of zedbox.

use std::sync::Arc;

use super::super::exchange::NodeWord;
use super::super::node_list::NodesSnapshot;
use super::super::view::NodeView;
use super::*;
use kubeapi::nodes::{Node, ReachableNode};
use sheet::DrainView;
use topics::{
    Blocker, DrainHistory, DrainPhase, DrainRecord, DrainStatus, Headline, KubeLeaderElectInfo, KubeNodeInfo,
    KubeNodeStatus, KubeStatsPart, KubeStatsState, MachineProgress, NodeDrainProgress, StorageWait,
};

const EVIL: &str = "<script>alert(\"1\")</script>&'\u{1b}[2J\u{9b}\u{202e}";

fn now() -> GoTime {
    "2026-03-14T09:31:10Z".parse().unwrap()
}

fn drain(progress: NodeDrainProgress) -> DrainView {
    DrainView { progress: Some(progress), ..DrainView::default() }
}

fn has(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(page.contains(text), "{text}: {page}");
    }
}

fn member(name: &str) -> ReachableNode {
    ReachableNode { name: name.to_owned(), ..ReachableNode::default() }
}

fn leads(name: &str) -> KubeLeaderElectInfo {
    let leader_identity = name.to_owned();
    KubeLeaderElectInfo { is_stats_leader: true, leader_identity, ..KubeLeaderElectInfo::default() }
}

fn shown(view: &NodeView, known: Option<&NodesSnapshot>) -> String {
    page(&report(view.clone(), known, now()), true)
}

#[test]
fn every_text_is_escaped_wherever_it_comes_from() {
    let text = EVIL.to_owned();
    let blocker = Blocker {
        pod: text.clone(),
        uid: text.clone(),
        code: text.clone(),
        reason: text.clone(),
        next_step: text.clone(),
        since: now(),
    };
    let progress = NodeDrainProgress {
        context: text.clone(),
        phase: DrainPhase::Draining,
        status: DrainStatus::Cordoned,
        blockers: vec![blocker],
        machines: vec![MachineProgress { name: text.clone(), state: text.clone(), reason: text.clone() }],
        volumes: vec![text.clone()],
        storage: vec![StorageWait { volume: text.clone(), reason: text.clone(), ..StorageWait::default() }],
        left: vec![text.clone()],
        skip: text.clone(),
        reason: text.clone(),
        next_step: text.clone(),
        ..NodeDrainProgress::default()
    };
    let view = NodeView {
        node: text.clone(),
        drain: drain(progress),
        leader: Some(leads(&text)),
        ..NodeView::default()
    };
    let page = shown(&view, Some(&NodesSnapshot::at(now(), [member(&text)])));
    assert!(!page.chars().any(|it| it != '\n' && topics::acts(it)), "{page:?}");
    assert!(!page.contains("<script") && !page.contains("alert(\"") && !page.contains("'\"<"), "{page}");
    // Title three times, node, headline twice, first step, what follows, blocker three times, one volume, storage twice, the skip, machine
    // three times, one left, leader, node of the cluster, and its headline twice.
    let told = page.matches("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;'").count();
    assert_eq!(told, 23, "{page}");
}

#[test]
fn the_page_loads_nothing_and_long_lists_are_cut() {
    let blockers = vec![Blocker { pod: "shop/web-0".to_owned(), ..Blocker::default() }; SHOWN + 7];
    let progress = NodeDrainProgress { blockers, ..NodeDrainProgress::default() };
    let crowd: Vec<_> = (0..SHOWN + 9).map(|nth| member(&format!("node-{nth}"))).collect();
    let view = NodeView { drain: drain(progress), ..NodeView::default() };
    let page = shown(&view, Some(&NodesSnapshot::at(now(), crowd)));
    assert_eq!((page.matches("pod shop/web-0:").count(), page.matches("<td>node-").count()), (10, SHOWN));
    has(&page, &["and 97 more", "and 9 more"]);
    for word in ["http:", "https:", "//", "src=", "<script", "url(", "@import"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn a_time_is_a_distance_with_the_exact_time_behind_it_and_a_command_is_marked() {
    let started_at = "2026-03-14T10:28:10.25+01:00".parse().unwrap();
    let reason = "look at `kubectl get pods`".to_owned();
    let drains = vec![DrainRecord { started_at, ..DrainRecord::default() }];
    let drain = DrainView {
        history: Some(DrainHistory { drains, ..DrainHistory::default() }),
        ..drain(NodeDrainProgress { started_at, reason, ..NodeDrainProgress::default() })
    };
    let page = shown(&NodeView { drain, ..NodeView::default() }, None);
    assert!(page.contains("<dt class=\"rest\">started</dt><dd>09:28:10 UTC, 3 min ago</dd>"), "{page}");
    let time =
        "<time datetime=\"2026-03-14T10:28:10.25+01:00\" title=\"2026-03-14 09:28:10 UTC\">3 min ago</time>";
    assert!(page.contains(time), "{page}");
    assert!(page.contains("look at <code>kubectl get pods</code>"), "{page}");
    let step = step("wait; or `kubectl get pods`; `kubectl describe node n` says more").into_string();
    let words = |it: &str| it.replace(' ', " </span><span>");
    let line = |it: &str| format!("<code class=\"line\"><span>{}</span></code>", words(it));
    let (get, describe) = (line("kubectl get pods"), line("kubectl describe node n"));
    assert_eq!(step, format!("wait; or {get}{describe}says more"));
}

#[test]
fn x2_what_is_unfolded_is_in_the_address_and_the_elected_node_shows_all_nodes_first() {
    let history = DrainHistory { drains: vec![DrainRecord::default()], ..DrainHistory::default() };
    let drain = DrainView { history: Some(history), ..drain(NodeDrainProgress::default()) };
    let view = NodeView { node: "n1".to_owned(), drain, leader: Some(leads("n1")), ..NodeView::default() };
    let there = ReachableNode { addresses: vec!["10.0.0.2".parse().unwrap()], ..member("n2") };
    let known = NodesSnapshot::at(now(), [member("n1"), there, member("n3")]);
    let facts = report(view, Some(&known), now());
    let (folded, open) = (page(&facts, false), page(&facts, true));
    assert!(folded.contains("<a href=\"/?open#history\">unfold</a>") && !folded.contains("<li>"), "{folded}");
    assert!(open.contains("<a href=\"/\">fold</a>") && open.contains("<li>"), "{open}");
    let place = |text: &str| folded.find(text).unwrap_or_else(|| panic!("{text}: {folded}"));
    assert!(place("id=\"nodes\"") < place("id=\"rows\""));
    assert!(place("NOT KNOWN: it has no address") > place("<td>n3</td>"));
    assert!(
        place(">asking \u{2026}<") > place("<td>n2</td>")
            && place(">asking \u{2026}<") < place("<td>n3</td>")
            && folded.contains("zedbox 0.1.0"),
        "{folded}"
    );
}

#[test]
fn who_does_not_lead_shows_what_it_has_read_how_old_that_is_and_what_each_node_says() {
    let seen = |name: &str, ready: &str, unschedulable, etcd| ReachableNode {
        facts: Node { ready: ready.to_owned(), unschedulable, etcd, control_plane: etcd, ..Node::default() },
        ..member(name)
    };
    let members =
        [seen("n1", "True", false, true), seen("n<2>", "False", true, false), seen("n3", "", false, false)];
    let mut known = NodesSnapshot::at("2026-03-14T09:31:01.5Z".parse().unwrap(), members);
    let headline = Some(Headline { text: "BLOCKED: <i>".to_owned(), ..Headline::default() });
    let word = NodeWord { headline, at: "10.0.0.3:12346".parse().unwrap() };
    known.words = Arc::new([("n3".to_owned(), word)].into_iter().collect());
    let view = NodeView { node: "n1".to_owned(), ..NodeView::default() };
    let told = shown(&view, Some(&known));
    let code = |word: &str| format!("<span class=\"code\">{word}</span>");
    for text in [
        "<td>n1 (this node)</td><td>Ready, control plane, etcd</td><td>NOT KNOWN".to_owned(),
        format!("<td>n&lt;2&gt;</td><td>{}, {}, worker</td>", code("not Ready"), code("cordoned")),
        format!(
            "<td><a href=\"http://10.0.0.3:12346/\">n3</a></td><td>{}, worker</td>",
            code("kubelet silent")
        ),
        "<td>BLOCKED: &lt;i&gt;</td>".to_owned(),
        "3 nodes as of 9 s ago.".to_owned(),
    ] {
        assert!(told.contains(&text), "{text}: {told}");
    }
    assert!(!shown(&NodeView::default(), None).contains("Cluster"));
}

#[test]
fn the_leader_shows_what_it_reports_and_says_when_that_is_old_without_the_words_of_libraries() {
    let node =
        KubeNodeInfo { name: "n2".to_owned(), status: KubeNodeStatus::Ready, ..KubeNodeInfo::default() };
    let (name, nodes) = ("n1".to_owned(), Some(vec![node]));
    let mut view = NodeView { node: name, leader: Some(leads("n1")), nodes, ..NodeView::default() };
    let leader = "<span id=\"leader\">n1 (this node)</span>";
    has(&shown(&view, None), &[leader, "<td>n2</td>", "1 node as seen by this node, which reports"]);
    let since = "2026-03-14T09:30:00Z".parse().unwrap();
    let error = "client error (Connect)".to_owned();
    let part = KubeStatsPart { name: "nodes".to_owned(), since, error, ..KubeStatsPart::default() };
    view.stats = Some(KubeStatsState { parts: vec![part], ..KubeStatsState::default() });
    let told = shown(&view, None);
    assert!(
        told.contains("as they were 1 min 10 s ago: they cannot be read now.") && !told.contains("client"),
        "{told}"
    );
}
