//! Certificates that expire, from events of k3s and rke2, and from their own dates.
//!
//! Pure: no clock, no I/O, no task.

use jiff::{SignedDuration, Timestamp};
use kubeapi::connect::credential::{Account, TokenLife};
use kubeapi::names::listed;
use kubeapi::objects::text;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use step::SmallSort as _;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode as _;
use x509_cert::time::Time;

use crate::{Finding, Severity};

struct CertificateEvent {
    node: String,
    authority: bool,
    at: Option<Timestamp>,
    is_ok: bool,
    text: String,
}

impl CertificateEvent {
    fn of(event: &Value) -> Option<Self> {
        let reason = text(&event["reason"]);
        let at = [&event["lastTimestamp"], &event["eventTime"], &event["metadata"]["creationTimestamp"]];
        reason.contains("CertificateExpiration").then(|| Self {
            node: text(&event["involvedObject"]["name"]),
            authority: reason.starts_with("CACertificate"),
            at: at.into_iter().find_map(|it| it.as_str()?.parse().ok()),
            is_ok: reason.ends_with("OK"),
            text: text(&event["message"]),
        })
    }
}

/// From the newest event on each node's certificates, those of the authorities apart; code `certificates`.
pub fn events(events: &[Value]) -> Vec<Finding> {
    let mut all: Vec<CertificateEvent> = events.iter().filter_map(CertificateEvent::of).collect();
    all.order_by(|a, b| (&a.node, a.authority, b.at).cmp(&(&b.node, b.authority, a.at)));
    all.dedup_by(|older, newest| (&older.node, older.authority) == (&newest.node, newest.authority));
    let warning = |it: &CertificateEvent| {
        let next = if it.authority {
            "a certificate authority expires, which a restart does not renew: k3s certificate rotate-ca --help"
        } else {
            "on that node: check the clock with date; if it is right, systemctl restart k3s (k3s-agent, rke2-server, rke2-agent) renews them"
        };
        Finding::new("certificates", format!("certificates on node {}: {}", it.node, it.text), next)
    };
    all.iter().filter(|it| !it.is_ok).map(warning).collect()
}

/// Harvester's setting for automatic renewal of rke2's certificates; the only setting that is read.
pub const ROTATION: &str = "auto-rotate-rke2-certs";

/// That setting for a person, from a list with it; `None` where there is none. Its value overrides its
/// default.
pub fn rotation(settings: &[Value]) -> Option<String> {
    let setting = settings.first()?;
    let said = [&setting["value"], &setting["default"]].map(text);
    let said = said.into_iter().find(|it| !it.is_empty()).unwrap_or_default();
    let value: Value = serde_json::from_str(&said).unwrap_or_default();
    let words = match (value["enable"].as_bool(), value["expiringInHours"].as_u64()) {
        (Some(true), Some(hours)) => {
            format!("on, {hours} h before they end; it restarts rke2 without a turn")
        }
        (Some(true), None) => "on; it restarts rke2 without a turn".to_owned(),
        (Some(false), _) => "off".to_owned(),
        (None, _) => format!("not known ({said})"),
    };
    Some(format!("rotation by {ROTATION}: {words}"))
}

/// A certificate that ends sooner is a warning.
pub const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);
/// A certificate that ends sooner blocks.
pub const VERY_SOON: SignedDuration = SignedDuration::from_hours(24);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dated {
    /// A file or an address, for a person.
    pub place: String,
    pub dates: Dates,
    pub next: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dates {
    pub starts: Timestamp,
    pub ends: Timestamp,
}

impl Dates {
    /// Of the first certificate in `pem`; `None` when none is readable.
    pub fn of_pem(pem: &[u8]) -> Option<Self> {
        Self::of_der(&CertificateDer::pem_slice_iter(pem).find_map(Result::ok)?)
    }

    /// `None` when it is unreadable.
    pub fn of_der(der: &[u8]) -> Option<Self> {
        let certificate = CertificateInner::<Raw>::from_der(der).ok()?;
        let validity = certificate.tbs_certificate().validity();
        let at = |it: Time| Timestamp::from_second(i64::try_from(it.to_unix_duration().as_secs()).ok()?).ok();
        Some(Self { starts: at(validity.not_before)?, ends: at(validity.not_after)? })
    }
}

/// Those that end soon or have ended, the very soon ones apart, and those not yet valid; code `certificates`.
pub fn dated(all: &[Dated], now: Timestamp) -> Vec<Finding> {
    let left = |it: &Dated| it.dates.ends.duration_since(now);
    let steps = [
        (
            SignedDuration::MIN,
            VERY_SOON,
            Severity::Blocks,
            "certificates that expire within a day or have expired, by this machine's clock",
        ),
        (VERY_SOON, SOON, Severity::Warns, "certificates that expire within 7 days, by this machine's clock"),
    ];
    let of = |(from, to, severity, what)| {
        let mut some: Vec<&Dated> = all.iter().filter(|it| (from..to).contains(&left(it))).collect();
        some.order_by_key(|it| it.dates.ends);
        let first = some.first()?;
        let shown = |it: &&Dated| format!("{} ({})", it.place, until(left(it)));
        let text = format!("{what}: {}", listed(&some.iter().map(shown).collect::<Vec<_>>(), ", "));
        Some(Finding::new("certificates", text, first.next.clone()).with(severity))
    };
    let early: Vec<String> =
        all.iter().filter(|it| it.dates.starts > now).map(|it| it.place.clone()).collect();
    let what = "certificates that are not valid yet by this machine's clock, so that servers refuse them";
    let early = Finding::listing(("certificates", Severity::Warns), what, &early, |_| {
        "check the clock with date, and set it if it is behind".to_owned()
    });
    steps.into_iter().filter_map(of).chain(early).collect()
}

/// A token that ends sooner should have been renewed: less, where its whole life is shorter than half a year.
const TOKEN_SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The token of our kubeconfig, when it ends soon: the agents have tried to renew it since a third of its life was left. Code
/// `certificates`.
pub fn token(place: &str, life: &TokenLife, now: Timestamp) -> Option<Finding> {
    let (left, whole) = (life.ends.duration_since(now), life.whole());
    let severity = match left {
        it if it < VERY_SOON.min(whole / 12) => Severity::Blocks,
        it if it < TOKEN_SOON.min(whole / 6) => Severity::Warns,
        _ => return None,
    };
    let Account { namespace, name } = &life.account;
    let verb = if left.is_negative() { "has" } else { "expires" };
    let text = format!("the token of {place} {verb} {}: the agents could not renew it", until(left));
    let next = format!(
        "`journalctl -u zedbox -g token` shows why; `zedbox role --service-account {namespace}/{name} | kubectl apply -f -` lets \
         them, `zedbox kubeconfig` makes the file again"
    );
    Some(Finding::new("certificates", text, next).with(severity))
}

fn until(left: SignedDuration) -> String {
    let hours = left.as_hours();
    match hours.unsigned_abs() {
        _ if left.is_negative() => format!("expired {} h ago", hours.unsigned_abs()),
        0..48 => format!("in {hours} h"),
        _ => format!("in {} days", hours / 24),
    }
}
