//! What an answer of the API server means for the call that got it.
//!
//! Not here: sending, waiting, who is asked next. Sources: goals D2; the Kubernetes page "API-initiated
//! Eviction" (429 for a budget, 500 for two budgets); the API conventions on `Status`, its causes and
//! `Retry-After`.
//! Pure: no clock, no I/O, no task.

use std::time::Duration;

/// The whole body of an answer about a kind that is not known.
const UNKNOWN_KIND: &str = "404 page not found";

/// An answer as it came off the wire, without the library's types.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiAnswer {
    pub code: u16,
    /// `Status.reason`, or empty.
    pub reason: String,
    /// `Status.message`, or the start of a body that is no `Status`.
    pub message: String,
    /// `Status.details.causes` as (reason, message).
    pub causes: Vec<(String, String)>,
    /// The `Retry-After` header, else `Status.details.retryAfterSeconds`.
    pub retry_after: Option<Duration>,
    /// Whether calls found no server a moment ago: it may not know yet who may do what.
    pub just_back: bool,
    /// Where address and credentials of the call came from, or empty.
    pub via: String,
}

impl ApiAnswer {
    /// What a server answers that does not know the kind that is asked for.
    pub(crate) fn unknown_kind() -> Self {
        Self { code: 404, message: UNKNOWN_KIND.to_owned(), ..Self::default() }
    }

    /// Whether it is that answer: of an object that is not there a server says more.
    pub(crate) fn is_unknown_kind(&self) -> bool {
        self.code == 404 && self.message == UNKNOWN_KIND
    }

    /// Whether it refuses the caller, and would perhaps not a moment later.
    pub fn is_early_refusal(&self) -> bool {
        self.just_back && matches!(self.code, 401 | 403) && self.denied_by().is_none()
    }

    /// The answer in one line: code, reason, message and, for a budget, the cause with its numbers.
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

    /// Which admission of the server denies the call, whose credentials and roles were accepted by then; `None` when it is
    /// none. A webhook chooses its code, from 400 on, and a policy one of four; so the words decide, which are the server's
    /// own (k8s.io/apiserver `admission/plugin/webhook/errors`, `admission/plugin/policy/validating`, and `NewForbidden` of
    /// apimachinery, which built-in plugins use).
    pub fn denied_by(&self) -> Option<DeniedBy> {
        let says = |words: &str| self.message.contains(words);
        if self.is_of_ending_namespace() {
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

    /// The namespace is being deleted, and its pods go by themselves.
    pub(crate) fn is_of_ending_namespace(&self) -> bool {
        let cause = self.causes.iter().any(|(reason, _)| reason == "NamespaceTerminating");
        self.code == 403 && (cause || self.message.contains("because it is being terminated"))
    }

    /// The one form that authorization has, whichever authorizer refuses: `User "…" cannot get resource "…"`, or `path`.
    fn is_by_role(&self) -> bool {
        let named = |what: &str| self.message.contains(what);
        self.code == 403 && named("User \"") && named("\" cannot ")
    }

    /// Who refuses, as far as the answer tells, where no admission denies it.
    pub fn refused_by(&self) -> RefusedBy {
        match self.code {
            401 => RefusedBy::Credentials,
            403 if self.is_by_role() => RefusedBy::Role,
            _ => RefusedBy::Other,
        }
    }
}

/// Who refuses a call for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusedBy {
    /// 401: the server does not accept the credentials.
    Credentials,
    /// 403: the user may not do this.
    Role,
    Other,
}

/// Which admission denies a call. It may admit the same call later, and decide another way about a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeniedBy {
    Webhook,
    /// A ValidatingAdmissionPolicy or MutatingAdmissionPolicy.
    Policy,
    /// A plugin of the server itself, as quotas and NodeRestriction.
    Plugin,
}

