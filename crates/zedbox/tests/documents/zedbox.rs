//! Lines of `zedbox`: its command line accepts each of them, in the documents, in the program's own texts,
//! and in the scripts beside the documents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use outage::site::record::SitePhase;

use super::{Shown, files, is_placeholder, shown, top, words};
use crate::drain_cmd::place::Place;
use crate::processes::typed;

/// Placeholders in lines, and values.
const FOR: [(&str, &str); 5] =
    [("N", "2"), ("F", "7"), ("S", "1"), ("PHASE", "stopping"), ("TIME", "2026-03-14T09:41:00Z")];

/// Why the command line refuses it. What is not `whole` may lack arguments.
fn refused(text: &str, whole: bool) -> Option<String> {
    let mut words = words(text);
    // A link named as the agent.
    "zedbox".clone_into(&mut words[0]);
    // `…` means more arguments.
    let open = words.last().is_some_and(|it| it == "…");
    words.retain(|it| it != "…");
    for word in &mut words {
        let value = FOR.iter().find(|(placeholder, _)| word == placeholder && is_placeholder(word));
        *word = value.map_or_else(|| word.trim_end_matches('…').to_owned(), |(_, value)| (*value).to_owned());
        *word = word.replace("preflight:CODE", "preflight:backups");
    }
    // It stands for a code, which clap takes for no command.
    words.retain(|it| it != "CODE");
    let cause = zedbox::command().try_get_matches_from(words).err()?;
    let kind = cause.kind();
    let lacks = matches!(
        kind,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
    );
    let fine =
        matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) || lacks && (!whole || open);
    (!fine).then(|| cause.render().to_string())
}

/// Replacements for values that the program inserts.
const PUT_IN: [(&str, &str); 5] = [
    ("preflight:{}", "preflight:backups"),
    ("zedbox {} --cancel", "zedbox reboot --cancel"),
    ("{word}", "reboot"),
    ("{whom}", "reboot"),
    ("{fence}", "7"),
];

fn sources() -> Vec<PathBuf> {
    let mut sources = files(&top().join("crates"), "rs");
    sources.retain(|it| it.components().any(|part| part.as_os_str() == "src"));
    sources
}

/// A source file without its comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.lines().filter(|it| !it.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn joined(source: &str) -> String {
    source.split("\\\n").map(str::trim_start).collect()
}

/// In the texts of a source file, with something in place of each value.
fn said_in(source: &str) -> Vec<String> {
    let joined = joined(source);
    let spans = joined.split('`').filter(|it| it.starts_with("zedbox ") && !it.contains('\n'));
    let line = |span: &str| {
        let mut line = span.split(" | ").next().unwrap_or_default().to_owned();
        for (from, to) in PUT_IN {
            line = line.replace(from, to);
        }
        while let Some((before, rest)) = line.split_once('{') {
            let (_, after) = rest.split_once('}').unwrap_or_default();
            line = format!("{before}n1{after}");
        }
        line
    };
    spans.map(line).collect()
}

