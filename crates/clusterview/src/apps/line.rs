//! A line of an application as newlogd reads it: one JSON object a line.
//!
//! newlogd reads `level`, `time`, `msg`, `source` and `appuuid`, and keeps the whole object as the message.
//! It gets no `containername`: with one it wraps our object in its own without escaping it, which no reader
//! can parse. So the container is in `container`, as part of the message. Sources: lf-edge/eve pkg/newlog;
//! the reference's LOGGING page: a message has 8192 bytes at most. Pure: no clock, no I/O, no task.

use crate::pods::LogLine;
use serde::Serialize;
use topics::GoTime;

use super::course::LogSource;
use crate::NAME;

/// Escaped text per object: with the other members it stays under 8192 bytes.
const TEXT_BYTES: usize = 7000;

#[derive(Serialize)]
struct LogObject<'a> {
    level: &'static str,
    time: String,
    msg: &'a str,
    source: &'static str,
    appuuid: &'a str,
    container: &'a str,
    eventtime: String,
}

/// Appends `line` to `out`, in several objects when it is long. `time` is when it is passed on, `eventtime`
/// when the container wrote it.
pub(super) fn write(out: &mut Vec<u8>, source: &LogSource, line: &LogLine, now: GoTime) {
    let mut text = line.text.as_str();
    let cut;
    if line.left_out > 0 {
        cut = format!("{text} [{} bytes left out]", line.left_out);
        text = &cut;
    }
    loop {
        let (part, rest) = text.split_at(fitting(text));
        let told = LogObject {
            level: "info",
            time: now.rfc3339(),
            msg: part,
            source: NAME,
            appuuid: &source.app,
            container: &source.container,
            eventtime: line.at.to_string(),
        };
        // Text and numbers cannot fail.
        out.extend(serde_json::to_vec(&told).unwrap_or_default());
        out.push(b'\n');
        text = rest;
        if text.is_empty() {
            return;
        }
    }
}

fn fitting(text: &str) -> usize {
    let mut room = TEXT_BYTES;
    for (place, each) in text.char_indices() {
        let escaped = match each {
            '"' | '\\' => 2,
            '\0'..='\x1f' => 6,
            _ => each.len_utf8(),
        };
        match room.checked_sub(escaped) {
            Some(left) => room = left,
            None => return place,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn lines_of(text: &str, left_out: usize) -> Vec<Value> {
        let source = LogSource {
            app: "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c".to_owned(),
            pod: "p".to_owned(),
            uid: "u".to_owned(),
            container: "c".repeat(63),
        };
        let at = "2026-03-14T09:30:00.123456789Z".parse().unwrap();
        let mut out = Vec::new();
        let line = LogLine { at, text: text.to_owned(), left_out };
        write(&mut out, &source, &line, "2026-03-14T09:30:07.000000001Z".parse().unwrap());
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with('\n') && text.lines().all(|line| line.len() < 8192));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_line_is_one_object_with_what_newlogd_reads() {
        let expected = json!({
            "level": "info", "time": "2026-03-14T09:30:07.000000001Z", "msg": "a \"b\"\t\u{1b}[31mc",
            "source": "zedkube", "appuuid": "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c",
            "container": "c".repeat(63), "eventtime": "2026-03-14T09:30:00.123456789Z",
        });
        assert_eq!(lines_of("a \"b\"\t\u{1b}[31mc", 0), [expected]);
        assert_eq!(lines_of("", 0)[0]["msg"], "");
        assert_eq!(lines_of("a", 7)[0]["msg"], "a [7 bytes left out]");
    }

    #[test]
    fn a_long_line_becomes_several_objects_and_nothing_of_it_is_lost() {
        for unit in ["x", "\u{1}", "\"", "ä", "日", "a\\\u{7f}"] {
            let text = unit.repeat(9000);
            let parts = lines_of(&text, 0);
            assert!(parts.len() > 1);
            let whole: String = parts.iter().map(|part| part["msg"].as_str().unwrap()).collect();
            assert!(whole == text, "{unit:?}");
        }
    }
}
