//! What an answer of the API server means for the call that got it.
//!
//! Not here: sending and waiting. Sources: the Kubernetes page "API-initiated Eviction" (429 for a budget, 500 for two
//! budgets); the API conventions on `Status`, its causes and `Retry-After`. Pure: no clock, no I/O, no task.

use std::time::Duration;

/// What an answer about an unknown kind says: as plain text, and from 1.38 on in a `Status`.
const UNKNOWN_KIND: [&str; 2] = ["404 page not found", "the server could not find the requested resource"];
/// Causes for which a budget refuses an eviction: with 429, and from 1.37 on with 403.
const OF_BUDGET: [&str; 3] = [
    "DisruptionBudget",
    "DisruptionBudgetNegativeAllowedDisruptions",
    "DisruptionBudgetTooManyDisruptedPods",
];

/// An answer without the library's types.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiAnswer {
    pub code: u16,
    /// `Status.reason`, or empty.
    pub reason: String,
    /// `Status.message`, or the start of a body that is no `Status`.
    pub message: String,
    /// `Status.details.kind`: what the server says it of.
    pub kind: String,
    /// `Status.details.causes` as (reason, message).
    pub causes: Vec<(String, String)>,
    /// The `Retry-After` header, else `Status.details.retryAfterSeconds`.
    pub retry_after: Option<Duration>,
    /// Calls found no server a moment ago: it may not have read its roles yet.
    pub just_back: bool,
    /// Origin of address and credentials, or empty.
    pub via: String,
}

impl ApiAnswer {
    /// A server's answer for an unknown kind.
    pub(crate) fn unknown_kind() -> Self {
        Self { code: 404, message: UNKNOWN_KIND[0].to_owned(), ..Self::default() }
    }

    /// Whether it is that answer; for a missing object a server says more.
    pub(crate) fn is_unknown_kind(&self) -> bool {
        self.code == 404 && UNKNOWN_KIND.contains(&self.message.as_str())
    }

    /// Whether a disruption budget refuses: for now (429), or as its own state is not up to date (403).
    pub(crate) fn is_of_budget(&self) -> bool {
        let cause = self.causes.iter().any(|(reason, _)| OF_BUDGET.contains(&reason.as_str()));
        cause || self.code == 403 && self.kind == "poddisruptionbudget"
    }

    /// A refusal that may pass in a moment.
    pub fn is_early_refusal(&self) -> bool {
        self.just_back && matches!(self.code, 401 | 403) && self.denied_by().is_none()
    }

    /// Code, reason, message and, for a budget, the cause with its numbers.
    pub fn line(&self) -> String {
        let mut line = self.code.to_string();
        if !self.reason.is_empty() {
            line.push(' ');
            line.push_str(&self.reason);
        }
        let causes = self.causes.iter().map(|(_, message)| message);
        for part in std::iter::once(&self.message).chain(causes).map(|part| part.trim()) {
            if !part.is_empty() && !line.contains(part) {
                line.push_str(": ");
                line.push_str(part);
            }
        }
        if self.is_early_refusal() {
            line.push_str(" (the server is only just back and may not know its roles yet)");
        } else if self.code == 401 && !self.via.is_empty() && self.denied_by().is_none() {
            line.push_str(": the credentials are not accepted, which came from ");
            line.push_str(&self.via);
        }
        line
    }

    /// Which admission denies the call after its credentials and roles were accepted; `None` when none does.
    /// A webhook chooses its code, from 400 on, and a policy one of four; so the text decides, which is the
    /// server's own (k8s.io/apiserver `admission/plugin/webhook/errors`,
    /// `admission/plugin/policy/validating`, and `NewForbidden` of apimachinery, which built-in plugins use).
    pub fn denied_by(&self) -> Option<DeniedBy> {
        let says = |words: &str| self.message.contains(words);
        if self.is_of_ending_namespace() || self.is_of_budget() {
            None
        } else if says("admission webhook \"") && says("denied the request") {
            Some(DeniedBy::Webhook)
        } else if says("AdmissionPolicy '") && says("denied request") {
            Some(DeniedBy::Policy)
        } else if self.code == 403 && says(" is forbidden: ") && !self.is_by_role() {
            Some(DeniedBy::Plugin)
        } else {
            None
        }
    }

    pub(crate) fn is_of_ending_namespace(&self) -> bool {
        let cause = self.causes.iter().any(|(reason, _)| reason == "NamespaceTerminating");
        self.code == 403 && (cause || self.message.contains("because it is being terminated"))
    }