#[test]
fn every_zedbox_line_that_the_program_says_is_one_that_it_takes() {
    let (sources, mut lines) = (sources(), 0);
    let mut wrong = Vec::new();
    for source in &sources {
        for line in said_in(&fs::read_to_string(source).unwrap()) {
            lines += 1;
            wrong.extend(refused(&line, false).map(|why| format!("{}: `{line}`: {why}", source.display())));
            let phase = line.split_once(" --phase ").and_then(|(_, it)| it.split_whitespace().next());
            if let Some(phase) = phase.filter(|it| *it != "n1")
                && matches!(SitePhase::from(phase.to_owned()), SitePhase::Stranger(_))
            {
                wrong.push(format!("{}: `{line}`: no phase is named so", source.display()));
            }
        }
        // Two nodes are down at once where it is typed too early.
        let text = fs::read_to_string(source).unwrap();
        let before = text.split("zedbox lock release").collect::<Vec<_>>();
        let bare = before.iter().rev().skip(1).filter(|it| {
            let said = it.rsplit(['"', ';']).next().unwrap_or_default();
            !said.contains("only if ") && !said.contains("once ")
        });
        wrong.extend(
            bare.map(|_| format!("{}: `zedbox lock release` without its condition", source.display())),
        );
    }
    assert!(lines > 100, "{lines} lines in {} files", sources.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Those that change nothing.
const LOOKS: [&str; 11] = [
    "check",
    "failover check",
    "failover status",
    "help",
    "history",
    "lock status",
    "plan",
    "site status",
    "status",
    "verify",
    "watch",
];
/// Those that change something and are typed elsewhere than in a state of a node: the file, and how it types them.
const TYPED_ELSEWHERE: [(&str, &str, &str); 13] = [
    ("drain force", "tests/drain_cmd/force.rs", "(\"force "),
    ("drain force --remove", "tests/drain_cmd/force.rs", "\"force --remove\""),
    (
        "failover declare n1 --powered-off",
        "src/failover_cmd/tests.rs",
        "\"failover\", \"declare\", DEAD, \"--powered-off\"",
    ),
    (
        "go --past preflight --undo",
        "tests/drain_cmd/plan.rs",
        "go --past preflight:backups --past preflight:clock --undo",
    ),
    ("kubeconfig", "tests/access.rs", "\"kubeconfig --kubeconfig admin --to agents\""),
    ("kubectl apply", "tests/setup.rs", "(\"admin: kubeconfig of an administrator\", &admin)"),
    (
        "kubectl delete pod",
        "../kubesim/tests/kubectl.rs",
        "delete pod -n tools shell --grace-period=0 --force",
    ),
    ("machines restore", "tests/drain_cmd/machines.rs", "machines(\"restore\")"),
    ("notify test", "tests/access.rs", "\"notify test --root . "),
    ("role", "src/role_cmd.rs", "x4_every_object_of_the_reference"),
    ("role --create-namespace", "src/role_cmd.rs", "printed(\" --create-namespace\")"),
    ("setup", "tests/setup.rs", "[\"setup\", \"--root\", \".\"]"),
    ("shutdown", "tests/drain_cmd/orders/device_order.rs", "\"shutdown"),
];

fn elsewhere(foreign: bool) -> impl Iterator<Item = &'static str> {
    TYPED_ELSEWHERE.into_iter().map(|it| it.0).filter(move |it| it.starts_with("kubectl ") == foreign)
}

/// What a line does, without the values that it is done with: `go --past window`, `lock release`.
fn form(line: &str) -> String {
    let mut words = line.trim_start_matches("sudo ").split_whitespace().skip(1).peekable();
    let mut kept: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--reason" | "--root" | "--fence" | "--for" | "--to" | "--server" | "--service-account"
            | "--with" => {
                words.next();
            }
            "--wait" | "…" => {}
            it if it.starts_with(['<', '\'']) || it.contains(char::is_uppercase) => {}
            it => kept.push(it.split(':').next().unwrap_or_default()),
        }
        if kept.len() == 2
            && kept[0] == "lock"
            && !matches!(words.peek(), None | Some(&"--fence" | &"--reason" | &"--undo"))
        {
            words.next();
        }
    }
    kept.join(" ")
}

#[test]
fn x1_each_form_of_a_line_that_the_program_says_and_that_changes_something_is_typed_by_a_test() {
    let said = sources().into_iter().flat_map(|it| said_in(&code(&it)));
    let mut acts: BTreeSet<String> = said.map(|it| form(&it)).collect();
    let looks = |it: &str| {
        LOOKS
            .iter()
            .position(|look| it.strip_prefix(look).is_some_and(|it| it.is_empty() || it.starts_with(' ')))
    };
    let looked: BTreeSet<usize> = acts.iter().filter_map(|it| looks(it)).collect();
    assert_eq!(looked.len(), LOOKS.len(), "one of LOOKS is said nowhere");
    acts.retain(|it| looks(it).is_none());
    assert!(acts.len() > 15, "{acts:?}");
    let typed: BTreeSet<String> = typed::lines().map(form).collect();
    let elsewhere = elsewhere(false).map(str::to_owned).collect();
    let untyped: BTreeSet<String> = acts.difference(&typed).cloned().collect();
    assert_eq!(untyped, elsewhere);
    for (form, file, line) in TYPED_ELSEWHERE {
        let text = fs::read_to_string(top().join("crates/zedbox").join(file)).unwrap();
        assert!(text.contains(line), "{form}: {file} does not type it");
    }
}

