//! What real members of etcd answered, by version and situation: the tables of `tests/golden/etcd`.
//!
//! Not here: whose ids, names and connections are put into them (`etcd`).

use serde_json::Value;

/// Versions of which there is a table, the newest last.
pub const VERSIONS: [&str; 3] = ["3.4.23", "3.5.16", "3.6.13"];
const TABLES: [&str; 3] = [
    include_str!("../../../../tests/golden/etcd/3.4.23.json"),
    include_str!("../../../../tests/golden/etcd/3.5.16.json"),
    include_str!("../../../../tests/golden/etcd/3.6.13.json"),
];

/// How the member that is asked stands.
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

/// The answers of one version.
#[derive(Debug)]
pub(super) struct EtcdTable(Value);

impl EtcdTable {
    pub(super) fn of(version: &str) -> std::io::Result<Self> {
        let table = VERSIONS.iter().zip(TABLES).find(|(it, _)| **it == version).map(|(_, table)| table);
        let table = table.ok_or_else(|| std::io::Error::other(format!("no table of etcd {version}")))?;
        Ok(Self(serde_json::from_str(table)?))
    }

    /// Status and body; `None` where the member did not answer within some seconds. A question that has no answer of its
    /// own in that situation has that of a leader.
    pub(super) fn answer(&self, now: EtcdSituation, question: &str) -> Option<(u16, String)> {
        let mut answer = &self.0["situations"][now.name()]["answers"][question];
        if answer.is_null() {
            // A list that is not asked of a majority is the same with one.
            let same = question.replace("{\"linearizable\":false}", "{\"linearizable\":true}");
            answer = &self.0["situations"]["leader"]["answers"][same];
        }
        let code = answer["code"].as_u64().and_then(|it| u16::try_from(it).ok()).filter(|it| *it > 0)?;
        Some((code, answer["lines"].as_array().map_or_else(|| answer["json"].to_string(), |it| text(it))))
    }

    /// A check that fails, as a page that has checks shows it; not of a table.
    pub(super) fn sick(&self, path: &str) -> (u16, String) {
        let readyz = self.answer(EtcdSituation::Leader, "/readyz?verbose").unwrap_or_default();
        match (path, readyz) {
            ("/readyz", (200, text)) => {
                let failed = "[-]serializable_read failed: scripted\n";
                (503, text.replace("[+]serializable_read ok\n", failed).replace("\nok\n", "\n"))
            }
            ("/readyz", readyz) => readyz,
            // Where there is no such page, health says it.
            (_, (404, _)) => self.answer(EtcdSituation::NoQuorum, path).unwrap_or_default(),
            (_, _) => self.answer(EtcdSituation::Leader, path).unwrap_or_default(),
        }
    }

    /// Names of the metrics, in their order.
    pub(super) fn metrics(&self) -> Vec<&str> {
        let name = |line: &str| line.find(['{', ' ']).unwrap_or(line.len());
        let mut names: Vec<&str> = self.all_lines().map(|line| &line[..name(line)]).collect();
        names.dedup();
        names
    }

    /// The lines of one of them.
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
