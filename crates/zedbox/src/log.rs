//! The log of this program on standard error: format and filter.
//!
//! The filter is fixed by the command line or the settings file; else, for agents, it follows the
//! controller's levels at once.

mod form;
mod level;
mod lines;

use std::io::{IsTerminal as _, stderr};

use anyhow::Context as _;
use topics::ConfigItemValueMap;
use tracing::warn;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::Subscriber;
use tracing_subscriber::fmt::format::DefaultFields;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::{LogFormat, filter};
use form::LineFormat;
use lines::LineWriter;
pub(crate) use lines::{flush, never_wait};

type LogSubscriber = Subscriber<DefaultFields, LineFormat, LevelFilter, fn() -> LineWriter>;

#[derive(Clone)]
pub(crate) struct LogLevels {
    filter: reload::Handle<Targets, LogSubscriber>,
    /// The agent, if it is alone in this process.
    alone: Option<&'static str>,
    /// Set by the command line or the settings file.
    fixed: bool,
}

impl LogLevels {
    /// Applies the controller's levels.
    pub(crate) fn follow(&self, map: &ConfigItemValueMap) {
        if self.fixed {
            return;
        }
        let (levels, refused) = level::of(map, self.alone);
        for line in refused {
            warn!("config property {line}");
        }
        // The log lives as long as the process.
        if let Err(error) = self.filter.reload(levels) {
            warn!(%error, "the log keeps its levels");
        }
    }
}

/// Starts the log with the filter `words`, or `quiet` without one. `alone` is the agent that is alone in this
/// process.
pub(crate) fn begin(
    format: LogFormat,
    words: Option<&str>,
    quiet: &str,
    alone: Option<&'static str>,
) -> anyhow::Result<LogLevels> {
    let shown = words.unwrap_or(quiet);
    let filter = filter(shown).with_context(|| format!("read the log filter `{shown}`"))?;
    let (filter, handle) = reload::Layer::new(filter);
    let form = LineFormat::new(format, alone);
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(format == LogFormat::Text && stderr().is_terminal())
        // It would print to standard error, and panic when that is what failed.
        .log_internal_errors(false)
        .event_format(form)
        .with_writer(LineWriter::new as fn() -> LineWriter);
    lines.finish().with(filter).init();
    Ok(LogLevels { filter: handle, alone, fixed: words.is_some() })
}