/// Programs of others that are found outside of backticks too.
const PROGRAMS: &str = "chronyc crictl du etcdctl journalctl kubectl systemctl umount vgchange virtctl";
/// Forms of their lines that no test types, by reason.
const UNTYPED: &str = "\
only shows: chronyc sources, chronyc tracking, crictl ps, df -i, du --inodes, du -x, du -xah, etcdctl member
only shows: journalctl -u, kubectl auth whoami, kubectl describe, kubectl get, kubectl logs, systemctl status, ulimit -n
needs systemd: systemctl enable, systemctl reboot, systemctl restart, systemctl start, systemctl stop
restarts k3s in the image of the reference: pkill -f
changes clock, disks or images of the machine: crictl rmi, date -s, fsfreeze -u, mknod, mount -o, rm, umount, vgchange -an
needs a server of etcd: etcdctl alarm, etcdctl compact, etcdctl defrag
is for a node that nobody declares dead: kubectl label node
needs KubeVirt: kubectl annotate virtualmachineinstance, kubectl delete vmi, virtctl stop
needs Longhorn: kubectl annotate volumes.longhorn.io, kubectl edit volumes.longhorn.io
is for what kube-vip or Multus left: kubectl delete lease, kubectl delete network-attachment-definitions
is for what a dead node left, or one that is gone for good: kubectl taint node, kubectl delete node
says how a variable of the environment is removed: env -u
words of a sentence: kubectl apply without, kubectl is an";

/// Lines of other programs in the texts of a source file, cut to what they do: `kubectl delete pod`, `df -i`.
fn foreign_in(source: &str) -> BTreeSet<String> {
    let text = joined(source).replace("kubectl(\"", "kubectl ");
    let spans = text.split('`').filter(|it| !it.contains('\n')).map(|it| it.trim_start_matches("sudo "));
    let program = |it: &str| it.split_once(' ').map_or_else(String::new, |(program, _)| program.to_owned());
    let is_program =
        |it: &str| it.starts_with(char::is_lowercase) && it.chars().all(|it| it.is_ascii_lowercase());
    let spans = spans.filter(|it| program(it) != "zedbox" && is_program(&program(it)));
    let starts = |(at, _): &(usize, char)| *at == 0 || text[..*at].ends_with([' ', '"', '(', '`', '\n']);
    let bare = text.char_indices().filter(starts).filter_map(|(at, _)| text[at..].lines().next());
    let bare = bare.filter(|it| PROGRAMS.split(' ').any(|known| known == program(it)));
    spans.chain(bare).filter_map(foreign_form).collect()
}

fn foreign_form(line: &str) -> Option<String> {
    let line = line.split(['"', ';', ',', ')', '`']).next()?;
    let of_namespace = line.strip_prefix("kubectl -n ").and_then(|it| it.split_once(' '));
    let line = of_namespace.map_or_else(|| line.to_owned(), |(_, rest)| format!("kubectl {rest}"));
    let of_cluster = line.starts_with("kubectl ");
    let words = line.split_whitespace().filter(|it| !of_cluster || !it.starts_with('-'));
    let words = words.take_while(|it| it.starts_with(|it: char| it.is_ascii_lowercase() || it == '-'));
    let with_object =
        of_cluster && !["get", "describe", "logs", "uncordon"].iter().any(|it| line.contains(it));
    let words: Vec<&str> = words.take(if with_object { 3 } else { 2 }).collect();
    (words.len() > 1 || !["kubectl", "systemctl"].contains(&words[0])).then(|| words.join(" "))
}

#[test]
fn x1_each_form_of_a_line_of_another_program_is_typed_by_a_test_or_has_a_reason_why_not() {
    let is_of_tests = |it: &PathBuf| it.iter().any(|it| it == "tests" || it == "tests.rs");
    let product = |it: PathBuf| foreign_in(code(&it).split("#[cfg(test)]\nmod tests {").next().unwrap());
    let said: BTreeSet<String> =
        sources().into_iter().filter(|it| !is_of_tests(it)).flat_map(product).collect();
    let typed = typed::lines().filter(|it| it.starts_with("kubectl ")).filter_map(foreign_form);
    let mut listed = Vec::from_iter(typed.collect::<BTreeSet<_>>());
    let untyped = UNTYPED.lines().flat_map(|it| it.split_once(": ").unwrap().1.split(", "));
    listed.extend(untyped.chain(elsewhere(true)).map(str::to_owned));
    listed.sort();
    assert_eq!(listed, Vec::from_iter(said));
}

#[test]
fn lines_of_a_source_are_found_over_line_ends_and_with_something_for_each_value() {
    let source =
        "let a = \"type `zedbox drain \\\n    force`, or `zedbox role --user {name} | kubectl apply -f -`\";";
    assert_eq!(said_in(source), ["zedbox drain force", "zedbox role --user n1"]);
    assert_eq!(said_in("`zedbox {} --cancel`"), ["zedbox reboot --cancel"]);
    let source = "\"wait: kubectl -n {a} delete \\\n    pod {b}\", \"`newtool -x {c}`\", kubectl(\"logs\", it), use kubectl;";
    let found: Vec<String> = foreign_in(source).into_iter().collect();
    assert_eq!(found, ["kubectl delete pod", "kubectl logs", "newtool -x"]);
}

