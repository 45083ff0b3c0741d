//! `zedbox role`: the agents' roles and bindings, for `kubectl apply -f -`.
//!
//! From the manifests of docs/reference (`manifests`), with another user's name and without chosen parts.
//! Makes no call to a cluster.

use kubeapi::names::APP_NAMESPACE;
use serde_json::json;

use crate::Exit;
use crate::args::RoleCommand;
use crate::drain_cmd::voice::Voice;
use crate::manifests::{OBJECTS, SUBJECT, SURGE, TOKEN};

pub(crate) fn run(command: &RoleCommand) -> anyhow::Result<Exit> {
    Voice::print(&manifests(command)).map(|_| Exit::Done)
}

pub(crate) fn manifests(command: &RoleCommand) -> String {
    let account = &command.service_account;
    let mut objects = Vec::new();
    if command.create_namespace {
        objects.push(named("Namespace", &json!({ "name": APP_NAMESPACE })));
    }
    if command.user.is_none() {
        objects
            .push(named("ServiceAccount", &json!({ "name": account.name, "namespace": account.namespace })));
    }
    let user = json!(command.user.clone().unwrap_or_else(|| account.user()));
    let subject = SUBJECT.replace("pillar-rs", &user.to_string());
    let is_wanted = |part: &str| {
        let is_of = |names: &[String]| names.iter().any(|it| it == part);
        !is_of(&command.without)
            && (part != SURGE || is_of(&command.with))
            && (part != TOKEN || command.user.is_none())
    };
    let of_account = |part: &str, text: &str| {
        if part != TOKEN {
            return text.to_owned();
        }
        text.replace("namespace: kube-system", &format!("namespace: {}", account.namespace))
            .replace("[pillar-rs]", &format!("[{}]", account.name))
    };
    for (part, object) in OBJECTS.iter().filter(|(part, _)| is_wanted(part)) {
        // A file's comment before its bindings is for its editors.
        let begins = if object.contains(SUBJECT) { object.find("apiVersion:") } else { None };
        let object = object.get(begins.unwrap_or(0)..).unwrap_or(object);
        objects.push(of_account(part, object).replace(SUBJECT, &subject));
    }
    objects.join("---\n")
}

/// Not as one object in braces: `kubectl` takes a text that begins with a brace for JSON to its end.
fn named(kind: &str, metadata: &serde_json::Value) -> String {
    format!("apiVersion: v1\nkind: {kind}\nmetadata: {metadata}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use std::collections::BTreeSet;

    use crate::args::{Args, Command};
    use crate::manifests::MANIFESTS;

    fn printed(words: &str) -> Vec<serde_json::Value> {
        let line = format!("zedbox role{words}");
        let Command::Role(command) = Args::try_parse_from(line.split(' ')).unwrap().command else {
            panic!("not role")
        };
        let text = manifests(&command);
        assert!(!text.contains("in place of") && !text.starts_with('{'), "{text}");
        text.split("---\n").map(|it| serde_saphyr::from_str(it).unwrap()).collect()
    }

    fn names(objects: &[serde_json::Value]) -> BTreeSet<String> {
        let name = |it: &serde_json::Value| {
            format!("{} {}", it["kind"].as_str().unwrap(), it["metadata"]["name"].as_str().unwrap())
        };
        objects.iter().map(name).collect()
    }

    #[test]
    fn x4_every_object_of_the_reference_is_printed_for_the_user_and_the_strong_one_when_asked_for() {
        let all = printed(" --user CN=edge:1 --with surge");
        let files = MANIFESTS.iter().flat_map(|it| it.split("\n---\n"));
        let files = files.filter(|it| !it.contains("  name: pillar-rs-token\n"));
        let files: Vec<serde_json::Value> = files.map(|it| serde_saphyr::from_str(it).unwrap()).collect();
        assert_eq!(all.len(), files.len());
        for (ours, file) in all.iter().zip(&files) {
            let mut expected = file.clone();
            if let Some(name) = expected.pointer_mut("/subjects/0/name") {
                *name = "CN=edge:1".into();
            }
            assert_eq!(*ours, expected);
        }
        let without: Vec<_> = names(&all).difference(&names(&printed(" --user x"))).cloned().collect();
        assert_eq!(without, ["ClusterRole pillar-rs-surge", "ClusterRoleBinding pillar-rs-surge"]);
    }

    #[test]
    fn x4_parts_are_left_out_with_their_bindings_and_unknown_ones_refused_by_name() {
        let fewer = names(&printed(" --user x --without disk-reserve --without apps"));
        let left: Vec<String> = names(&printed(" --user x")).difference(&fewer).cloned().collect();
        let both = ["disk-reserve", "apps"];
        assert_eq!(left.len(), 4, "{left:?}");
        assert!(left.iter().all(|it| both.iter().any(|part| it.ends_with(&format!(" pillar-rs-{part}")))));
        let refused = Args::try_parse_from(["zedbox", "role", "--without", "aps"]).unwrap_err().to_string();
        assert!(refused.contains("apps") && refused.contains("disk-reserve"), "{refused}");
    }

    #[test]
    fn s1_an_account_may_renew_its_own_token_and_no_other() {
        let all = printed(" --service-account edge/agents");
        let of = |kind: &str| {
            all.iter().find(|it| it["kind"] == kind && it["metadata"]["name"] == "pillar-rs-token").unwrap()
        };
        let rule = json!([{
            "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["agents"], "verbs": ["create"],
        }]);
        assert_eq!(of("Role")["rules"], rule);
        for it in [of("Role"), of("RoleBinding")] {
            assert_eq!(it["metadata"]["namespace"], "edge");
        }
        assert_eq!(of("RoleBinding")["subjects"][0]["name"], "system:serviceaccount:edge:agents");
        assert_eq!(of("RoleBinding")["roleRef"]["name"], "pillar-rs-token");
        assert!(!names(&printed(" --user x")).contains("Role pillar-rs-token"));
    }

    #[test]
    fn x4_a_service_account_and_the_namespace_come_first() {
        let all = printed(" --create-namespace");
        assert_eq!(all[0]["metadata"]["name"], APP_NAMESPACE);
        assert_eq!(all[1]["kind"], "ServiceAccount");
        assert_eq!(all[1]["metadata"], json!({ "name": "pillar-rs", "namespace": "kube-system" }));
        let user = "system:serviceaccount:kube-system:pillar-rs";
        let subjects: Vec<_> = all.iter().filter_map(|it| it.pointer("/subjects/0/name")).collect();
        assert!(subjects.len() > 20 && subjects.iter().all(|it| *it == user), "{subjects:?}");
    }
}
