//! The controller's levels: `agent.<name>.debug.loglevel`, else `debug.default.loglevel`, else `info`.
//!
//! Pure: no clock, no I/O, no task.

use topics::{ConfigItemValueMap, by_length};
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::args::NAMES;

/// After `agent.<name>.`.
const OF_AGENT: &str = "debug.loglevel";
const DEFAULT: &str = "debug.default.loglevel";

/// Crates that work for one agent only.
const CRATES: [(&str, &str); 9] = [
    ("zedagent", "zedagent"),
    ("baseosmgr", "baseosmgr"),
    ("nodeagent", "nodeagent"),
    ("zedkube", "zedkube"),
    ("clusterview", "zedkube"),
    ("kubeapi", "zedkube"),
    ("kubenodeop", "zedkube"),
    ("nodestatus", "zedkube"),
    ("outage", "zedkube"),
];

/// The agent of a module's lines, where there is only one.
pub(super) fn agent_of(target: &str) -> Option<&'static str> {
    let crate_of = target.split("::").next().unwrap_or_default();
    CRATES.into_iter().find(|(name, _)| *name == crate_of).map(|(_, agent)| agent)
}

/// Levels of all agents of this process, and a line for each refused value, with what is in force.
pub(super) fn of(map: &ConfigItemValueMap, alone: Option<&str>) -> (Targets, Vec<String>) {
    let mut refused = Vec::new();
    let default = map.global_settings.as_ref().and_then(|all| all.get(DEFAULT));
    let default = default.and_then(|it| level(DEFAULT, &it.str_value, "info", &mut refused));
    let default = default.unwrap_or(LevelFilter::INFO);
    let mut of_agent = |agent: &str| {
        let own = map.agent_settings.as_ref().and_then(|all| all.get(agent)?.get(OF_AGENT));
        let name = format!("agent.{agent}.{OF_AGENT}");
        own.and_then(|it| level(&name, &it.str_value, "the default level", &mut refused)).unwrap_or(default)
    };
    let mut targets = Targets::new();
    if let Some(agent) = alone {
        targets = targets.with_default(of_agent(agent));
    } else {
        let levels = NAMES.map(|agent| (agent, of_agent(agent)));
        targets = targets.with_default(default);
        for (name, whose) in CRATES {
            let own = levels.iter().find(|(agent, _)| *agent == whose);
            targets = targets.with_target(name, own.map_or(default, |(_, level)| *level));
        }
    }
    (targets.with_target("kube_client", LevelFilter::OFF), refused)
}

/// A level in the reference's words. An empty text is unset.
fn level(name: &str, text: &str, then: &str, refused: &mut Vec<String>) -> Option<LevelFilter> {
    match text.to_ascii_lowercase().as_str() {
        "" => None,
        "none" => Some(LevelFilter::OFF),
        // There is nothing above an error here.
        "panic" | "fatal" | "error" => Some(LevelFilter::ERROR),
        "warn" | "warning" => Some(LevelFilter::WARN),
        "info" => Some(LevelFilter::INFO),
        "debug" => Some(LevelFilter::DEBUG),
        "trace" | "all" => Some(LevelFilter::TRACE),
        _ => {
            refused.push(format!(
                "{name}: found {}, expected none, error, warning, info, debug, trace or all; {then} counts",
                by_length(text)
            ));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topics::ConfigItemValue;
    use tracing::Level;

    fn map(default: &str, own: &[(&str, &str)]) -> ConfigItemValueMap {
        let value = |text: &str| ConfigItemValue::text("", text);
        let agents = own
            .iter()
            .map(|(agent, text)| ((*agent).to_owned(), [(OF_AGENT.to_owned(), value(text))].into()));
        ConfigItemValueMap {
            global_settings: Some([(DEFAULT.to_owned(), value(default))].into()),
            agent_settings: Some(agents.collect()),
        }
    }

    #[test]
    fn e3_an_agent_has_its_own_level_else_the_default_one() {
        use LevelFilter as L;
        let rows = [
            ("", "", L::INFO),
            ("warning", "", L::WARN),
            ("warning", "debug", L::DEBUG),
            ("trace", "none", L::OFF),
            ("info", "all", L::TRACE),
            ("info", "TRACE", L::TRACE),
            ("error", "loud", L::ERROR),
            ("loud", "", L::INFO),
            ("info", "fatal", L::ERROR),
        ];
        for (default, own, expected) in rows {
            let (targets, refused) =
                of(&map(default, &[("zedkube", own), ("nodeagent", "trace")]), Some("zedkube"));
            assert_eq!(targets.default_level(), Some(expected), "{default} {own}");
            let wrong = [default, own].contains(&"loud");
            assert_eq!(refused.len(), usize::from(wrong), "{refused:?}");
            assert!(
                refused
                    .iter()
                    .all(|it| it.contains("a text of 4 characters") && it.contains("none, error, warning"))
            );
        }
        assert_eq!(of(&ConfigItemValueMap::default(), None).0.default_level(), Some(L::INFO));
    }

    #[test]
    fn e3_of_several_agents_in_one_process_each_has_its_level() {
        let (targets, _) = of(&map("warning", &[("zedkube", "debug"), ("nodeagent", "none")]), None);
        let rows = [
            ("zedkube::shell", Level::DEBUG, true),
            ("kubenodeop::drain", Level::DEBUG, true),
            ("zedkube::shell", Level::TRACE, false),
            ("nodeagent::shell", Level::ERROR, false),
            ("zedagent::shell", Level::WARN, true),
            ("zedagent::shell", Level::INFO, false),
            ("agent::turn", Level::WARN, true),
            ("agent::turn", Level::INFO, false),
            ("kube_client::client", Level::ERROR, false),
        ];
        for (target, level, passes) in rows {
            assert_eq!(targets.would_enable(target, &level), passes, "{target} {level}");
        }
    }
}
