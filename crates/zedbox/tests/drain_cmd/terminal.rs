//! `zedbox drain` on a terminal: the sheet redrawn in place, colours, widths.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::KilledChild;
use crate::drain_cmd::node::{Node, has, words};

pub(crate) struct Terminal {
    child: KilledChild,
    pub(crate) screen: File,
    pub(crate) read: String,
}

impl Terminal {
    fn start(node: &Node, line: &str, columns: u16, env: &[(&str, &str)]) -> Self {
        Self::of(node.command(line), (columns, 24), env)
    }

    pub(crate) fn of(command: Command, size: (u16, u16), env: &[(&str, &str)]) -> Self {
        Self::opened(command, size, env, false)
    }

    pub(crate) fn asking(command: Command) -> Self {
        Self::opened(command, (80, 24), &[], true)
    }

    fn opened(mut command: Command, (columns, rows): (u16, u16), env: &[(&str, &str)], types: bool) -> Self {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&screen, size).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let end: OwnedFd = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        if types {
            command.stdin(end.try_clone().unwrap());
        }
        command.envs(env.iter().copied()).stdout(end);
        // The program's output stays open with the command; it must be dropped, or the screen never ends.
        let child = KilledChild(command.spawn().unwrap());
        drop(command);
        Self { screen: File::from(screen), child, read: String::new() }
    }

    /// Reads until `words` appear after what was read before.
    pub(crate) fn until(&mut self, words: &str) {
        let begin = self.read.len();
        while !self.read[begin..].contains(words) {
            assert!(self.more(), "it ended without `{words}`: {}", self.read);
        }
    }

    fn resize(&self, columns: u16) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.screen, size).unwrap();
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::WINCH).unwrap();
    }

    fn more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // A terminal with a closed other end returns an error.
        let count = self.screen.read(&mut bytes).unwrap_or_default();
        self.read.push_str(&String::from_utf8_lossy(&bytes[..count]));
        count > 0
    }

    pub(crate) fn end(&mut self) -> i32 {
        while self.more() {}
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

#[test]
fn the_sheet_is_drawn_over_itself_until_the_end() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let mut terminal = Terminal::start(&node, "watch", 70, &[("TERM", "vt100")]);
    terminal.until("[##########..........] 2 of 4 gone, 1 terminating, 1");
    node.zedkube_tells("drain-9-complete");
    terminal.until("[####################] 4 of 4 gone");
    assert_eq!(terminal.end(), 0);
    assert!(terminal.read.ends_with("complete: drained: 4 pods evicted, none left\r\n"), "{}", terminal.read);
    // Each sheet overwrites the whole one before, and is at most as wide as the terminal.
    let mut rows_before: Option<usize> = None;
    for frame in terminal.read.split_inclusive("\x1b[J").filter(|it| it.ends_with("\x1b[J")) {
        if let Some(rows) = rows_before {
            assert!(frame.starts_with(&format!("\r\x1b[{rows}A")), "not {rows} rows back: {frame:?}");
        }
        let lines: Vec<String> = frame.lines().map(bare).filter(|line| !line.is_empty()).collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 70), "{lines:#?}");
        rows_before = Some(lines.len());
    }
    assert!(rows_before.is_some() && terminal.read.is_ascii(), "{}", terminal.read);
}

#[test]
fn on_a_small_terminal_the_blocker_and_the_next_step_stay_and_details_go() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    for (columns, rows, tier) in [(46, 16, false), (80, 24, true)] {
        let mut terminal = Terminal::of(node.command("watch"), (columns, rows), &[("TERM", "vt100")]);
        terminal.until("\x1b[J");
        let lines: Vec<String> = terminal.read.lines().map(bare).filter(|line| !line.is_empty()).collect();
        assert!(lines.len() < usize::from(rows), "{lines:#?}");
        let said = words(&lines.join(" "));
        has(
            &said,
            &[
                "BLOCKED: reboot waits, 1 of 4 pods cannot leave",
                "PodDisruptionBudget shop/web allows no disruption: 3 of 3 pods healthy, 3 required",
                "next step shop/web-5f7d-e757f: ",
                "`kubectl -n shop get pdb,pods` shows it",
            ],
        );
        assert_eq!(said.contains("tier application"), tier, "{lines:#?}");
        assert_eq!(said.contains("zedbox status --all"), !tier, "{lines:#?}");
    }
}

#[test]
fn k7_not_drained_is_red_on_a_terminal() {
    for (tree, code) in [("forced", 9), ("failed-drain-8", 5)] {
        let node = Node::of("drain-5-cordoned").with_zedkube();
        let mut terminal = Terminal::start(&node, "watch", 80, &[("TERM", "vt100")]);
        terminal.until("\x1b[J");
        node.zedkube_tells(tree);
        assert_eq!(terminal.end(), code);
        assert!(terminal.read.contains("\r\x1b[1;31mNOT DRAINED\x1b[0m: "), "{}", terminal.read);
    }
}

#[test]
fn a_window_that_becomes_narrower_gets_a_narrower_sheet_in_the_place_of_the_old_one() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let mut terminal = Terminal::start(&node, "watch", 100, &[("TERM", "vt100")]);
    terminal.until("\x1b[J");
    let wide: Vec<String> = terminal.read.lines().map(bare).filter(|line| !line.is_empty()).collect();
    terminal.resize(40);
    // Two sheets later everything drawn for the wide window is gone.
    terminal.until("\x1b[J");
    terminal.until("\x1b[J");
    let frames: Vec<&str> = terminal.read.split_inclusive("\x1b[J").collect();
    let narrow = frames.iter().position(|frame| frame.lines().all(|line| bare(line).chars().count() <= 40));
    let narrow = frames[narrow.unwrap()];
    let rows: usize = wide.iter().map(|line| line.chars().count().div_ceil(40)).sum();
    assert!(rows > wide.len() && narrow.starts_with(&format!("\r\x1b[{rows}A")), "{rows}: {narrow:?}");
}

#[test]
fn colours_are_for_terminals_whose_user_wants_them() {
    let node = Node::of("failed-drain-8");
    for (env, coloured) in [(("TERM", "xterm"), true), (("NO_COLOR", "1"), false), (("TERM", "dumb"), false)]
    {
        let mut terminal = Terminal::start(&node, "status", 80, &[env]);
        assert_eq!(terminal.end(), 5);
        assert_eq!(
            terminal.read.contains("\x1b[1;31mNOT DRAINED: reboot waits"),
            coloured,
            "{env:?}: {}",
            terminal.read
        );
        assert_eq!(terminal.read.contains('\x1b'), coloured, "{env:?}");
    }
}

#[test]
fn a_console_that_knows_no_width_gets_eighty_columns_and_a_dumb_one_plain_lines() {
    let node = Node::of("drain-5-cordoned");
    let mut terminal = Terminal::start(&node, "status", 0, &[]);
    assert_eq!(terminal.end(), 4);
    let longest = terminal.read.lines().map(|line| bare(line).chars().count()).max();
    assert!(longest.is_some_and(|it| it > 60 && it <= 80), "{longest:?}");
    let mut terminal = Terminal::start(&node, "watch", 80, &[("TERM", "dumb")]);
    terminal.until("blocked [budget]");
    node.zedkube_tells("drain-9-complete");
    assert_eq!(terminal.end(), 0);
    assert!(!terminal.read.contains('\x1b'), "{}", terminal.read);
}

fn bare(line: &str) -> String {
    let mut out = String::new();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' => drop(letters.by_ref().find(char::is_ascii_alphabetic)),
            '\r' => {}
            other => out.push(other),
        }
    }
    out
}
