//! `--log` and `--log-format`: filter and format of the log.
//!
//! Not here: the log itself (`crate::log`).

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};

/// In which form the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// One JSON object a line, as newlogd reads it.
    Json,
    /// For people.
    Text,
    /// For people, each line behind its level as systemd's journal reads it; the journal has the time.
    Journald,
}

/// The library's own lines are left out unless `words` name it: while the API is away it writes several a
/// second that name no call, and each caller logs its own failures.
pub(crate) fn filter(words: &str) -> Result<Targets, ParseError> {
    format!("kube_client=off,{words}").parse()
}

/// `text`, if it is a filter.
pub(super) fn checked(text: &str) -> Result<String, String> {
    const EXAMPLES: &str =
        "use a level (error, warn, info, debug, trace, off) or a list such as info,zedkube=debug";
    filter(text).map_err(|cause| format!("{cause}; {EXAMPLES}"))?;
    if let Some(word) = text.split(',').find(|word| !is_balanced(word)) {
        return Err(format!("`{word}` has brackets that do not match; {EXAMPLES}"));
    }
    let level = |word: &str| word.parse::<LevelFilter>().is_ok();
    // The library takes a lone word that is no level for a target, and logs nothing.
    match text.split(',').map(str::trim).find(|word| !level(word) && !word.contains(['=', '['])) {
        Some(word) => Err(format!("`{word}` is not a level; {EXAMPLES}")),
        None => Ok(text.to_owned()),
    }
}

/// Whether there are no brackets, or one pair behind a target's name.
fn is_balanced(word: &str) -> bool {
    match word.split_once('[') {
        None => !word.contains(']'),
        Some((target, rest)) => {
            let behind = rest.split_once(']').map(|(_, behind)| behind);
            !target.trim().is_empty()
                && !target.contains(']')
                && behind.is_some_and(|it| !it.contains(['[', ']']))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_filter_that_would_log_nothing_is_refused_with_examples() {
        for good in
            ["warn", "info,zedkube=debug", "off,kube_client=debug", "INFO,zedagent=trace", "zedkube[{node}]"]
        {
            assert_eq!(checked(good).unwrap(), good);
        }
        for (wrong, named) in [
            ("loud", "`loud`"),
            ("zedkube=loud", ""),
            ("info,zedkube", "`zedkube`"),
            ("[[[", "`[[[` has brackets"),
            ("info,zedkube[x", "`zedkube[x` has brackets"),
            ("zedkube]=info", "brackets"),
        ] {
            let refused = checked(wrong).unwrap_err();
            assert!(refused.contains(named) && refused.contains("info,zedkube=debug"), "{wrong}: {refused}");
        }
    }
}
