//! What we show a server, as far as it has an end: a certificate, or the token of a service account.
//!
//! Pure: no clock, no I/O, no task. Sources: RFC 7519; the page "Managing Service Accounts" of Kubernetes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use crate::names::NodeName;

/// What we show the server, where it has an end.
#[derive(Debug, Clone)]
pub enum Credential {
    /// PEM.
    Certificate(Vec<u8>),
    Token(TokenLife),
}

/// A service account, `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub namespace: String,
    pub name: String,
}

/// That of the agents where nobody names another one.
impl Default for Account {
    fn default() -> Self {
        Self { namespace: "kube-system".to_owned(), name: "pillar-rs".to_owned() }
    }
}

impl std::str::FromStr for Account {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("`{text}` is no service account; use NAMESPACE/NAME");
        let (namespace, name) = text.split_once('/').ok_or_else(wrong)?;
        let is_name = |it: &str| NodeName::parse(it).is_ok();
        if !is_name(namespace) || !is_name(name) {
            return Err(wrong());
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl Account {
    /// Its user name at the API server.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// Account and times in a token of a service account, as it says itself: only the server can judge that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenLife {
    pub account: Account,
    pub starts: Timestamp,
    pub ends: Timestamp,
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    iat: i64,
    exp: i64,
}

impl TokenLife {
    /// `None` for a token of another kind, and for one without an end.
    pub fn of(token: &str) -> Option<Self> {
        let claims = URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?).ok()?;
        let Claims { sub, iat, exp } = serde_json::from_slice(&claims).ok()?;
        let account = sub.strip_prefix("system:serviceaccount:")?.replacen(':', "/", 1).parse().ok()?;
        let (starts, ends) = (Timestamp::from_second(iat).ok()?, Timestamp::from_second(exp).ok()?);
        (starts < ends).then_some(Self { account, starts, ends })
    }

    /// A third of it is left, or less.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.ends.duration_since(now) <= self.whole() / 3
    }

    pub fn whole(&self) -> SignedDuration {
        self.ends.duration_since(self.starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn seed_2_31_a_token_says_whose_it_is_and_when_it_ends_and_is_due_with_a_third_left() {
        let token = |claims: Value| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let user = Account::default().user();
        let life = TokenLife::of(&token(json!({ "sub": user, "iat": 0, "exp": 900 }))).unwrap();
        let at = |secs| Timestamp::from_second(secs).unwrap();
        assert_eq!((&life.account, life.ends), (&Account::default(), at(900)));
        assert_eq!([599, 600, 901].map(|it| life.is_due(at(it))), [false, true, true]);
        for other in [
            token(json!({ "sub": "edge", "iat": 0, "exp": 900 })),
            token(json!({ "sub": "system:serviceaccount:a/../b:c", "iat": 0, "exp": 900 })),
            token(json!({ "sub": user })),
            token(json!({ "sub": user, "iat": 900, "exp": 900 })),
            "opaque".to_owned(),
        ] {
            assert_eq!(TokenLife::of(&other), None, "{other}");
        }
    }

    #[test]
    fn an_account_has_a_namespace_and_a_name() {
        assert_eq!(Account::default().user(), "system:serviceaccount:kube-system:pillar-rs");
        for wrong in ["pillar-rs", "/", "a/", "A/b", "a/b/c", "a/b?x=1"] {
            assert!(wrong.parse::<Account>().unwrap_err().contains("NAMESPACE/NAME"), "{wrong}");
        }
    }
}
