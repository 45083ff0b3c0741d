//! Tokens of service accounts: each says for whom it is and until when. Nobody checks one.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::path::ResourcePath;
use crate::request::{SimRequest, SimResponse};
use crate::store::stamp;
use crate::{SimShared, answers};

const ISSUER: &str = "https://kubernetes.default.svc";

/// A TokenRequest of account `name`.
pub(crate) fn answer(
    shared: &Arc<SimShared>,
    target: &ResourcePath,
    name: &str,
    asked: &SimRequest,
) -> Result<SimResponse, Failure> {
    let (held, object) = (shared.store().held(target, name)?, asked.json()?);
    let secs = object["spec"]["expirationSeconds"].as_i64().unwrap_or(60 * 60);
    for (row, is_met) in [("token/short", secs < 10 * 60), ("token/long", secs > 1 << 32)] {
        if is_met {
            answers::check(row, 0, &[("secs", &secs.to_string())])?;
        }
    }
    let (namespace, uid, now) =
        (&target.namespace, &held["metadata"]["uid"], jiff::Timestamp::now().as_second());
    let account = json!({ "namespace": namespace, "serviceaccount": { "name": name, "uid": uid } });
    let claims = json!({
        "aud": [ISSUER], "exp": now + secs, "iat": now, "iss": ISSUER, "jti": uuid::Uuid::new_v4().to_string(),
        "kubernetes.io": account, "nbf": now, "sub": format!("system:serviceaccount:{namespace}:{name}"),
    });
    let part = |it: &Value| URL_SAFE_NO_PAD.encode(it.to_string());
    let token = format!("{}.{}.kubesim", part(&json!({ "alg": "RS256", "kid": "kubesim" })), part(&claims));
    Ok(SimResponse::Json(
        201,
        json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": { "name": name, "namespace": namespace, "uid": uid, "creationTimestamp": stamp(0) },
            "spec": { "audiences": [ISSUER], "expirationSeconds": secs, "boundObjectRef": null },
            "status": { "token": token, "expirationTimestamp": stamp(secs.unsigned_abs()) },
        }),
    ))
}
