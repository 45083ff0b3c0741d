//! Renews the token of our kubeconfig while a third of its life is left, with a token of the same account and length.
//!
//! Not here: what is asked for, and when that is due (`kubeapi::connect::account`). A token that could not be renewed
//! is a finding a month before its end (`checks::certificates`).

use std::fs::canonicalize;
use std::time::Duration;

use agent::Clock;
use kubeapi::connect::account;
use kubeapi::{ApiClient, Error};
use pubsub::{reach, store};
use tracing::{info, warn};

const LOOK: Duration = Duration::from_mins(1);

/// Never ends; needs a kubeconfig, not a given client. Dropping it loses nothing.
pub(crate) async fn run(cluster: ApiClient, clock: Clock) {
    let mut failed = None;
    loop {
        match renew(&cluster, clock).await {
            Ok(None) => failed = None,
            Ok(Some(until)) => {
                info!(until, "renewed the token of the {}", cluster.via());
                failed = None;
            }
            Err(why) if failed.as_ref() != Some(&why) => {
                warn!(
                    error = why,
                    "cannot renew the token of the {}, retrying; it ends by itself",
                    cluster.via()
                );
                failed = Some(why);
            }
            Err(_) => {}
        }
        clock.sleep_until(Some(clock.now() + LOOK)).await;
    }
}

/// Until when the new one lives; `None` when nothing was to be done.
async fn renew(cluster: &ApiClient, clock: Clock) -> Result<Option<String>, String> {
    let Some(path) = cluster.kubeconfig() else { return Ok(None) };
    let new = match account::renewed(cluster, clock.wall().to_timestamp()).await {
        Ok(Some(new)) => new,
        // Every other call says that the file cannot be used.
        Ok(None) | Err(Error::Kubeconfig { .. }) => return Ok(None),
        Err(error) => return Err(error.line()),
    };
    let until = new.expires.unwrap_or_default();
    // The file itself, where it is behind a link.
    let named = path.to_owned();
    let file = reach::look(path, move || canonicalize(named)).map_err(|it| it.to_string())?;
    let file = file.map_err(|it| it.to_string())?;
    store::replace(&file, new.text.as_bytes()).map_err(|it| step::chain(&it))?;
    Ok(Some(until))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::json;
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::thread::{JoinHandle, spawn};

    /// A token of this life, which began `age` seconds ago.
    fn token(clock: Clock, age: i64, secs: i64) -> String {
        let starts = clock.wall().to_timestamp().as_second() - age;
        let claims = json!({ "sub": "system:serviceaccount:kube-system:pillar-rs", "iat": starts, "exp": starts + secs });
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    /// A server that gives this answer to one request, which its thread returns.
    fn server(code: u16, answer: &serde_json::Value) -> (String, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let body = answer.to_string();
        let heard = spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut all = Vec::new();
            while !all.ends_with(b"}}") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                all.extend(byte);
            }
            let head =
                format!("HTTP/1.1 {code} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            String::from_utf8(all).unwrap()
        });
        (address, heard)
    }

    #[tokio::test]
    async fn seed_2_31_a_token_with_a_third_of_its_life_left_is_replaced_in_the_kubeconfig_and_nothing_else_is()
     {
        let clock = Clock::new();
        let (root, old, new) = (tempfile::tempdir().unwrap(), token(clock, 601, 900), token(clock, 0, 900));
        let granted = json!({ "status": { "token": new, "expirationTimestamp": "2027-03-14T00:00:00Z" } });
        let (address, heard) = server(201, &granted);
        // As a person writes it; our own is JSON, which is YAML too.
        let text = |token: &str| {
            format!(
                "# of site 7\ncurrent-context: c\nclusters: [{{name: k, cluster: {{server: \"{address}\"}}}}]\n\
                 contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nusers:\n- name: u\n  user:\n    token: {token}\n"
            )
        };
        let (file, link) = (root.path().join("kubeconfig"), root.path().join("link"));
        symlink(&file, &link).unwrap();
        let put = |token: &str| store::replace(&file, text(token).as_bytes()).unwrap();
        let cluster = ApiClient::from_kubeconfig(&link);
        put(&token(clock, 500, 900));
        assert_eq!(renew(&cluster, clock).await, Ok(None));
        put(&old);
        assert_eq!(renew(&cluster, clock).await, Ok(Some("2027-03-14T00:00:00Z".to_owned())));
        let heard = heard.join().unwrap();
        assert!(
            heard.starts_with("POST /api/v1/namespaces/kube-system/serviceaccounts/pillar-rs/token "),
            "{heard}"
        );
        let bearer = format!("authorization: Bearer {old}");
        for words in [&bearer, "content-type: application/json", r#""kind":"TokenRequest""#, ":900}"] {
            assert!(heard.contains(words), "{words}: {heard}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), text(&new));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(link.is_symlink());
        // The new one has its whole life, and nobody is asked.
        assert_eq!(renew(&cluster, clock).await, Ok(None));
    }

    #[tokio::test]
    async fn s2_why_a_token_cannot_be_renewed_is_said_without_it_and_the_old_one_stays() {
        let clock = Clock::new();
        let (root, old) = (tempfile::tempdir().unwrap(), token(clock, 601, 900));
        let why = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": "not yours" });
        let (address, heard) = server(403, &why);
        let file = root.path().join("kubeconfig");
        let text = json!({
            "current-context": "c", "clusters": [{ "name": "k", "cluster": { "server": address } }],
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
            "users": [{ "name": "u", "user": { "token": old } }],
        });
        store::replace(&file, text.to_string().as_bytes()).unwrap();
        let refused = renew(&ApiClient::from_kubeconfig(&file), clock).await.unwrap_err();
        assert!(heard.join().unwrap().contains(&old));
        assert!(refused.contains("not yours") && !refused.contains(&old), "{refused}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text.to_string());
    }
}
