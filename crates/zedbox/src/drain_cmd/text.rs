//! Words and columns for a person. Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;

use sheet::RowWeight;
use sheet::text::number;
use topics::acts;

/// Columns of the labels on the left, with the blanks behind them.
const LABEL: usize = 11;
/// A terminal of fewer lines is written to as if it had these.
const FEWEST_LINES: usize = 4;

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

/// Rows of a screen, in the order in which they are read, each with its weight and what it is about.
#[derive(Debug)]
pub(crate) struct Sheet {
    rows: Vec<(RowWeight, &'static str, Vec<String>)>,
    /// Of the first row.
    colour: Option<&'static str>,
}

impl Sheet {
    pub(crate) fn new(headline: &str, colour: Option<&'static str>) -> Self {
        let mut sheet = Self { rows: Vec::new(), colour };
        sheet.add(RowWeight::Essential, "", headline);
        sheet
    }

    pub(crate) fn add(&mut self, weight: RowWeight, label: &'static str, row: &str) {
        self.rows.push((weight, label, row.lines().map(str::to_owned).collect()));
    }

    pub(crate) fn text(&self, colours: bool) -> String {
        let lines = |(at, (_, _, lines)): (usize, &(RowWeight, &str, Vec<String>))| match self
            .colour
            .filter(|_| colours && at == 0)
        {
            Some(colour) => format!("\x1b[1;{colour}m{}\x1b[0m\n", lines.join("\n")),
            None => lines_of(lines, "\n"),
        };
        self.rows.iter().enumerate().map(lines).collect()
    }

    /// What concerns a person now, without the details, in fewer than `rows` lines.
    pub(crate) fn brief(mut self, rows: usize, columns: usize) -> Self {
        self.rows.retain(|(weight, ..)| *weight < RowWeight::Detail);
        self.fit(rows, columns)
    }

    /// What fits into fewer than `rows` lines: the lightest rows go first, the last of them before others; then the
    /// longest of the rest is cut. The last line says what went, or how much where that has no room.
    pub(crate) fn fit(mut self, rows: usize, columns: usize) -> Self {
        let room = rows.saturating_sub(1).max(FEWEST_LINES);
        let height = |sheet: &Self| sheet.rows.iter().map(|(_, _, lines)| lines.len()).sum::<usize>();
        let (mut dropped, mut labels) = (0, BTreeSet::new());
        // A line is needed to say that something is missing.
        while height(&self) + usize::from(dropped > 0) > room {
            let heaviest = self.rows.iter().map(|(weight, ..)| *weight).max();
            let last = self
                .rows
                .iter()
                .rposition(|(weight, ..)| Some(*weight) == heaviest && *weight > RowWeight::Essential);
            if let Some(last) = last {
                let (weight, label, lines) = self.rows.remove(last);
                dropped += lines.len();
                labels.insert((weight, label));
                continue;
            }
            // The last of them, the next step, holds a command, which is no use when it is cut.
            let cut = |rows: &[(RowWeight, &str, Vec<String>)]| {
                let longest = rows.iter().enumerate().max_by_key(|(_, (_, _, lines))| lines.len());
                longest.filter(|(_, (_, _, lines))| lines.len() > 1).map(|(at, _)| at)
            };
            let before = self.rows.len().saturating_sub(1);
            let Some(at) = cut(&self.rows[..before]).or_else(|| cut(&self.rows)) else { break };
            self.rows[at].2.pop();
            dropped += 1;
        }
        if dropped > 0 {
            let mut seen = BTreeSet::new();
            let labels: Vec<&str> =
                labels.into_iter().map(|(_, label)| label).filter(|it| seen.insert(*it)).collect();
            let named = format!("also: {}; zedbox status --all", labels.join(", "));
            let counted = format!("... {} more: zedbox status --all", number(dropped, "line"));
            let fits = !labels.is_empty() && named.chars().count() <= columns;
            self.rows.push((RowWeight::Essential, "", vec![if fits { named } else { counted }]));
        }
        self
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
                sheet.add(weight, row.split(' ').next().unwrap(), row);
            }
            sheet
        };
        let whole = sheet().text(false);
        assert_eq!(sheet().fit(11, 80).text(false), whole);
        let all = "state 1\nstate 2\npods\nblocked 1\nblocked 2\nblocked 3\npending\nnext step\n";
        assert_eq!(
            sheet().fit(10, 80).text(false),
            format!("{all}also: tier, zedkube; zedbox status --all\n")
        );
        assert_eq!(sheet().fit(10, 38).text(false), format!("{all}... 2 lines more: zedbox status --all\n"));
        // The heavier first.
        let least =
            "state 1\nblocked 1\nnext step\nalso: pending, pods, tier, zedkube; zedbox status --all\n";
        for rows in [5, 0] {
            assert_eq!(sheet().fit(rows, 80).text(false), least);
        }
        // What was cut leaves no colour behind.
        assert!(sheet().fit(5, 80).text(true).starts_with("\x1b[1;33mstate 1\x1b[0m\n"));
    }

    #[test]
    fn a_terminal_that_became_narrower_holds_more_rows() {
        let text = format!("\x1b[1;33m{}\x1b[0m\n\nshort\n", "x".repeat(80));
        assert_eq!((height(&text, 80), height(&text, 79), height(&text, 20)), (3, 4, 6));
        assert_eq!(height("", 80), 0);
    }
}
