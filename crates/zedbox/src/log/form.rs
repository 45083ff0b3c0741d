//! The three formats of a line.
//!
//! | Form | A line |
//! |---|---|
//! | json | one object with what newlogd reads: `level`, `time`, `msg`, `source`, `pid`, `file`, `func`, and the fields of the line |
//! | text | time, level, module, message, fields |
//! | journald | the level as systemd's journal reads it, `<6>`, then module, message, fields |

use std::fmt::{self, Debug};

use agent::Clock;
use serde_json::{Map, Value};
use topics::{acts, harmless_json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, time};
use tracing_subscriber::registry::LookupSpan;

use super::level::agent_of;
use crate::args::{LogFormat, NAMES};

/// Members that newlogd interprets; others are fields.
const OWN: [&str; 10] =
    ["level", "time", "msg", "pid", "func", "file", "source", "appuuid", "containername", "eventtime"];

pub(super) enum LineFormat {
    Json(Json),
    Text(Format<Full, time::SystemTime>),
    Journald(Format<Full, ()>),
}

pub(super) struct Json {
    clock: Clock,
    pid: u32,
    /// Source of lines that belong to no single agent.
    source: &'static str,
}

impl LineFormat {
    pub(super) fn new(format: LogFormat, alone: Option<&'static str>) -> Self {
        match format {
            LogFormat::Json => Self::Json(Json {
                clock: Clock::new(),
                pid: std::process::id(),
                source: alone.unwrap_or("zedbox"),
            }),
            LogFormat::Text => Self::Text(Format::default()),
            LogFormat::Journald => Self::Journald(Format::default().without_time().with_level(false)),
        }
    }
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        match self {
            Self::Json(json) => writeln!(out, "{}", harmless_json(&json.line(event).to_string())),
            Self::Text(text) => {
                let (colours, mut line) = (out.has_ansi_escapes(), String::new());
                let text = text.clone().with_ansi(colours);
                text.format_event(context, Writer::new(&mut line), event)?;
                writeln!(out, "{}", harmless(&line, colours))
            }
            Self::Journald(text) => {
                write!(out, "<{}>", severity(*event.metadata().level()))?;
                let mut line = String::new();
                text.format_event(context, Writer::new(&mut line), event)?;
                writeln!(out, "{}", harmless(&line, false))
            }
        }
    }
}

/// Removes what moves a terminal's cursor or changes text direction, except our own colours: lines contain
/// foreign file names. One line only: a second one would be anybody's, without a level.
fn harmless(line: &str, colours: bool) -> String {
    let mut out = String::with_capacity(line.len());
    let line = line.trim_end();
    for (at, letter) in line.char_indices() {
        let colour = || {
            let rest = line[at..].strip_prefix("\x1b[")?;
            let end = rest.find(|it: char| !it.is_ascii_digit() && it != ';')?;
            rest[end..].starts_with('m').then_some(())
        };
        if !acts(letter) || (colours && colour().is_some()) {
            out.push(letter);
        } else {
            out.extend(letter.escape_default());
        }
    }
    out
}

