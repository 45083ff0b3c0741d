//! Waits of this agent, with their defaults; tests shorten some.

use std::time::Duration;

/// How long a request of ours may stand while zedkube is at work on nothing, before it counts as failed.
pub(crate) const UNANSWERED_WAIT: Duration = Duration::from_mins(5);

/// How long one call of the program for container images may take.
pub(crate) const IMAGE_PROGRAM_LIMIT: Duration = Duration::from_mins(30);

agent::limits! {
    pub struct Limits;
    waits {}
    others {
        /// A program that brings and removes the container images of a version; empty for none.
        image_program: String = String::new();
    }
    fixed_waits {
        /// The first pause after a failure: of a drain, of a write, of a partition record.
        again_first, again_first_ms = 30_000;
        /// Pauses double up to this one.
        again_longest, again_longest_ms = 1_800_000;
    }
    fixed {}
}

impl Limits {
    /// The first pause after a failure, and the longest.
    pub(crate) fn pauses(&self) -> (Duration, Duration) {
        (self.again_first(), self.again_longest().max(self.again_first()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_member_of_a_limits_file_is_refused() {
        let refused = serde_json::from_str::<Limits>(r#"{"image_tool":1}"#).unwrap_err().to_string();
        assert!(refused.contains("image_tool"), "{refused}");
        let given: Limits = serde_json::from_str(r#"{"image_program":"/p"}"#).unwrap();
        assert_eq!(given, Limits { image_program: "/p".to_owned(), ..Limits::default() });
    }
}