impl DeniedBy {
    /// What a person can do about an admission that the answer names.
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

/// The meaning of one answer, or of none. Texts are for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// 2xx.
    Done,
    /// 404: the object is not there.
    NotFound {
        /// What the server said.
        text: String,
    },
    /// 409 on the UID: an object of this name is there, but it is another one.
    UidChanged,
    /// 409 on the resource version: somebody else wrote first.
    Conflict {
        /// What the server said.
        text: String,
    },
    /// 410: the resource version of a watch is too old; list again.
    Expired,
    /// 429 for a disruption budget.
    Budget {
        /// The cause, which names the budget and its numbers.
        text: String,
        /// No new call before this has passed.
        retry_after: Option<Duration>,
    },
    /// 429 of KubeVirt's webhook: the machine of this launcher pod is being moved, or is about to be.
    Moving {
        /// What the webhook said.
        text: String,
    },
    /// 429 of the same: the machine cannot be moved, and its launcher stays.
    CannotMove {
        /// What the webhook said.
        text: String,
    },
    /// 500 because more than one budget selects the pod.
    ManyBudgets {
        /// What the server said.
        text: String,
    },
    /// 429 for load.
    Throttle {
        /// What the server said.
        text: String,
        /// No new call before this has passed.
        retry_after: Option<Duration>,
    },
    /// 403 because the namespace is being deleted; its pods go by themselves.
    NamespaceEnding {
        /// What the server said.
        text: String,
    },
    /// An admission denies it: a webhook (with any code from 400 on), a policy, a plugin of the server. It may admit the
    /// next one.
    Denied {
        /// What the server said.
        text: String,
        by: DeniedBy,
        /// No new call before this has passed.
        retry_after: Option<Duration>,
    },
    /// 408, 5xx, a cut or refused connection, no answer in time, an answer that is no answer.
    Transient {
        text: String,
        /// No new call before this has passed.
        retry_after: Option<Duration>,
    },
    /// 500, 503: the API server is there, but an admission webhook that it has to ask, or who serves an aggregated API, does
    /// not answer it.
    Unanswered {
        /// What the server said.
        text: String,
        /// No new call before this has passed.
        retry_after: Option<Duration>,
    },
    /// Asking again changes nothing before a person does.
    Permanent {
        /// What the server said.
        text: String,
        by: RefusedBy,
    },
}

/// The classes of design section 7 and goals D2, and admission's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyClass {
    /// Nothing more to ask for.
    Done,
    /// A budget holds the pod, or KubeVirt does that moves its machine.
    Budget,
    /// The server has too much to do.
    Throttle,
    Transient,
    /// An admission denies it: ask again.
    Denied,
    /// The pod is given up in this attempt.
    Permanent,
}

impl Reply {
    /// The class of this reply.
    pub fn class(&self) -> ReplyClass {
        match self {
            Self::Done | Self::NotFound { .. } | Self::UidChanged => ReplyClass::Done,
            Self::Budget { .. }
            | Self::ManyBudgets { .. }
            | Self::Moving { .. }
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

    /// The word for counts.
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
            Self::ManyBudgets { .. } => "many-budgets",
            Self::Throttle { .. } => "throttled",
            Self::NamespaceEnding { .. } => "namespace-ending",
            Self::Denied { .. } => "denied",
            Self::Transient { .. } | Self::Unanswered { .. } => "api-trouble",
            Self::Permanent { .. } => "refused",
        }
    }

    /// What the server said, for a person.
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
            | Self::Throttle { text, .. }
            | Self::NamespaceEnding { text }
            | Self::Denied { text, .. }
            | Self::Transient { text, .. }
            | Self::Unanswered { text, .. }
            | Self::Permanent { text, .. } => text,
        }
    }

    /// The time that must pass before the next call, when the server named one.
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

/// Whether a server stands behind the calls at all (spec/agents.md 4.3 step 2, fixed as D-K2 asks).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It answers, if only to refuse.
    Reachable,
    /// 429: it is there and has too much to do. Never counts as unreachable (goals U8).
    Throttled,
    /// Refused, timed out, 5xx, TLS, or there is no usable kubeconfig.
    Unreachable,
}

/// KubeVirt's webhooks on evictions (spec/vm-storage.md A3). They say nothing but in words.
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

/// What `answer` means.
pub fn classify(answer: &ApiAnswer) -> Reply {
    let text = answer.line();
    let retry_after = answer.retry_after;
    let cause = |wanted: &str| answer.causes.iter().any(|(reason, _)| reason == wanted);
    let mentions = |words: &str| answer.message.contains(words);
    match answer.code {
        200..=299 => Reply::Done,
        403 if answer.is_of_ending_namespace() => Reply::NamespaceEnding { text },
        429 if mentions(LAUNCHERS) || mentions(HOTPLUG) => by_kubevirt(text),
        _ if let Some(by) = answer.denied_by() => Reply::Denied { text, by, retry_after },
        401 | 403 if answer.is_early_refusal() => Reply::Transient { text, retry_after },
        404 => Reply::NotFound { text },
        // The registry and the storage word the same refusal differently.
        409 if mentions("UID in precondition") || mentions("UID in the precondition") => Reply::UidChanged,
        409 => Reply::Conflict { text },
        410 => Reply::Expired,
        429 if cause("DisruptionBudget") || mentions("disruption budget") => {
            Reply::Budget { text, retry_after }
        }
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

/// Whether `answer` shows that the API is there.
pub fn reach(answer: &ApiAnswer) -> Reach {
    match answer.code {
        429 => Reach::Throttled,
        408 | 500..=599 => Reach::Unreachable,
        _ => Reach::Reachable,
    }
}

#[cfg(test)]
mod tests;
