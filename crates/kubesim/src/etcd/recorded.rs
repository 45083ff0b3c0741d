//! Recorded answers of real members of etcd, by version and situation: the tables of `tests/golden/etcd`.
//!
//! Not here: their ids, names and connections (`etcd`).

use serde_json::Value;

/// The newest last.
pub const VERSIONS: [&str; 3] = ["3.4.23", "3.5.16", "3.6.13"];
const TABLES: [&str; 3] = [
    include_str!("../../../../tests/golden/etcd/3.4.23.json"),
    include_str!("../../../../tests/golden/etcd/3.5.16.json"),
    include_str!("../../../../tests/golden/etcd/3.6.13.json"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EtcdSituation {
    Leader,
    Follower,
    Alarm,
    LearnerOwn,
    NoQuorum,
}

impl EtcdSituation {
    const fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Alarm => "alarm",
            Self::LearnerOwn => "learner-own",
            Self::NoQuorum => "no-quorum",
        }
    }
}

#[derive(Debug)]
pub(super) struct EtcdTable(Value);

impl EtcdTable {
    pub(super) fn of(version: &str) -> std::io::Result<Self> {
        let table = VERSIONS.iter().zip(TABLES).find(|(it, _)| **it == version).map(|(_, table)| table);
        let table = table.ok_or_else(|| std::io::Error::other(format!("no table of etcd {version}")))?;
        Ok(Self(serde_json::from_str(table)?))
    }

    /// Status and body; `None` where the member did not answer within some seconds. A question without an
    /// answer in that situation has the leader's.
    pub(super) fn answer(&self, now: EtcdSituation, question: &str) -> Option<(u16, String)> {
        let mut answer = &self.0["situations"][now.name()]["answers"][question];
        if answer.is_null() {
            // A list without a quorum read is the same as one with it.
            let same = question.replace("{\"linearizable\":false}", "{\"linearizable\":true}");
            answer = &self.0["situations"]["leader"]["answers"][same];
        }
        let code = answer["code"].as_u64().and_then(|it| u16::try_from(it).ok()).filter(|it| *it > 0)?;
        Some((code, answer["lines"].as_array().map_or_else(|| answer["json"].to_string(), |it| text(it))))
    }

    /// A failed check on a page with checks; not recorded.
    pub(super) fn sick(&self, path: &str) -> (u16, String) {
        let readyz = self.answer(EtcdSituation::Leader, "/readyz?verbose").unwrap_or_default();
        match (path, readyz) {
            ("/readyz", (200, text)) => {
                let failed = "[-]serializable_read failed: scripted\n";
                (503, text.replace("[+]serializable_read ok\n", failed).replace("\nok\n", "\n"))
            }
            ("/readyz", readyz) => readyz,
            // Without such a page, health shows it.
            (_, (404, _)) => self.answer(EtcdSituation::NoQuorum, path).unwrap_or_default(),
            (_, _) => self.answer(EtcdSituation::Leader, path).unwrap_or_default(),
        }
    }

    /// In order.
    pub(super) fn metrics(&self) -> Vec<&str> {
        let name = |line: &str| line.find(['{', ' ']).unwrap_or(line.len());
        let mut names: Vec<&str> = self.all_lines().map(|line| &line[..name(line)]).collect();
        names.dedup();
        names
    }

    pub(super) fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let is_of =
            move |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        self.all_lines().filter(is_of)
    }

    fn all_lines(&self) -> impl Iterator<Item = &str> {
        self.0["situations"]["leader"]["answers"]["/metrics"]["lines"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }
}

fn text(lines: &[Value]) -> String {
    lines.iter().filter_map(Value::as_str).fold(String::new(), |text, line| text + line + "\n")
}
