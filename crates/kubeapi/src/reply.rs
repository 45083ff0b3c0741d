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
    /// HTTP status.
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
    pub const fn is_early_refusal(&self) -> bool {
        self.just_back && matches!(self.code, 401 | 403)
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
        } else if self.code == 401 && !self.via.is_empty() {
            line.push_str(": the credentials are not accepted, which came from ");
            line.push_str(&self.via);
        }
        line
    }

    /// Who refuses, as far as the answer tells: credentials and roles come before admission.
    pub fn refused_by(&self) -> RefusedBy {
        if self.code == 401 {
            RefusedBy::Credentials
        } else if self.message.contains("admission webhook") {
            RefusedBy::Webhook
        } else if self.code == 403 {
            RefusedBy::Role
        } else {
            RefusedBy::Other
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
    /// An admission webhook denies it, with a code of its own choice.
    Webhook,
    /// Anything else.
    Other,
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
    /// 408, 5xx, a cut or refused connection, no answer in time, an answer that is no answer.
    Transient {
        /// What happened.
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
        /// Who refuses.
        by: RefusedBy,
    },
}

/// The five classes that design section 7 and goals D2 name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyClass {
    /// Nothing more to ask for.
    Done,
    /// A budget holds the pod, or KubeVirt does that moves its machine.
    Budget,
    /// The server has too much to do.
    Throttle,
    /// Ask again.
    Transient,
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
            | Self::Transient { text, .. }
            | Self::Unanswered { text, .. }
            | Self::Permanent { text, .. } => text,
        }
    }

    /// The time that must pass before the next call, when the server named one.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Budget { retry_after, .. }
        | Self::Throttle { retry_after, .. }
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
        403 if cause("NamespaceTerminating") || mentions("because it is being terminated") => {
            Reply::NamespaceEnding { text }
        }
        401 | 403 if answer.is_early_refusal() => Reply::Transient { text, retry_after },
        404 => Reply::NotFound { text },
        // The registry and the storage word the same refusal differently.
        409 if mentions("UID in precondition") || mentions("UID in the precondition") => Reply::UidChanged,
        409 => Reply::Conflict { text },
        410 => Reply::Expired,
        429 if mentions(LAUNCHERS) || mentions(HOTPLUG) => by_kubevirt(text),
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
mod tests {
    use super::*;

    fn answer(code: u16, message: &str) -> ApiAnswer {
        ApiAnswer { code, message: message.to_owned(), ..ApiAnswer::default() }
    }

    fn with_cause(code: u16, reason: &str, message: &str) -> ApiAnswer {
        ApiAnswer { causes: vec![(reason.to_owned(), message.to_owned())], ..answer(code, "refused") }
    }

    #[test]
    fn every_reply_of_d2_takes_its_class() {
        let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let ending = "pods \"a\" is forbidden: unable to create new content in namespace x because it is being terminated";
        let table = [
            (answer(200, ""), ReplyClass::Done),
            (answer(201, ""), ReplyClass::Done),
            (answer(404, "pods \"a\" not found"), ReplyClass::Done),
            (
                answer(409, "the UID in the precondition (1) does not match the UID in record (2)"),
                ReplyClass::Done,
            ),
            (
                answer(409, "Precondition failed: UID in precondition: 1, UID in object meta: 2"),
                ReplyClass::Done,
            ),
            (answer(409, "the object has been modified"), ReplyClass::Transient),
            (answer(410, "too old resource version: 1 (2)"), ReplyClass::Transient),
            (
                with_cause(429, "DisruptionBudget", "The disruption budget b needs 2 healthy pods"),
                ReplyClass::Budget,
            ),
            (
                answer(429, "Cannot evict pod as it would violate the pod's disruption budget."),
                ReplyClass::Budget,
            ),
            (answer(429, "too many requests"), ReplyClass::Throttle),
            (
                with_cause(403, "NamespaceTerminating", "namespace x is being terminated"),
                ReplyClass::Transient,
            ),
            (answer(403, ending), ReplyClass::Transient),
            (answer(403, "pods \"a\" is forbidden"), ReplyClass::Permanent),
            (answer(500, two), ReplyClass::Budget),
            (answer(500, "etcdserver: request timed out"), ReplyClass::Transient),
            (answer(408, ""), ReplyClass::Transient),
            (answer(502, ""), ReplyClass::Transient),
            (answer(503, ""), ReplyClass::Transient),
            (answer(504, ""), ReplyClass::Transient),
            (answer(401, "Unauthorized"), ReplyClass::Permanent),
            (answer(400, ""), ReplyClass::Permanent),
            (answer(405, ""), ReplyClass::Permanent),
            (answer(422, ""), ReplyClass::Permanent),
            (answer(302, ""), ReplyClass::Permanent),
        ];
        for (given, class) in table {
            assert_eq!(classify(&given).class(), class, "{given:?}");
        }
    }

