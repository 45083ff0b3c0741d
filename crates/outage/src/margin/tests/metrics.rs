//! What is read out of etcd's metrics, and what is not.

use proptest::prelude::*;

use crate::margin::facts::{BadMetrics, LARGEST_BYTES, parse};

/// As a member of etcd 3.5 writes it that has reached one of its two peers.
const TEXT: &str = "# TYPE etcd_network_active_peers gauge
etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"91bc3c398fb3c146\"} 1
etcd_network_disconnected_peers_total{Local=\"8e9e05c52164694d\",Remote=\"91bc3c398fb3c146\"} 2
etcd_server_has_leader 1
etcd_server_health_success 1.2e+03
etcd_server_id{server_id=\"8e9e05c52164694d\"} 1
etcd_server_is_leader 0
etcd_server_is_learner 0
etcd_server_leader_changes_seen_total 1
etcd_server_version{server_version=\"3.5.16\"} 1
";
const OWN: u64 = 0x8e9e_05c5_2164_694d;
const UP: u64 = 0x91bc_3c39_8fb3_c146;

#[test]
fn what_a_member_says_of_itself_and_its_connections_is_read() {
    let read = parse(TEXT).unwrap();
    assert_eq!((read.id, read.has_leader, read.is_leader, read.is_learner), (OWN, true, false, false));
    assert_eq!((read.streams.into_iter().collect(), read.version.as_str()), (vec![(UP, true)], "3.5.16"));
}

#[test]
fn each_metric_that_is_missing_is_named() {
    for name in
        ["etcd_server_has_leader", "etcd_server_is_leader", "etcd_server_is_learner", "etcd_server_id"]
    {
        let left: Vec<&str> = TEXT.lines().filter(|line| !line.starts_with(name)).collect();
        let text = left.join("\n");
        assert_eq!(
            parse(&text).unwrap_err().to_string(),
            format!("the metric {name} is missing (etcd 3.5.16)")
        );
    }
    for (text, words) in [("", "of unknown version"), ("<html>502 Bad Gateway</html>", "of unknown version")]
    {
        assert!(parse(text).unwrap_err().to_string().contains(words));
    }
    // Where no peer was reached there is no such line.
    let none: Vec<&str> = TEXT.lines().filter(|line| !line.contains("Remote")).collect();
    assert_eq!(parse(&none.join("\n")).unwrap().streams.len(), 0);
}

fn with(line: &str, new: &str) -> String {
    assert!(TEXT.contains(line), "{line}");
    TEXT.replacen(line, new, 1)
}

const LEADER: &str = "etcd_server_has_leader 1\n";

#[test]
fn odd_lines_are_read_where_they_mean_something_and_named_where_they_do_not() {
    let id = "etcd_server_id{server_id=\"8e9e05c52164694d\"} 1\n";
    let stream = "etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"91bc3c398fb3c146\"} 1\n";
    for (line, new) in [
        (LEADER, "etcd_server_has_leader 1e+00\r\n"),
        (LEADER, "  etcd_server_has_leader\t1.0 1763800000000\n"),
        (LEADER, "etcd_server_has_leader{} 1\netcd_server_has_leader 1\n"),
        (LEADER, "etcd_server_has_leader{job=\"a \\\"b\\\\ } c\\n\",} 1\n"),
        (LEADER, "etcd_server_has_leader_since NaN x y\netcd_server_has_leader 1"),
        (id, "etcd_server_id{server_id=\"8e9e05c52164694d\"} 1\netcd_server_id{server_id=\"1\"} 0\n"),
        (stream, "etcd_network_active_peers{Remote=\"91bc3c398fb3c146\",Local=\"8e9e05c52164694d\"} 2\n"),
        // Another member that lived in the same process.
        (
            stream,
            "etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"91bc3c398fb3c146\"} 1\n\
                  etcd_network_active_peers{Local=\"1\",Remote=\"2\"} 1\n",
        ),
    ] {
        let text = if new.ends_with('\n') { with(line, new) } else { with(line, &format!("{new}\n")) };
        assert_eq!(parse(&text), parse(TEXT), "{new}");
    }
    for (new, words) in [
        ("etcd_server_has_leader 2\n", "unexpected line: etcd_server_has_leader 2"),
        ("etcd_server_has_leader NaN\n", "unexpected"),
        ("etcd_server_has_leader yes\n", "unexpected"),
        ("etcd_server_has_leader\n", "unexpected"),
        ("etcd_server_has_leader{a=\"b 1\n", "unexpected"),
        ("etcd_server_has_leader 1 soon\n", "unexpected"),
        (
            "etcd_server_has_leader 1\netcd_server_has_leader 0\n",
            "etcd_server_has_leader has two different values",
        ),
        (
            "etcd_server_has_leader 1\netcd_server_id{server_id=\"1\"} 1\n",
            "etcd_server_id has two different values",
        ),
        (
            "etcd_server_has_leader 1\netcd_server_id{server_id=\"n1\"} 1\n",
            "etcd_server_id has an unexpected line",
        ),
        (
            "etcd_server_has_leader 1\netcd_network_active_peers{Local=\"1\"} 1\n",
            "active_peers has an unexpected",
        ),
        (
            "etcd_server_has_leader 1\netcd_network_active_peers{Local=\"1\",Remote=\"2\"} -1\n",
            "active_peers",
        ),
    ] {
        let error = parse(&with(LEADER, new)).unwrap_err().to_string();
        assert!(error.contains(words), "{new}: {error}");
    }
}

#[test]
fn a_text_that_is_too_long_is_not_read() {
    let text = format!("{TEXT}{}", "# x\n".repeat(LARGEST_BYTES / 4));
    assert_eq!(parse(&text), Err(BadMetrics::TooLong(text.len())));
    let line = format!("etcd_server_has_leader {}", "x".repeat(10_000));
    assert!(parse(&line).unwrap_err().to_string().len() < 400);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(?s).{0,200}") {
        let _any = parse(&text);
    }

    #[test]
    fn no_change_of_one_place_makes_it_panic(at in 0..TEXT.len(), new in "(?s).{0,3}") {
        let mut text = TEXT.to_owned();
        text.replace_range(at..=at, &new);
        let _any = parse(&text);
    }
}
