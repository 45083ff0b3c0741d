//! What may not leave this node: members with secrets, by name, and the secrets themselves, for which the
//! whole archive is searched.

use std::path::Path;

use pubsub::store;
use serde_json::Value;

/// Parts of such members' names.
const NAMES: [&str; 8] =
    ["token", "password", "passwd", "secret", "cipher", "credential", "privatekey", "-key-data"];
/// A setting of k3s with passwords.
const OVERRIDE: &str = "k3s.config.override";
const LEFT_OUT: &str = "(left out)";
/// Shorter texts may be words.
const SHORTEST: usize = 8;
/// Files with secrets of this node, below the root, beside the kubeconfig.
const PLACES: [&str; 6] = [
    "run/.kube/k3s/k3s.yaml",
    "persist/config/edge-dev-config.json",
    "persist/certs/ecdh.key.pem",
    "run/zedkube/EdgeNodeClusterStatus/global.json",
    "run/zedagent/EdgeNodeClusterConfig/global.json",
    "var/lib/rancher/k3s/server/token",
];
const PLACE_BYTES: u64 = 4 << 20;

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    name == OVERRIDE || NAMES.iter().any(|it| name.contains(it))
}

/// Whether a member of this name, within a secret one, is secret: beside the cipher there are hashes,
/// identities and times, which are known elsewhere.
fn is_hidden(name: &str) -> bool {
    let name = name.to_lowercase();
    name.ends_with("data") || (is_secret(&name) && !["hash", "id"].iter().any(|it| name.ends_with(it)))
}

/// The value without secret members, at any depth.
pub(super) fn without(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let shown = members.into_iter().map(|(name, value)| {
                let empty = matches!(&value, Value::Null | Value::Bool(_) | Value::Number(_))
                    || value.as_str().is_some_and(str::is_empty);
                let value = if is_secret(&name) && !empty { LEFT_OUT.into() } else { without(value) };
                (name, value)
            });
            Value::Object(shown.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[derive(Default)]
pub(super) struct Secrets(Vec<String>);

/// Reads them; unreadable ones cannot be in the archive either.
pub(super) fn of_node(root: &Path, kubeconfig: Option<&Path>) -> Secrets {
    let mut secrets = Secrets::default();
    let places = PLACES.into_iter().map(|it| root.join(it)).chain(kubeconfig.map(Path::to_owned));
    for bytes in places.filter_map(|it| store::read_start(&it, PLACE_BYTES).ok().flatten()) {
        secrets.note(&String::from_utf8_lossy(&bytes));
    }
    secrets
}

impl Secrets {
    fn note(&mut self, text: &str) {
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            return self.note_members(&value);
        }
        let mut in_key = false;
        for line in text.lines() {
            // A key in PEM, or a line `token: …` of YAML; a file that is only a token.
            in_key = (in_key || line.contains("PRIVATE KEY")) && !line.starts_with("-----END");
            let (name, value) = line.split_once(':').unwrap_or(("", line));
            if in_key && !line.starts_with("-----") {
                self.push(line);
            } else if is_secret(name) || !text.trim().contains('\n') {
                self.push(value.trim().trim_matches(['"', '\'', '}', ' ']));
            }
        }
        for part in text.split(['{', ',', '}']) {
            if let Some((name, value)) = part.split_once(':').filter(|it| is_secret(it.0)) {
                let _ = name;
                self.push(value.lines().next().unwrap_or_default().trim().trim_matches(['"', '\'']));
            }
        }
    }

    fn note_members(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                if members.get("key").and_then(Value::as_str) == Some(OVERRIDE) {
                    self.push(members.get("value").and_then(Value::as_str).unwrap_or_default());
                }
                for (name, it) in members {
                    self.push(it.as_str().filter(|_| is_hidden(name)).unwrap_or_default());
                    self.note_members(it);
                }
            }
            Value::Array(items) => items.iter().for_each(|it| self.note_members(it)),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn push(&mut self, text: &str) {
        if text.len() >= SHORTEST {
            self.0.push(text.to_owned());
        }
    }

    pub(super) fn are_in(&self, bytes: &[u8]) -> bool {
        let text = String::from_utf8_lossy(bytes);
        self.0.iter().any(|it| text.contains(it.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_that_hold_secrets_are_left_out_at_any_depth() {
        let value = json!({
            "Name": "n1", "EncryptedClusterToken": "abc", "List": [{ "Password": { "x": 1 }, "Key": "k" }],
            "TokenHash": "", "HasSecret": true, "k3s.config.override": { "StrValue": "p" },
        });
        let expected = json!({
            "Name": "n1", "EncryptedClusterToken": LEFT_OUT, "List": [{ "Password": LEFT_OUT, "Key": "k" }],
            "TokenHash": "", "HasSecret": true, "k3s.config.override": LEFT_OUT,
        });
        assert_eq!(without(value), expected);
    }

    #[test]
    fn secrets_are_found_in_every_form_in_which_a_node_keeps_them() {
        let rows = [
            ("users:\n- user:\n    token: planted-secret-1\n", "planted-secret-1"),
            ("users: [{name: u, user: {token: planted-secret-2}}]", "planted-secret-2"),
            ("users:\n- user:\n    client-key-data: \"cGxhbnRlZA==\"\n", "cGxhbnRlZA=="),
            ("K10planted::server:secret-3\n", "K10planted::server:secret-3"),
            (
                "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEplanted\n-----END EC PRIVATE KEY-----\n",
                "MHcCAQEEplanted",
            ),
            (
                r#"{"cluster":{"encryptedClusterToken":{"cipherData":"planted-secret-4"}}}"#,
                "planted-secret-4",
            ),
            (
                r#"{"CipherToken":{"CipherData":"planted-secret-5","ErrorTime":"edge-node-1","DeviceCertHash":"is drained"}}"#,
                "planted-secret-5",
            ),
        ];
        for (text, secret) in rows {
            let mut secrets = Secrets::default();
            secrets.note(text);
            assert!(
                secrets.are_in(format!("a line with {secret} in it").as_bytes()),
                "{text}: {:?}",
                secrets.0
            );
            assert!(!secrets.are_in(b"edge-node-1 is drained, server https://10.0.0.1:6443"), "{text}");
        }
    }
}