impl Json {
    fn line(&self, event: &Event<'_>) -> Value {
        let meta = event.metadata();
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let mut all = fields.0;
        let named = all.get("agent").and_then(Value::as_str);
        let named = named.and_then(|named| NAMES.into_iter().find(|name| *name == named));
        let source = named.or_else(|| agent_of(meta.target())).unwrap_or(self.source);
        let file = meta.file().map(|file| format!("{file}:{}", meta.line().unwrap_or_default()));
        let own = [
            ("level", Value::from(word(*meta.level()))),
            ("time", self.clock.wall().rfc3339().into()),
            ("source", source.into()),
            ("pid", self.pid.into()),
            ("func", meta.target().into()),
            ("file", file.unwrap_or_default().into()),
        ];
        all.extend(own.map(|(name, value)| (name.to_owned(), value)));
        Value::Object(all)
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// In syslog.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

#[derive(Default)]
struct LogFields(Map<String, Value>);

impl LogFields {
    fn put(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            "message" => "msg".to_owned(),
            own if OWN.contains(&own) => format!("fields.{own}"),
            name => name.to_owned(),
        };
        self.0.insert(name, value);
    }
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::filter;
    use topics::GoTime;
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// Output in this format while `say` runs.
    fn written(form: LineFormat, words: &str, say: impl FnOnce()) -> String {
        let log = tempfile::NamedTempFile::new().unwrap();
        let lines = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_ansi(false)
            .event_format(form)
            .with_writer(log.reopen().unwrap())
            .finish();
        tracing::subscriber::with_default(lines.with(filter(words).unwrap()), say);
        std::fs::read_to_string(log.path()).unwrap()
    }

    fn json(alone: Option<&'static str>, say: impl FnOnce()) -> Vec<Value> {
        let text = written(LineFormat::new(LogFormat::Json, alone), "trace", say);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn the_library_is_heard_only_when_it_is_named() {
        for (words, heard) in [
            ("info", (false, true)),
            ("debug", (false, true)),
            ("warn", (false, false)),
            ("info,zedkube=warn", (false, false)),
            ("info,kube_client=info", (true, true)),
            ("off,kube_client=debug", (true, false)),
        ] {
            let text = written(LineFormat::new(LogFormat::Text, None), words, || {
                tracing::error!(target: "kube_client::client::builder", "of the library");
                tracing::info!(target: "zedkube::shell", "of ours");
            });
            assert_eq!((text.contains("of the library"), text.contains("of ours")), heard, "{words}");
        }
    }

    #[test]
    fn e3_each_line_is_one_object_with_the_level_source_and_time_that_newlogd_reads() {
        let before = Clock::new().wall();
        let lines = json(Some("nodeagent"), || {
            tracing::error!(target: "nodeagent::shell", "an \"error\"\nof two lines");
            tracing::warn!(target: "agent::turn", operation = "reboot", secs = 7, "a warning");
            tracing::info!(target: "agent::turn", "an info");
            tracing::debug!(target: "zedkube::shell", "a debug");
            tracing::trace!(target: "hyper::proto", "a trace");
        });
        let of = |name: &str| lines.iter().map(|it| it[name].as_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(of("level"), ["error", "warning", "info", "debug", "trace"]);
        assert_eq!(of("source"), ["nodeagent", "nodeagent", "nodeagent", "zedkube", "nodeagent"]);
        assert_eq!(of("msg")[0], "an \"error\"\nof two lines");
        assert_eq!((&lines[1]["operation"], &lines[1]["secs"]), (&"reboot".into(), &7.into()));
        for line in &lines {
            let time: GoTime = line["time"].as_str().unwrap().parse().unwrap();
            assert!(time >= before && time.apart(before).as_secs() < 60, "{line}");
            assert_eq!(line["pid"], std::process::id());
            assert!(line["file"].as_str().unwrap().contains("form.rs:"), "{line}");
        }
    }

    #[test]
    fn e3_a_field_never_takes_the_place_of_what_newlogd_reads() {
        let lines = json(None, || {
            tracing::info!(
                target: "agent::turn",
                level = "panic", time = 1, source = "x", file = "f", pid = 2, appuuid = "u", "plain"
            );
            tracing::info!(target: "agent::turn", agent = "zedkube", "of one of several");
        });
        assert_eq!((&lines[0]["level"], &lines[0]["source"]), (&"info".into(), &"zedbox".into()));
        assert_eq!(lines[0]["fields.level"], "panic");
        assert_eq!(lines[0].get("appuuid"), None, "newlogd would take it for an application's line");
        assert_eq!(lines[1]["source"], "zedkube");
    }

    #[test]
    fn names_of_others_move_no_terminal_that_shows_the_log() {
        let path = "a\u{1b}[2J\u{9b}1m\u{202e}b\r\0c\nd";
        for form in [LogFormat::Text, LogFormat::Journald, LogFormat::Json] {
            let text = written(LineFormat::new(form, None), "trace", || {
                tracing::warn!(target: "zedkube::shell", %path, "not read: {path}");
            });
            assert!(!text.trim_end().chars().any(acts), "{text:?}");
            assert!(text.contains("202e") && text.contains("c\\nd"), "{text:?}");
        }
        let ours = "\u{1b}[2m2026\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m";
        assert_eq!(harmless(ours, true), ours);
        assert_eq!(harmless("\u{1b}[2J", true), "\\u{1b}[2J");
    }

    #[test]
    fn e3_for_the_journal_each_line_begins_with_its_level() {
        let text = written(LineFormat::new(LogFormat::Journald, None), "trace", || {
            tracing::error!(target: "zedkube::shell", node = "n1", "two\nlines");
            tracing::warn!(target: "zedkube::shell", "w");
            tracing::info!(target: "zedkube::shell", "i");
            tracing::trace!(target: "zedkube::shell", "t");
        });
        let expected = "<3>zedkube::shell: two\\nlines node=\"n1\"\n<4>zedkube::shell: w\n\
                        <6>zedkube::shell: i\n<7>zedkube::shell: t\n";
        assert_eq!(text, expected);
    }
}
