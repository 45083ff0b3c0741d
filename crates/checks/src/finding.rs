//! One thing that was found.
//!
//! Not here: what was looked at. Pure: no clock, no I/O, no task.

use kubeapi::{Error, listed};
use serde::{Deserialize, Serialize};
use step::SmallSort as _;

/// What a finding does to an operation that nobody has it pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The operation does not begin.
    #[default]
    Blocks,
    /// It begins; a person should look.
    Warns,
    /// It is only said.
    Hint,
}

impl Severity {
    /// The word for it, as on disk.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Warns => "warns",
            Self::Hint => "hint",
        }
    }
}

/// Something that speaks against an operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finding {
    /// What it is about, one of a short list of words; a person passes it by this.
    pub code: String,
    /// What it does to the operation. Left out where it blocks, as before there were others.
    #[serde(default, skip_serializing_if = "is_default")]
    pub severity: Severity,
    /// What was found, a sentence.
    pub text: String,
    /// What a person can do.
    pub next: String,
    /// It is about what could not be read.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unread: bool,
}

impl Finding {
    /// A finding that blocks.
    pub fn new(code: &str, text: impl Into<String>, next: impl Into<String>) -> Self {
        let (code, severity, unread) = (code.to_owned(), Severity::Blocks, false);
        Self { code, severity, text: text.into(), next: next.into(), unread }
    }

    /// `what`: all of them, with the next step about the first; nothing without any.
    pub fn listing<T: AsRef<str>>(
        (code, severity): (&str, Severity),
        what: &str,
        all: &[T],
        next: impl FnOnce(&T) -> String,
    ) -> Vec<Self> {
        let shown: Vec<String> = all.iter().map(|it| it.as_ref().to_owned()).collect();
        let one =
            |first| Self::new(code, format!("{what}: {}", listed(&shown, ", ")), next(first)).with(severity);
        all.first().map(one).into_iter().collect()
    }

    /// A finding that blocks, about what cannot be read.
    pub fn unread(code: &str, why: &str, next: impl Into<String>) -> Self {
        Self { unread: true, ..Self::new(code, format!("cannot be checked: {why}"), next) }
    }

    /// The same with another severity.
    #[must_use]
    pub fn with(self, severity: Severity) -> Self {
        Self { severity, ..self }
    }

    /// What `code` is about could not be read.
    pub fn unreadable(code: &str, error: &Error) -> Self {
        Self::unread(code, &error.plain(), error.next_step())
    }

    /// The same as it counts for a drain where `stops` are set to stop one.
    #[must_use]
    pub fn settled(self, stops: &[String]) -> Self {
        let severity = severity(&self, stops);
        self.with(severity)
    }
}

/// An object with what is the matter with it, in their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IllObject {
    /// As `shop/web`, or `n1` without a namespace.
    name: String,
    /// As `shop/web (why)`.
    shown: String,
}

impl IllObject {
    pub fn new(name: String, why: &str) -> Self {
        Self { shown: format!("{name} ({why})"), name }
    }

    /// One of which the list says all.
    pub fn alone(name: String) -> Self {
        Self { shown: name.clone(), name }
    }
}

impl AsRef<str> for IllObject {
    fn as_ref(&self) -> &str {
        &self.shown
    }
}

/// The command that shows an object.
pub(crate) fn kubectl(verb: &str, object: &IllObject) -> String {
    match object.name.split_once('/') {
        Some((namespace, name)) => format!("kubectl -n {namespace} {verb} {name}"),
        None => format!("kubectl {verb} {}", object.name),
    }
}

/// A file of this machine that cannot be read.
pub(crate) fn unreadable(code: &str, why: &str) -> Finding {
    let next = "type it as root (sudo); if that does not help, look at the file that it names";
    Finding::unread(code, why, next).with(Severity::Warns)
}

fn is_default<T: Default + PartialEq>(it: &T) -> bool {
    *it == T::default()
}

/// All of `found`, none worse than a warning.
pub(crate) fn warnings(found: Vec<Finding>) -> Vec<Finding> {
    let lower = |it: Finding| {
        let severity = it.severity.max(Severity::Warns);
        it.with(severity)
    };
    found.into_iter().map(lower).collect()
}

/// All of `found` that is more than said.
pub(crate) fn without_hints(mut found: Vec<Finding>) -> Vec<Finding> {
    found.retain(|it| it.severity != Severity::Hint);
    found
}

/// Codes whose warnings are about less than what blocks.
const WITH_STEPS: [&str; 4] = ["backups", "certificates", "clock", "token"];

/// What `it` does to a drain where these codes are set to stop one.
fn severity(it: &Finding, stops: &[String]) -> Severity {
    let set = stops.contains(&it.code);
    match it.severity {
        Severity::Hint => Severity::Hint,
        Severity::Blocks if set => Severity::Blocks,
        Severity::Warns if set && !it.unread && !WITH_STEPS.contains(&it.code.as_str()) => Severity::Blocks,
        Severity::Blocks | Severity::Warns => Severity::Warns,
    }
}

/// `found` as it counts for a drain where `stops` are set to stop one, the most severe first. What could not be read stops
/// nothing.
pub fn settled(found: Vec<Finding>, stops: &[String]) -> Vec<Finding> {
    let mut found: Vec<Finding> = found.into_iter().map(|it| it.settled(stops)).collect();
    found.order_by_key(|it| it.severity);
    found.dedup();
    found
}

/// Those that block, and whose code is not among `passed`.
pub fn blocking<'a>(findings: &'a [Finding], passed: &[String]) -> Vec<&'a Finding> {
    let blocks = |it: &&Finding| it.severity == Severity::Blocks && !passed.contains(&it.code);
    findings.iter().filter(blocks).collect()
}