    #[test]
    fn what_the_server_has_to_ask_and_is_not_there_is_told_from_trouble_of_the_server() {
        let away = "Internal error occurred: failed calling webhook \"v.example\": failed to call webhook: no endpoints";
        let rows = [
            (500, away, true),
            (500, "Internal error occurred: etcdserver: leader changed", false),
            (503, "service unavailable\n", true),
            (503, "error trying to reach service: dial tcp 10.0.0.1:443: connect: connection refused", true),
            (503, "the server is currently unable to handle the request", false),
        ];
        for (code, message, expected) in rows {
            let reply = classify(&answer(code, message));
            assert_eq!(matches!(reply, Reply::Unanswered { .. }), expected, "{message}");
            assert_eq!((reply.class(), reply.word()), (ReplyClass::Transient, "api-trouble"), "{message}");
        }
    }

    #[test]
    fn each_refusal_of_kubevirt_is_told_from_load_and_from_a_budget() {
        let denied = |text: &str| {
            let name = "virt-launcher-eviction-interceptor.kubevirt.io";
            classify(&answer(429, &format!("admission webhook \"{name}\" denied the request: {text}"))).word()
        };
        let rows = [
            ("VMI db is configured with an eviction strategy but is not live-migratable", "cannot-move"),
            ("Eviction triggered evacuation of VMI \"shop/db\"", "moving"),
            ("Evacuation in progress: Eviction triggered evacuation of VMI \"shop/db\"", "moving"),
            ("Eviction request for target Pod", "moving"),
            ("kubevirt failed getting the vmi: timeout", "api-trouble"),
        ];
        for (text, word) in rows {
            assert_eq!(denied(text), word, "{text}");
        }
        let hotplug = "admission webhook \"hotplug-pod-eviction-interceptor.kubevirt.io\" denied the request: cannot \
            evict hotplug pod: hp-volume-x associated with running vmi: db in namespace shop";
        assert_eq!(classify(&answer(429, hotplug)).word(), "moving");
        let other = "admission webhook \"own.example\" denied the request: not now";
        assert_eq!(classify(&answer(429, other)).word(), "throttled");
    }

    #[test]
    fn the_time_to_wait_comes_through_whatever_caused_it() {
        let wait = Some(Duration::from_secs(10));
        let throttled = ApiAnswer { retry_after: wait, ..answer(429, "busy") };
        let budget = ApiAnswer { retry_after: wait, ..with_cause(429, "DisruptionBudget", "b") };
        let starting = ApiAnswer { retry_after: wait, ..answer(503, "starting") };
        for given in [throttled, budget, starting] {
            assert_eq!(classify(&given).retry_after(), wait, "{given:?}");
        }
        assert_eq!(classify(&answer(429, "busy")).retry_after(), None);
    }

    #[test]
    fn the_cause_is_part_of_what_is_said() {
        let given = ApiAnswer {
            reason: "TooManyRequests".to_owned(),
            ..with_cause(
                429,
                "DisruptionBudget",
                "The disruption budget web needs 2 healthy pods and has 2 currently",
            )
        };
        assert_eq!(
            classify(&given).text(),
            "429 TooManyRequests: refused: The disruption budget web needs 2 healthy pods and has 2 currently"
        );
    }

    #[test]
    fn throttling_is_never_taken_for_an_unreachable_api() {
        let table = [
            (200, Reach::Reachable),
            (401, Reach::Reachable),
            (403, Reach::Reachable),
            (404, Reach::Reachable),
            (429, Reach::Throttled),
            (408, Reach::Unreachable),
            (500, Reach::Unreachable),
            (503, Reach::Unreachable),
            (504, Reach::Unreachable),
        ];
        for (code, expected) in table {
            assert_eq!(reach(&answer(code, "")), expected, "{code}");
        }
    }
}
