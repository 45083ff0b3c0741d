//! Words, times and columns for a person. Pure: no clock, no I/O, no task.

use topics::{GoTime, acts};

/// Columns of the labels on the left, with the blanks behind them.
const LABEL: usize = 11;
/// A terminal of fewer lines is written to as if it had these.
const FEWEST_LINES: usize = 4;
/// Columns of a bar between its brackets.
const BAR: usize = 20;

/// `text` without anything that would move a terminal's cursor or change its state: texts come from files.
pub(crate) fn clean(text: &str) -> String {
    let shown = |letter: char| match letter {
        '\n' | '\t' => ' ',
        other if acts(other) => '?',
        other => other,
    };
    text.chars().map(shown).collect()
}

/// All `lines` in one text, each with `end` behind it.
pub(crate) fn lines_of<T: AsRef<str>>(lines: impl IntoIterator<Item = T>, end: &str) -> String {
    lines.into_iter().fold(String::new(), |text, line| text + line.as_ref() + end)
}

/// Lines of at most `width` characters; a longer word is cut.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    for word in clean(text).split_whitespace() {
        let mut letters: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + letters.len() > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        while used + letters.len() > width && width > 0 {
            let rest = letters.split_off((width - used).min(letters.len()));
            line.extend(letters);
            lines.push(std::mem::take(&mut line));
            (letters, used) = (rest, 0);
        }
        used += letters.len();
        line.extend(letters);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// `text` after `head`, further lines indented by as much as `head` is long; each ends with a new line.
pub(crate) fn paragraph(head: &str, text: &str, columns: usize) -> String {
    let indent = head.chars().count();
    let mut out = String::new();
    for (at, line) in wrap(text, columns.saturating_sub(indent).max(1)).into_iter().enumerate() {
        if at == 0 {
            out.push_str(head);
        } else {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(&line);
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// A row of a sheet: what it is about on the left, the text beside it.
pub(crate) fn row(label: &str, text: &str, columns: usize) -> String {
    paragraph(&format!("{label:<LABEL$}"), text, columns)
}

/// How much a row matters where not all of them have room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowWeight {
    /// The first line, the first blocker, the next step.
    Essential,
    /// What else holds the drain up, or what it has come to.
    Cause,
    /// How far it is.
    Course,
    Detail,
}

/// Rows of a screen, in the order in which they are read, each with its weight.
#[derive(Debug)]
pub(crate) struct Sheet {
    rows: Vec<(RowWeight, Vec<String>)>,
    /// Of the first row.
    colour: Option<&'static str>,
}

impl Sheet {
    pub(crate) fn new(headline: &str, colour: Option<&'static str>) -> Self {
        let mut sheet = Self { rows: Vec::new(), colour };
        sheet.add(RowWeight::Essential, headline);
        sheet
    }

    pub(crate) fn add(&mut self, weight: RowWeight, row: &str) {
        self.rows.push((weight, row.lines().map(str::to_owned).collect()));
    }

    pub(crate) fn text(&self, colours: bool) -> String {
        let lines = |(at, (_, lines)): (usize, &(RowWeight, Vec<String>))| match self
            .colour
            .filter(|_| colours && at == 0)
        {
            Some(colour) => format!("\x1b[1;{colour}m{}\x1b[0m\n", lines.join("\n")),
            None => lines_of(lines, "\n"),
        };
        self.rows.iter().enumerate().map(lines).collect()
    }

    /// What fits into fewer than `rows` lines: the lightest rows go first, the last of them before others; then the
    /// longest of the rest is cut.
    pub(crate) fn fit(mut self, rows: usize) -> Self {
        let room = rows.saturating_sub(1).max(FEWEST_LINES);
        let height = |sheet: &Self| sheet.rows.iter().map(|(_, lines)| lines.len()).sum::<usize>();
        let mut dropped = 0;
        // A line is needed to say that something is missing.
        while height(&self) + usize::from(dropped > 0) > room {
            let heaviest = self.rows.iter().map(|(weight, _)| *weight).max();
            let last = self
                .rows
                .iter()
                .rposition(|(weight, _)| Some(*weight) == heaviest && *weight > RowWeight::Essential);
            if let Some(last) = last {
                dropped += self.rows.remove(last).1.len();
                continue;
            }
            let longest = self.rows.iter_mut().max_by_key(|(_, lines)| lines.len());
            let Some((_, lines)) = longest.filter(|(_, lines)| lines.len() > 1) else { break };
            lines.pop();
            dropped += 1;
        }
        if dropped > 0 {
            self.rows.push((
                RowWeight::Essential,
                vec![format!("... {} more: zedbox drain status", number(dropped, "line"))],
            ));
        }
        self
    }
}

/// `1 attempt`, `2 attempts`.
pub(crate) fn number<N: std::fmt::Display + Copy + PartialEq + From<u8>>(count: N, of: &str) -> String {
    let end = if count == 1.into() { "" } else { "s" };
    format!("{count} {of}{end}")
}

/// How many rows of a terminal `text` takes, colours not counted.
pub(crate) fn height(text: &str, columns: usize) -> usize {
    let of_line = |line: &str| {
        let (mut seen, mut escaped) = (0_usize, false);
        for letter in line.chars() {
            match letter {
                '\x1b' => escaped = true,
                'm' if escaped => escaped = false,
                _ if escaped => {}
                _ => seen += 1,
            }
        }
        seen.div_ceil(columns.max(1)).max(1)
    };
    text.lines().map(of_line).sum()
}

/// `[#####.....]`: `part` of `whole`; full only when nothing is left.
pub(crate) fn bar(part: u32, whole: u32) -> String {
    let steps = u64::try_from(BAR).unwrap_or_default();
    let full = (u64::from(part) * steps).checked_div(u64::from(whole)).unwrap_or_default().min(steps);
    let full = usize::try_from(full).unwrap_or_default();
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR.saturating_sub(full)))
}