#[test]
fn every_command_of_zedbox_in_the_drill_is_one_of_its_commands() {
    let drill = fs::read_to_string(top().join("docs/drill.sh")).unwrap();
    let called = drill.split("zedbox ").skip(1).filter(|it| it.starts_with(char::is_lowercase));
    let called: Vec<Vec<&str>> =
        called.map(|it| it.split(|it: char| !it.is_ascii_lowercase()).take(2).collect()).collect();
    assert!(called.len() > 4, "the drill names {called:?}");
    for named in called {
        let command = zedbox::command();
        let first = command.find_subcommand(named[0]);
        let is_one = first.is_some_and(|it| {
            it.get_subcommands().next().is_none() || it.find_subcommand(named[1]).is_some()
        });
        assert!(is_one, "no command: zedbox {}", named.join(" "));
    }
}

fn is_ours(it: &Shown) -> bool {
    (it.is_of("zedbox") || it.is_of("zedkube")) && it.not_run().is_none()
}

#[test]
fn every_zedbox_line_of_the_documents_is_one_that_the_program_takes() {
    let lines: Vec<Shown> = shown().into_iter().filter(is_ours).collect();
    assert!(lines.len() > 200, "the documents show {} lines of zedbox", lines.len());
    let wrong = lines.iter().filter_map(|it| Some(format!("{it}: {}", refused(&it.text, it.whole)?)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_word_flag_or_value_is_refused_and_a_name_alone_is_none() {
    for wrong in [
        "zedbox drian status",
        "zedbox status --as-off NOW",
        "zedbox lock limit many",
        "zedbox watch --timeout soon",
        "zedbox pause --reason TEXT and more",
    ] {
        assert!(refused(wrong, false).is_some(), "{wrong}");
    }
    for name in ["zedbox drain", "zedbox drain force", "zedbox lock release", "zedbox zedkube …"] {
        assert!(refused(name, false).is_none(), "{name}");
    }
    assert!(refused("zedbox drain force", true).is_some());
    assert!(refused("zedbox lock limit N", true).is_none());
}

/// Beginnings of lines that are not run on the tree, and why.
const NOT_ON_A_TREE: [(&str, &str); 8] = [
    ("zedbox drain at-shutdown", "is for the unit at shutdown, and waits for minutes"),
    ("zedbox run", "runs until it is stopped; its file has tests of its own"),
    ("zedbox demo", "brings its own cluster"),
    ("zedbox site drill", "the same"),
    ("zedbox join", "asks a server, and no kubeconfig"),
    ("zedbox kubeconfig", "is for an administrator's kubeconfig"),
    ("zedbox lock status --root", "names a folder of the demo"),
    ("zedbox watch", "follows files, and no kubeconfig, until it is stopped"),
];

/// Commands in next steps find the cluster as the agents do. Each on the same tree, one after the other;
/// other tests check their answers.
#[test]
fn t11_each_zedbox_line_that_the_program_says_finds_the_cluster_that_the_settings_file_names() {
    let place = Place::new(1, |sim| {
        for (node, uuid) in [("edge-node-1", "11111111-1111-4111-8111-111111111111"), ("edge-node-2", "2")] {
            sim.add_node(node, uuid);
        }
        sim.add_stateful_set("shop", "web", 1);
    })
    .by_settings_file();
    let node = &place.node;
    let said = sources().into_iter().flat_map(|it| said_in(&fs::read_to_string(it).unwrap()));
    let mut lines: BTreeSet<String> = said.collect();
    lines.extend(["zedbox plan --node edge-node-2", "zedbox machines list"].map(str::to_owned));
    lines.retain(|line| !NOT_ON_A_TREE.iter().any(|(begins, _)| line.starts_with(begins)));
    assert!(lines.len() > 30, "{lines:?}");
    let mut wrong = Vec::new();
    for line in &lines {
        // A pod of the sheet, a reason, a file for the archive.
        let line =
            line.replace("zedbox bundle", &format!("bundle --to {}", node.path("bundle.tar.gz").display()));
        let told = node.drain(line.trim_start_matches("zedbox "));
        let all = format!("{} {}", told.out, told.err);
        if all.contains("k3s.yaml") || all.contains("no kubeconfig") || all.contains("find the cluster") {
            wrong.push(format!("`{line}` ends with {}: {all}", told.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for line in ["lock status", "drain plan", "machines list", "site check"] {
        node.drain(line).ends(0);
    }
}
