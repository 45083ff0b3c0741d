//! What can fail in a call to the cluster, one variant per step.
//!
//! Not here: retries; the caller reads [`Error::reply`] and decides. Texts can follow "failed to".

use std::error::Error as StdError;
use std::io;
use std::iter;
use std::path::PathBuf;
use std::time::Duration;

use http_body_util::combinators::MapErr;
use kube::client::{AuthError, Body};
use tokio_rustls::rustls::{self, CertificateError, OtherError};
use tower::BoxError;

use crate::names::BadName;
use crate::reply::{self, ApiAnswer, Reach, RefusedBy, Reply, ReplyClass};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("use the kubeconfig {}", path.display())]
    Kubeconfig { path: PathBuf, source: Box<dyn StdError + Send + Sync> },
    /// An answer that is not 2xx.
    #[error("{what}: the server answered {}", answer.line())]
    Refused { what: String, answer: Box<ApiAnswer> },
    /// There was no whole answer within the limit.
    #[error("{what}: no answer within {} s", limit.as_secs())]
    Silent { what: String, limit: Duration },
    /// No connection, a cut one, or TLS trouble.
    #[error("{what} with {via}")]
    Connection { what: String, via: String, source: Box<dyn StdError + Send + Sync> },
    /// A 2xx answer that is not the expected object.
    #[error("{what}: the answer is not what the API promises")]
    Garbled { what: String, source: serde_json::Error },
    #[error("{what}: the request cannot be built")]
    Unaskable { what: String, source: Box<dyn StdError + Send + Sync> },
    /// The Node object of our name belongs to another device.
    #[error("find our own node: node {node} has label node-uuid={label}, this device is {device}")]
    WrongNode { node: String, label: String, device: String },
    /// The Node object of our name was last reported by another machine.
    #[error(
        "find our own node: node {node} was last reported by another machine ({there}) than this one ({here})"
    )]
    OtherMachine { node: String, there: String, here: String },
    /// Our device's Node object has another name.
    #[error(
        "find our own node: node {node} has label node-uuid={device}, which is this device's, and node {name} has not"
    )]
    OtherName { node: String, name: String, device: String },
    #[error(transparent)]
    Name(#[from] BadName),
}

/// `None` when there is no such object, or no such kind.
pub fn found<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// `error` and its sources of this type. A source inside of an I/O error is not found so.
fn sources<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a T> {
    let all = iter::successors(Some(error), |error| {
        let error: &'a (dyn StdError + 'static) = *error;
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|it| it as &(dyn StdError + 'static)).or_else(|| error.source())
    });
    all.filter_map(|it| it.downcast_ref())
}

/// Whether `error` is about a certificate, the server's or ours.
fn is_of_certificate(error: &rustls::Error) -> bool {
    use rustls::AlertDescription as Alert;
    matches!(
        error,
        rustls::Error::InvalidCertificate(_)
            | rustls::Error::NoCertificatesPresented
            | rustls::Error::AlertReceived(
                Alert::BadCertificate
                    | Alert::UnsupportedCertificate
                    | Alert::CertificateRevoked
                    | Alert::CertificateExpired
                    | Alert::CertificateUnknown
                    | Alert::CertificateRequired
                    | Alert::UnknownCA
            )
    )
}