/// A length of time in its two largest units.
pub(crate) fn span(secs: u64) -> String {
    let (mins, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    let two = |large: u64, unit: &str, small: u64, of: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {of}"),
    };
    match (days, hours, mins) {
        (0, 0, 0) => format!("{secs} s"),
        (0, 0, mins) if mins < 10 => two(mins, "min", secs % 60, "s"),
        (0, 0, mins) => format!("{mins} min"),
        (0, hours, mins) => two(hours, "h", mins % 60, "min"),
        (days, hours, _) => two(days, "d", hours % 24, "h"),
    }
}

/// Seconds on the Unix clock.
pub(crate) fn unix_secs(at: GoTime) -> i64 {
    at.to_timestamp().as_second()
}

/// `09:30:04 UTC`, with the date when it is not today's.
pub(crate) fn clock_time(at: GoTime, now: GoTime) -> String {
    let (at, now) =
        (GoTime::from(at.to_timestamp()).to_string(), GoTime::from(now.to_timestamp()).to_string());
    let (Some(date), Some(time)) = (at.get(..10), at.get(11..19)) else { return at };
    if now.get(..10) == Some(date) { format!("{time} UTC") } else { format!("{date} {time} UTC") }
}

/// The time to the second, for lines of a log.
pub(crate) fn seconds(at: GoTime) -> String {
    let text = GoTime::from(at.to_timestamp()).to_string();
    text.get(..19).map_or(text.clone(), |secs| format!("{secs}Z"))
}

