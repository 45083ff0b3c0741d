//! A line of the log as a value: a core makes it where it says it ([`say!`](crate::say)), its shell writes it
//! ([`log!`](crate::log)), and a test compares it.

/// An error in one line, as `a: b: c`; a source whose text its parent already shows is skipped.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let said = inner.to_string();
        if !line.contains(&said) {
            line.push_str(": ");
            line.push_str(&said);
        }
        source = inner.source();
    }
    line
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogLevel {
    /// A decision.
    Info,
    /// A person should look at it.
    Warn,
    /// An operation ended badly.
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogMessage {
    pub level: LogLevel,
    pub text: String,
}

impl LogMessage {
    pub fn info(text: impl Into<String>) -> Self {
        Self { level: LogLevel::Info, text: text.into() }
    }

    pub fn warn(text: impl Into<String>) -> Self {
        Self { level: LogLevel::Warn, text: text.into() }
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self { level: LogLevel::Error, text: text.into() }
    }
}

/// Puts a line of the log among a core's effects, as `say!(out, warn, "no answer for {secs} s")`.
#[macro_export]
macro_rules! say {
    ($out:expr, $level:ident, $($text:tt)+) => {
        $out.push(Effect::Say($crate::LogMessage::$level(format!($($text)+))))
    };
}

/// Writes a [`LogMessage`] to the log as a line of the module that calls it, which says whose line it is and by which
/// agent's level it is kept or dropped.
#[macro_export]
macro_rules! log {
    ($message:expr) => {{
        let $crate::LogMessage { level, text } = $message;
        match level {
            $crate::LogLevel::Info => ::tracing::info!("{text}"),
            $crate::LogLevel::Warn => ::tracing::warn!("{text}"),
            $crate::LogLevel::Error => ::tracing::error!("{text}"),
        }
    }};
}