/// Whether the server showed a certificate that may sign others.
fn is_of_authority(error: &CertificateError) -> bool {
    let CertificateError::Other(OtherError(inner)) = error else { return false };
    matches!(inner.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

impl Error {
    /// Its meaning for the call. Transport errors are transient: nothing was decided.
    pub fn reply(&self) -> Reply {
        if let Self::Refused { answer, .. } = self {
            return reply::classify(answer);
        }
        let (text, by) = (self.line(), RefusedBy::Other);
        if self.is_unasked() {
            Reply::Permanent { text, by }
        } else {
            Reply::Transient { text, retry_after: None }
        }
    }

    /// Whether the call is not made, or its object not used, for a reason of ours; in every other one there was no answer of
    /// use.
    fn is_unasked(&self) -> bool {
        self.is_of_another() || matches!(self, Self::Unaskable { .. } | Self::Name(_))
    }

    /// Whether a Node object is not this device's or machine's, so that nothing is written to it.
    pub fn is_of_another(&self) -> bool {
        matches!(self, Self::WrongNode { .. } | Self::OtherMachine { .. } | Self::OtherName { .. })
    }

    /// Whether the API is there (D-K2). No usable kubeconfig counts as not there.
    pub fn reach(&self) -> Reach {
        if let Self::Refused { answer, .. } = self {
            return reply::reach(answer);
        }
        if self.is_unasked() { Reach::Reachable } else { Reach::Unreachable }
    }

    /// Whether there was no answer at all: no connection, or no answer in time. A server that refuses,
    /// throttles or shows a certificate has answered.
    pub fn is_silence(&self) -> bool {
        // A stream that ends within TLS is an I/O error of that kind.
        let ended = || sources(self).any(|it: &io::Error| it.kind() == io::ErrorKind::UnexpectedEof);
        matches!(self, Self::Silent { .. })
            || matches!(self, Self::Connection { .. }) && self.tls().is_none() && !ended()
    }

    fn tls(&self) -> Option<&rustls::Error> {
        sources(self).next()
    }

    /// Whether the machine answered and refused the connection.
    pub fn is_connection_refused(&self) -> bool {
        sources(self).any(|it: &io::Error| it.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether the same call may succeed later without a person: conflicts, load, transport.
    pub fn is_retryable(&self) -> bool {
        match self.reply().class() {
            ReplyClass::Transient | ReplyClass::Throttle | ReplyClass::Budget | ReplyClass::Denied => true,
            ReplyClass::Done | ReplyClass::Permanent => false,
        }
    }

    /// Whether there is no such object, or no such kind (404).
    pub fn is_not_found(&self) -> bool {
        matches!(self.reply(), Reply::NotFound { .. })
    }

    /// Whether the server does not know the kind, and not only this object.
    pub fn is_unknown_kind(&self) -> bool {
        matches!(self, Self::Refused { answer, .. } if answer.is_unknown_kind())
    }

    /// Whether another client wrote the object first (409).
    pub fn is_conflict(&self) -> bool {
        matches!(self.reply(), Reply::Conflict { .. })
    }

    /// Whether the API refuses us (401, 403, an admission), or refuses for good in another way, which only a
    /// change by a person ends.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.reply().class(), ReplyClass::Permanent | ReplyClass::Denied)
    }

    pub fn next_step(&self) -> String {
        match self {
            Self::Kubeconfig { path, .. } => format!(
                "check that {} exists, is readable and is a kubeconfig with a current context{}; where the cluster's is \
                 elsewhere, name it: `kubeconfig` in /etc/zedbox/zedbox.toml",
                path.display(),
                if path.ends_with("k3s.yaml") { "; k3s writes it at start" } else { "" }
            ),
            Self::Connection { via, .. } => match self.tls() {
                Some(rustls::Error::InvalidCertificate(error)) if is_of_authority(error) => format!(
                    "give the API server a certificate that is not an authority itself (CA:FALSE), signed by the \
                     certificate-authority of {via}: one that may sign others is not believed as a server's"
                ),
                Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => format!(
                    "renew {via}: its certificate-authority has to be the authority that signed the server's certificate, \
                     and not that certificate itself"
                ),
                Some(error) if is_of_certificate(error) => {
                    format!("compare certificates and dates in {via} with the server's, then renew the file")
                }
                Some(_) | None => format!("check that the API server of {via} runs and can be reached"),
            },
            Self::Silent { .. } => "check the load of the API server and the network to it".to_owned(),
            Self::Refused { answer, .. } if answer.is_early_refusal() => {
                "wait: the API server is only just back".to_owned()
            }
            Self::Refused { .. } if matches!(self.reply(), Reply::Unanswered { .. }) => {
                "see why what the answer names does not answer the API server: `kubectl get \
                 validatingwebhookconfigurations,mutatingwebhookconfigurations,apiservices`"
                    .to_owned()
            }
            Self::Refused { answer, .. } => match (answer.denied_by(), answer.code) {
                (Some(by), _) => by.next_step().to_owned(),
                (None, 401) => format!(
                    "renew the credentials in {}: they have expired, or the server does not know them; it is read \
                     again when it changes",
                    if answer.via.is_empty() { "the kubeconfig" } else { &answer.via }
                ),
                (None, 403) if answer.is_of_ending_namespace() => {
                    "wait for the end of the namespace: `kubectl get namespaces`".to_owned()
                }
                (None, 403) if answer.is_of_budget() => {
                    "wait until the controller manager has counted for the budget: `kubectl get pdb -A`".to_owned()
                }
                (None, 403) => {
                    "give the user of the kubeconfig the roles, as an administrator: `zedbox role | kubectl apply -f -`"
                        .to_owned()
                }
                (None, 404) => "check the name with kubectl get nodes".to_owned(),
                (None, 409) => "wait: somebody else wrote the object first, and it is read and written again".to_owned(),
                (None, 500..=599) if answer.message.contains("database space exceeded") => {
                    "etcd has used up the space that it may have: on a server, compact it (`etcdctl compact REVISION`), \
                     defragment each member (`etcdctl defrag`), then `etcdctl alarm disarm`; it continues by itself"
                        .to_owned()
                }
                (None, 429) => "wait: the API server is throttling (429)".to_owned(),
                (None, 500..=599) => "wait, or look at the log of the API server".to_owned(),
                (None, _) => "look at the log of the API server".to_owned(),
            },
            Self::Garbled { .. } => {
                "check that the address in the kubeconfig is that of a Kubernetes API".to_owned()
            }
            Self::Unaskable { .. } | Self::Name(_) => "correct the name of the node".to_owned(),
            Self::OtherName { node, name, .. } => format!(
                "have k3s call this node {name} (node-name in its config), or the device {node}; delete the Node object that is left"
            ),
            Self::OtherMachine { node, .. } => format!(
                "let one machine alone report node {node}: give the other one a node name of its own, or start the kubelet here"
            ),
            Self::WrongNode { .. } => {
                "give each device its own node name, or correct the label node-uuid of the node".to_owned()
            }
        }
    }

    /// The error with its sources in one line, without repeats.
    pub fn line(&self) -> String {
        step::chain(self)
    }

    /// The same with the next step.
    #[must_use]
    pub fn advice(&self) -> String {
        format!("{} ({})", self.line(), self.next_step())
    }

    /// For a person: of a failed connection only the innermost cause, not each layer of the library.
    #[must_use]
    pub fn plain(&self) -> String {
        let Self::Connection { source, .. } = self else { return self.line() };
        let mut cause: &(dyn StdError + 'static) = source.as_ref();
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        format!("{self}: {cause}")
    }
}

/// A body whose errors are their causes: to print one of the library would bring its YAML reader.
pub type CausedBody = MapErr<Body, fn(kube::Error) -> BoxError>;

/// The cause inside of a client library's error. The library's own texts add nothing, and cover kubeconfigs,
/// discovery and YAML, which cannot occur here.
pub(crate) fn cause(error: kube::Error) -> BoxError {
    #[expect(clippy::wildcard_enum_match_arm, reason = "errors of parts of the library that are not called")]
    match error {
        kube::Error::Service(inner) => inner,
        kube::Error::HyperError(inner) => inner.into(),
        kube::Error::ReadEvents(inner) => inner.into(),
        kube::Error::HttpError(inner) => inner.into(),
        kube::Error::Auth(inner) => {
            let why = match inner {
                AuthError::ReadTokenFile(source, path) => format!(": {}: {source}", path.display()),
                AuthError::AuthExecStart(source) => format!(": {source}"),
                AuthError::InvalidBasicAuth(source) | AuthError::InvalidBearerToken(source) => {
                    format!(": {source}")
                }
                // One holds the output of a login program, which may be a token.
                _ => String::new(),
            };
            format!("the client library could not use the credentials{why}").into()
        }
        _ => "the client library failed before the request was sent".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_tls(error: rustls::Error) -> Box<dyn StdError + Send + Sync> {
        io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error)).into()
    }

    #[test]
    fn of_a_connection_that_failed_a_person_reads_the_innermost_cause() {
        #[derive(Debug, thiserror::Error)]
        #[error("client error (Connect)")]
        struct Outer(#[source] io::Error);
        let refused = || io::Error::from_raw_os_error(111);
        let (what, via) = ("reach the API".to_owned(), "kubeconfig k".to_owned());
        let cut = Error::Connection { what, via, source: Outer(refused()).into() };
        assert_eq!(cut.plain(), "reach the API with kubeconfig k: Connection refused (os error 111)");
        assert!(cut.line().contains("client error (Connect)"));
        // A file named in between stays.
        let other = Error::Kubeconfig { path: "k".into(), source: Outer(refused()).into() };
        assert_eq!(other.plain(), other.line());
    }

    #[test]
    fn of_credentials_that_cannot_be_used_the_reason_is_named_and_nothing_that_a_program_printed() {
        let missing = || io::Error::from_raw_os_error(2);
        let read = AuthError::ReadTokenFile(missing(), "/run/token".into());
        let line = cause(kube::Error::Auth(read)).to_string();
        assert!(
            line.ends_with("the credentials: /run/token: No such file or directory (os error 2)"),
            "{line}"
        );
        let started = cause(kube::Error::Auth(AuthError::AuthExecStart(missing()))).to_string();
        assert!(started.ends_with("the credentials: No such file or directory (os error 2)"), "{started}");
        let printed = cause(kube::Error::Auth(AuthError::AuthExec("a token".to_owned()))).to_string();
        assert!(printed.ends_with("the credentials"), "{printed}");
    }

    #[test]
    fn of_a_certificate_that_kubectl_takes_and_we_do_not_the_next_step_says_what_to_give_the_server() {
        let step = |source: Box<dyn StdError + Send + Sync>| {
            let (what, via) = ("reach the API".to_owned(), "kubeconfig k".to_owned());
            Error::Connection { what, via, source }.next_step()
        };
        let of = |fault| step(in_tls(rustls::Error::InvalidCertificate(fault)));
        let other = |error| of(CertificateError::Other(OtherError(std::sync::Arc::new(error))));
        assert!(other(webpki::Error::CaUsedAsEndEntity).contains("(CA:FALSE), signed by"));
        assert!(
            of(CertificateError::UnknownIssuer).starts_with("renew kubeconfig k: its certificate-authority")
        );
        let compare = "compare certificates and dates in kubeconfig k";
        assert!(of(CertificateError::Expired).starts_with(compare));
        assert!(other(webpki::Error::UnsupportedCertVersion).starts_with(compare));
        assert!(
            step("no certificate: UnknownIssuer, CaUsedAsEndEntity".into())
                .starts_with("check that the API server")
        );
    }

    #[test]
    fn only_a_server_that_does_not_answer_at_all_is_silent() {
        let cut = |text: &str| Error::Connection {
            what: "reach the API".to_owned(),
            via: "kubeconfig k".to_owned(),
            source: text.to_owned().into(),
        };
        let refused = |code| Error::Refused {
            what: "reach the API".to_owned(),
            answer: Box::new(ApiAnswer { code, ..ApiAnswer::default() }),
        };
        for silent in [
            cut("tcp connect error: Connection refused (os error 111)"),
            cut("tcp connect error: No route to host (os error 113)"),
            cut("dns error: failed to lookup address information"),
            cut("connection closed before message completed"),
            cut("a certificate of the tls handshake, in words alone"),
            Error::Silent { what: "reach the API".to_owned(), limit: Duration::from_secs(15) },
        ] {
            assert!(silent.is_silence(), "{silent:?}");
        }
        let tls = |source| {
            let (what, via) = ("reach the API".to_owned(), "kubeconfig k".to_owned());
            Error::Connection { what, via, source }
        };
        for answered in [
            tls(in_tls(rustls::Error::InvalidCertificate(CertificateError::Expired))),
            tls(in_tls(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))),
            tls(in_tls(rustls::Error::AlertReceived(rustls::AlertDescription::ProtocolVersion))),
            tls(in_tls(rustls::Error::DecryptError)),
            tls(io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof").into()),
            refused(401),
            refused(403),
            refused(429),
            refused(500),
            refused(503),
        ] {
            assert!(!answered.is_silence(), "{answered:?}");
        }
    }
}