    /// Authorization's form, with any authorizer: `User "…" cannot get resource "…"`, or `path`.
    fn is_by_role(&self) -> bool {
        let named = |what: &str| self.message.contains(what);
        self.code == 403 && named("User \"") && named("\" cannot ")
    }

    /// Who refuses, where no admission denies it.
    pub fn refused_by(&self) -> RefusedBy {
        match self.code {
            401 => RefusedBy::Credentials,
            403 if self.is_by_role() => RefusedBy::Role,
            _ => RefusedBy::Other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusedBy {
    /// 401: the server does not accept the credentials.
    Credentials,
    /// 403: the user may not do this.
    Role,
    Other,
}

/// Which admission denies a call. It may admit the same call later, and decide otherwise for a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeniedBy {
    Webhook,
    /// A ValidatingAdmissionPolicy or MutatingAdmissionPolicy.
    Policy,
    /// A built-in plugin, such as quotas and NodeRestriction.
    Plugin,
}

impl DeniedBy {
    /// Next step.
    pub const fn next_step(self) -> &'static str {
        match self {
            Self::Webhook => {
                "fix the admission webhook that the answer names, or have it admit this call: `kubectl get \
                 validatingwebhookconfigurations,mutatingwebhookconfigurations`"
            }
            Self::Policy => {
                "change the admission policy that the answer names, or have it admit this call: `kubectl get \
                 validatingadmissionpolicies,validatingadmissionpolicybindings`"
            }
            Self::Plugin => {
                "change what the answer names (a quota, a label of the namespace, the user of the kubeconfig): an admission \
                 plugin of the API server denies this call, not a role"
            }
        }
    }
}

/// The meaning of one answer, or of none. Texts are the server's, for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Done,
    NotFound {
        text: String,
    },
    /// 409 on the UID: another object has this name.
    UidChanged,
    /// 409 on the resource version: another client wrote first.
    Conflict {
        text: String,
    },
    /// 410: the resource version of a watch is too old; list again.
    Expired,
    /// 429 for a disruption budget, and 403 where its state is not up to date.
    Budget {
        /// Names the budget and its numbers.
        text: String,
        retry_after: Option<Duration>,
    },
    /// 429 of KubeVirt's webhook: this launcher pod's machine is migrating, or about to.
    Moving {
        text: String,
    },
    /// 429 of the same: the machine cannot migrate, and its launcher stays.
    CannotMove {
        text: String,
    },
    /// Responders that the pod declares have been asked to evict it.
    Responding {
        /// Which one is active, and what it says.
        text: String,
    },
    /// 500 because more than one budget selects the pod.
    ManyBudgets {
        text: String,
    },
    /// 429 for load.
    Throttle {
        text: String,
        retry_after: Option<Duration>,
    },
    /// 403 because the namespace is being deleted; its pods end by themselves.
    NamespaceEnding {
        text: String,
    },
    /// An admission denies it: a webhook (with any code from 400 on), a policy, a plugin of the server. It
    /// may admit a later call.
    Denied {
        text: String,
        by: DeniedBy,
        retry_after: Option<Duration>,
    },
    /// 408, 5xx, a cut or refused connection, no answer in time, an invalid answer.
    Transient {
        text: String,
        retry_after: Option<Duration>,
    },
    /// 500, 503: the API server works, but an admission webhook or an aggregated API server does not answer
    /// it.
    Unanswered {
        text: String,
        retry_after: Option<Duration>,
    },
    /// A retry fails until a person changes something.
    Permanent {
        text: String,
        by: RefusedBy,
    },
}

/// The classes of replies to an eviction, and admission's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyClass {
    Done,
    /// A budget holds the pod, or KubeVirt, which migrates its machine, or a responder, which evicts it.
    Budget,
    Throttle,
    Transient,
    /// Retry.
    Denied,
    /// The attempt gives the pod up.
    Permanent,
}

impl Reply {
    pub fn class(&self) -> ReplyClass {
        match self {
            Self::Done | Self::NotFound { .. } | Self::UidChanged => ReplyClass::Done,
            Self::Budget { .. }
            | Self::ManyBudgets { .. }
            | Self::Moving { .. }
            | Self::Responding { .. }
            | Self::CannotMove { .. } => ReplyClass::Budget,
            Self::Throttle { .. } => ReplyClass::Throttle,
            Self::Conflict { .. }
            | Self::Expired
            | Self::NamespaceEnding { .. }
            | Self::Transient { .. }
            | Self::Unanswered { .. } => ReplyClass::Transient,
            Self::Denied { .. } => ReplyClass::Denied,
            Self::Permanent { .. } => ReplyClass::Permanent,
        }
    }