/// `at` in both ways: `09:30:04 UTC, 11 min ago`, or `10:30:00 UTC, in 48 min`.
pub(crate) fn moment(at: GoTime, now: GoTime) -> String {
    let away = unix_secs(at) - unix_secs(now);
    let length = span(away.unsigned_abs());
    let relative = match away {
        0 => "now".to_owned(),
        1.. => format!("in {length}"),
        _ => format!("{length} ago"),
    };
    format!("{}, {relative}", clock_time(at, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> GoTime {
        text.parse().unwrap()
    }

    #[test]
    fn rows_stay_within_the_columns_and_long_words_are_cut() {
        let text = format!("pod shop/web is held: {} then more words that go on and on", "x".repeat(150));
        for columns in [40, 80, 132] {
            let row = row("blocked", &text, columns);
            assert!(row.lines().all(|line| line.chars().count() <= columns), "{row}");
            assert!(row.lines().skip(1).all(|line| line.starts_with("           ")), "{row}");
            let told: String = row.split_whitespace().skip(1).collect();
            assert_eq!(told, text.split_whitespace().collect::<String>());
        }
        assert_eq!(row("tier", "", 80), "tier\n");
    }

    #[test]
    fn a_text_from_a_file_cannot_steer_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\u{9b}c\u{202e}d\r\ne"), "a?[2Jb?c?d? e");
    }

    #[test]
    fn a_bar_is_full_only_when_all_is_done() {
        for (part, whole, full) in
            [(0, 0, 0), (0, 4, 0), (1, 4, 5), (199, 200, 19), (200, 200, 20), (9, 4, 20)]
        {
            assert_eq!(bar(part, whole).matches('#').count(), full, "{part} of {whole}");
            assert_eq!(bar(part, whole).len(), 22);
        }
    }

    #[test]
    fn a_sheet_that_is_too_high_loses_the_lightest_rows_first_and_is_cut_last() {
        let sheet = || {
            let mut sheet = Sheet::new("state 1\nstate 2\n", Some("33"));
            for (weight, row) in [
                (RowWeight::Course, "pods"),
                (RowWeight::Detail, "tier"),
                (RowWeight::Essential, "blocked 1\nblocked 2\nblocked 3"),
                (RowWeight::Cause, "pending"),
                (RowWeight::Essential, "next step"),
                (RowWeight::Detail, "zedkube"),
            ] {
                sheet.add(weight, row);
            }
            sheet
        };
        let whole = sheet().text(false);
        assert_eq!(sheet().fit(11).text(false), whole);
        let all = "state 1\nstate 2\npods\nblocked 1\nblocked 2\nblocked 3\npending\nnext step\n";
        assert_eq!(sheet().fit(10).text(false), format!("{all}... 2 lines more: zedbox drain status\n"));
        let least = "state 1\nblocked 1\nnext step\n... 7 lines more: zedbox drain status\n";
        assert_eq!(
            (sheet().fit(5).text(false).as_str(), sheet().fit(0).text(false).as_str()),
            (least, least)
        );
        // What was cut leaves no colour behind.
        assert!(sheet().fit(5).text(true).starts_with("\x1b[1;33mstate 1\x1b[0m\n"));
    }

    #[test]
    fn one_is_one_and_others_are_many() {
        assert_eq!([0, 1, 2].map(|it: u32| number(it, "attempt")), ["0 attempts", "1 attempt", "2 attempts"]);
    }

    #[test]
    fn a_terminal_that_became_narrower_holds_more_rows() {
        let text = format!("\x1b[1;33m{}\x1b[0m\n\nshort\n", "x".repeat(80));
        assert_eq!((height(&text, 80), height(&text, 79), height(&text, 20)), (3, 4, 6));
        assert_eq!(height("", 80), 0);
    }

    #[test]
    fn lengths_of_time_have_two_units_at_most() {
        for (secs, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3599, "59 min"),
            (3600, "1 h"),
            (86_399, "23 h 59 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(span(secs), text);
        }
    }

    #[test]
    fn a_moment_is_told_in_utc_and_from_now_with_its_date_when_it_is_another_day() {
        let now = at("2026-03-14T09:41:00Z");
        assert_eq!(moment(at("2026-03-14T10:30:04+01:00"), now), "09:30:04 UTC, 10 min ago");
        assert_eq!(moment(at("2026-03-15T09:30:02Z"), now), "2026-03-15 09:30:02 UTC, in 23 h 49 min");
        assert_eq!(moment(now, now), "09:41:00 UTC, now");
    }
}
