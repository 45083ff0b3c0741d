//! Bytes of a log to lines, each with the time at which its container wrote it.
//!
//! The node's text in place of an unreadable log has no time and is not from the application.
//! Pure: no clock, no I/O, no task.

use jiff::Timestamp;

/// Kept of a line.
pub const LINE_LIMIT_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// By the clock of the container's node.
    pub at: Timestamp,
    pub text: String,
    /// Cut bytes.
    pub left_out: usize,
}

#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    begun: Vec<u8>,
    left_out: usize,
    strange: usize,
}

impl LineSplitter {
    /// Adds the lines that `bytes` complete to `out`. Returns their bytes of text.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<LogLine>) -> usize {
        let (mut rest, mut taken) = (bytes, 0);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.keep(&rest[..end]);
            taken += self.complete(out);
            rest = &rest[end + 1..];
        }
        self.keep(rest);
        taken
    }

    /// Takes the rest as a line without an end: its writer has ended.
    pub(super) fn finish(&mut self, out: &mut Vec<LogLine>) {
        if !self.begun.is_empty() {
            self.complete(out);
        }
    }

    /// Number of lines without a time.
    pub(super) fn strange(&self) -> usize {
        self.strange
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_LIMIT_BYTES.saturating_sub(self.begun.len()).min(bytes.len());
        self.begun.extend_from_slice(&bytes[..room]);
        self.left_out += bytes.len() - room;
    }

    fn complete(&mut self, out: &mut Vec<LogLine>) -> usize {
        let bytes = std::mem::take(&mut self.begun);
        let left_out = std::mem::take(&mut self.left_out);
        let text = String::from_utf8_lossy(&bytes);
        let (time, text) = text.split_once(' ').unwrap_or((&text, ""));
        let Ok(at) = time.parse::<Timestamp>() else {
            self.strange += 1;
            return 0;
        };
        out.push(LogLine { at, text: text.to_owned(), left_out });
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: &str = "2026-03-14T09:30:00.000000001Z";

    fn read(pieces: &[&[u8]]) -> (Vec<LogLine>, LineSplitter) {
        let (mut lines, mut out) = (LineSplitter::default(), Vec::new());
        for piece in pieces {
            lines.feed(piece, &mut out);
        }
        (out, lines)
    }

    fn line(text: &str, left_out: usize) -> LogLine {
        LogLine { at: AT.parse().unwrap(), text: text.to_owned(), left_out }
    }

    #[test]
    fn lines_come_out_whole_however_the_bytes_are_cut() {
        let whole = format!("{AT} one  two\n{AT} \n{AT}\n{AT} ä\n");
        let expected = [line("one  two", 0), line("", 0), line("", 0), line("ä", 0)];
        assert_eq!(read(&[whole.as_bytes()]).0, expected);
        let single: Vec<&[u8]> = whole.as_bytes().chunks(1).collect();
        assert_eq!(read(&single).0, expected);
    }

    #[test]
    fn a_line_whose_end_has_not_come_is_taken_only_when_its_writer_has_ended() {
        let begun = format!("{AT} one\n{AT} tw");
        let (mut out, mut lines) = read(&[begun.as_bytes()]);
        assert_eq!(out, [line("one", 0)]);
        lines.finish(&mut out);
        lines.finish(&mut out);
        assert_eq!(out, [line("one", 0), line("tw", 0)]);
    }

    #[test]
    fn a_long_line_is_cut_and_says_by_how_much_and_takes_no_more_memory() {
        let long = format!("{AT} {}\n{AT} next\n", "x".repeat(3 * LINE_LIMIT_BYTES));
        let pieces: Vec<&[u8]> = long.as_bytes().chunks(1000).collect();
        let (out, lines) = read(&pieces);
        assert_eq!(out[0].text.len() + out[0].left_out, 3 * LINE_LIMIT_BYTES);
        assert_eq!((out[0].text.len(), &out[1]), (LINE_LIMIT_BYTES - AT.len() - 1, &line("next", 0)));
        assert!(lines.begun.capacity() <= 2 * LINE_LIMIT_BYTES);
    }

    #[test]
    fn what_has_no_time_is_no_line_and_bytes_that_are_no_text_are_shown_as_such() {
        let text = [b"unable to retrieve container logs for containerd://1\n", AT.as_bytes(), b" a\xffb\n"];
        let (out, lines) = read(&text);
        assert_eq!((out, lines.strange()), (vec![line("a\u{fffd}b", 0)], 1));
        // An offset is the same instant.
        let (out, _) = read(&[b"2026-03-14T11:30:00.000000001+02:00 a\n"]);
        assert_eq!(out, [line("a", 0)]);
    }
}