    /// For counts.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Done => "accepted",
            Self::NotFound { .. } => "gone",
            Self::UidChanged => "other-pod",
            Self::Conflict { .. } => "conflict",
            Self::Expired => "expired",
            Self::Budget { .. } => "budget",
            Self::Moving { .. } => "moving",
            Self::CannotMove { .. } => "cannot-move",
            Self::Responding { .. } => "responding",
            Self::ManyBudgets { .. } => "many-budgets",
            Self::Throttle { .. } => "throttled",
            Self::NamespaceEnding { .. } => "namespace-ending",
            Self::Denied { .. } => "denied",
            Self::Transient { .. } | Self::Unanswered { .. } => "api-trouble",
            Self::Permanent { .. } => "refused",
        }
    }

    /// The server's text.
    pub fn text(&self) -> &str {
        match self {
            Self::Done => "done",
            Self::UidChanged => "another pod has this name now",
            Self::Expired => "the resource version is too old",
            Self::NotFound { text }
            | Self::Conflict { text }
            | Self::Budget { text, .. }
            | Self::ManyBudgets { text }
            | Self::Moving { text }
            | Self::CannotMove { text }
            | Self::Responding { text }
            | Self::Throttle { text, .. }
            | Self::NamespaceEnding { text }
            | Self::Denied { text, .. }
            | Self::Transient { text, .. }
            | Self::Unanswered { text, .. }
            | Self::Permanent { text, .. } => text,
        }
    }

    /// Time before the next call, when the server named one.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Budget { retry_after, .. }
        | Self::Throttle { retry_after, .. }
        | Self::Denied { retry_after, .. }
        | Self::Transient { retry_after, .. }
        | Self::Unanswered { retry_after, .. } = self
        {
            *retry_after
        } else {
            None
        }
    }
}

/// Whether a server answers at all (fixed as D-K2 asks).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It answers, if only with a refusal.
    Reachable,
    /// 429: overloaded. Never counts as unreachable.
    Throttled,
    /// Refused, timed out, 5xx, TLS, or there is no usable kubeconfig.
    Unreachable,
}

/// KubeVirt's webhooks on evictions, known by their text alone.
const LAUNCHERS: &str = "admission webhook \"virt-launcher-eviction-interceptor.kubevirt.io\"";
const HOTPLUG: &str = "admission webhook \"hotplug-pod-eviction-interceptor.kubevirt.io\"";

fn by_kubevirt(text: String) -> Reply {
    if text.contains("is not live-migratable") {
        Reply::CannotMove { text }
    } else if text.contains("kubevirt failed") {
        Reply::Transient { text, retry_after: None }
    } else {
        Reply::Moving { text }
    }
}

pub fn classify(answer: &ApiAnswer) -> Reply {
    let text = answer.line();
    let retry_after = answer.retry_after;
    let mentions = |words: &str| answer.message.contains(words);
    match answer.code {
        200..=299 => Reply::Done,
        403 if answer.is_of_ending_namespace() => Reply::NamespaceEnding { text },
        429 if mentions(LAUNCHERS) || mentions(HOTPLUG) => by_kubevirt(text),
        _ if let Some(by) = answer.denied_by() => Reply::Denied { text, by, retry_after },
        403 | 429 if answer.is_of_budget() => Reply::Budget { text, retry_after },
        429 if mentions("disruption budget") => Reply::Budget { text, retry_after },
        401 | 403 if answer.is_early_refusal() => Reply::Transient { text, retry_after },
        404 => Reply::NotFound { text },
        // The registry and the storage word the same refusal differently.
        409 if mentions("UID in precondition") || mentions("UID in the precondition") => Reply::UidChanged,
        409 => Reply::Conflict { text },
        410 => Reply::Expired,
        429 => Reply::Throttle { text, retry_after },
        500 if mentions("more than one PodDisruptionBudget") => Reply::ManyBudgets { text },
        500 if mentions("failed calling webhook") => Reply::Unanswered { text, retry_after },
        // The aggregator's own words: its server says `the server is currently unable to handle the request`.
        503 if answer.message.trim() == "service unavailable"
            || mentions("error trying to reach service") =>
        {
            Reply::Unanswered { text: format!("{text} (what serves this API does not answer)"), retry_after }
        }
        408 | 500..=599 => Reply::Transient { text, retry_after },
        _ => Reply::Permanent { text, by: answer.refused_by() },
    }
}

pub fn reach(answer: &ApiAnswer) -> Reach {
    match answer.code {
        429 => Reach::Throttled,
        408 | 500..=599 => Reach::Unreachable,
        _ => Reach::Reachable,
    }
}

#[cfg(test)]
mod tests;
