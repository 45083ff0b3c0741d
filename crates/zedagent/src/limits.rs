//! Waits of zedagent.

use std::time::Duration;

/// The pause before a failed drain is asked for again doubles up to this.
const ASK_AGAIN_MOST: Duration = Duration::from_mins(30);

agent::limits! {
    pub struct Limits;
    waits {}
    others {}
    fixed_waits {
        /// After a failed drain, the first pause before it is asked for again.
        ask_again_first, ask_again_first_ms = 30_000;
    }
    fixed {}
}

impl Limits {
    /// The pause after the failure number `failures`, from 1.
    pub(crate) fn ask_again(&self, failures: u32) -> Duration {
        step::doubled(self.ask_again_first(), ASK_AGAIN_MOST, failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p6_the_pause_doubles_from_30_s_to_30_min() {
        let limits = Limits::default();
        let secs: Vec<u64> =
            [1, 2, 3, 6, 7, 8, 99].iter().map(|it| limits.ask_again(*it).as_secs()).collect();
        assert_eq!(secs, [30, 60, 120, 960, 1800, 1800, 1800]);
    }
}
