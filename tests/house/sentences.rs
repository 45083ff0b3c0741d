//! Nothing is decided by a text for a person: no call cuts or searches one, but where others have written it.

use std::collections::BTreeMap;

use crate::{is_of_tests, product, sources};

const CALLS: &str = "starts_with ends_with contains strip_prefix strip_suffix trim_start_matches trim_end_matches split \
    split_once rsplit rsplit_once find";
/// How texts for people are called, as members, variables and methods.
const TEXTS: &str = "reason next_step skip why words words() trouble waiting_for waits refused effect sentence() headline text \
    message said left";
/// Files that may do so, how often, and why.
const ALLOWED: [(&str, usize, &str); 18] = [
    ("agent/src/device.rs", 1, "a word of the settings file"),
    ("agent/src/partitions/root_layer.rs", 1, "a digest of an OCI image"),
    ("checks/src/certificates.rs", 3, "reasons of Events that k3s writes"),
    ("checks/src/storage.rs", 1, "findings of one code: theirs is no word of its own yet"),
    ("kubeapi/src/error.rs", 1, "words of the API server"),
    ("kubeapi/src/reply.rs", 6, "words of the API server and of webhooks"),
    ("kubenodeop/src/node/boot.rs", 3, "words of the scheduler"),
    ("kubenodeop/src/preflight.rs", 1, "words of a webhook"),
    ("sheet/src/text.rs", 1, "words of libraries in our sentences"),
    ("topics/src/drain/parts.rs", 1, "reasons of the API server may name the pod already"),
    ("topics/src/form/go_json/wire.rs", 1, "a number"),
    ("topics/src/form/time.rs", 1, "a time"),
    ("topics/src/node_status.rs", 1, "the headline of another node, which may be of another version"),
    ("zedbox/src/bundle_cmd/secrets.rs", 1, "secrets of any form in files of any form"),
    ("zedbox/src/check.rs", 3, "errors of serde"),
    ("zedbox/src/join_cmd.rs", 1, "an answer of the reference's protocol"),
    ("zedbox/src/lib.rs", 1, "an error of clap"),
    ("zedkube/src/core/drain/life.rs", 1, "what a drain left in place, which the journal keeps in words"),
];

/// Calls in `text` that search or cut a text for a person; those by a single letter read a form.
fn found(text: &str) -> Vec<String> {
    let flat: String = text.lines().map(str::trim_start).fold(String::new(), |all, line| {
        let end = if line.starts_with('.') { "" } else { "\n" };
        all + end + line
    });
    let mut all = Vec::new();
    for call in CALLS.split_whitespace() {
        let call = format!(".{call}(");
        for (at, _) in flat.match_indices(&call) {
            let is_name = |it: char| it.is_alphanumeric() || "_()".contains(it);
            let receiver = flat[..at].rsplit(|it| !is_name(it)).next().unwrap();
            let argument = &flat[at + call.len()..];
            let by_letter = argument.starts_with(['\'', '|', '[']) || argument.starts_with("char::");
            if TEXTS.split_whitespace().any(|it| it == receiver) && !by_letter {
                all.push(format!("{receiver}{call}{}", argument.lines().next().unwrap()));
            }
        }
    }
    all
}

#[test]
fn h3_nothing_is_decided_by_a_text_for_a_person() {
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let is_product = path.starts_with("crates") && path.components().any(|it| it.as_os_str() == "src");
        let path = path.strip_prefix("crates").unwrap_or(&path).display().to_string();
        if is_product
            && !is_of_tests(path.as_ref())
            && !["kubesim", "xtask"].iter().any(|it| path.starts_with(it))
        {
            let found = found(product(&text));
            let allowed = ALLOWED.iter().find(|it| it.0 == path).map_or(0, |it| it.1);
            if found.len() != allowed {
                wrong.insert(path, found);
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "make it a value in the type where it is made, or say why not here: {wrong:#?}"
    );
}

#[test]
fn a_call_is_found_by_the_name_of_the_text_and_a_letter_is_none() {
    assert_eq!(found("if it.reason\n    .starts_with(\"forced\") {"), ["reason.starts_with(\"forced\") {"]);
    assert_eq!(found("it.sentence().contains(&name)").len(), 1);
    assert!(found("text.split(',') path.contains(\"x\") reasons.contains(&it)").is_empty());
}

/// A state that only hand-made files show may be one that no agent ever reaches.
#[test]
fn each_state_of_the_sheet_is_shown_by_running_agents_in_a_scenario() {
    let tree = sources();
    let of = |folder| tree.iter().filter(move |it| it.0.starts_with(folder)).map(|it| it.1.as_str());
    let (all, scenarios): (String, String) =
        (of("crates/topics/src/node_status.rs").collect(), of("tests/scenarios").collect());
    let states = all.lines().filter_map(|it| it.trim().strip_prefix("Self::")?.split('"').nth(1));
    assert!(states.clone().count() > 15, "{all}");
    for word in states {
        assert!(scenarios.contains(&format!("(\"{word}")), "no scenario waits for {word}");
    }
}
