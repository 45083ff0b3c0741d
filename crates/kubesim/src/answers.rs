//! Recorded answers of real components: kubesim answers from this table, and a test compares each row with
//! kubesim. A new answer of KubeVirt, Longhorn or Kubernetes needs a row.
//!
//! A row is one object of `tests/golden/kubesim/answers.json`: `name`; `component` and `compared`, the versions that it was
//! compared with; `how`, by a `run` of the component or in its `source`; `minors`, the first and last minor version for which
//! it holds, where not for all; `request`, described; `answer`. In a message `{guest}` stands for a name.

use std::sync::LazyLock;

use serde_json::Value;

use crate::failure::Failure;

const TABLE: &str = include_str!("../../../tests/golden/kubesim/answers.json");

static ROWS: LazyLock<Vec<Value>> = LazyLock::new(|| serde_json::from_str(TABLE).unwrap_or_default());

pub(crate) fn answer(name: &str, minor: u64) -> Option<&'static Value> {
    let holds = |it: &&Value| {
        let bound = |nth: usize| it["minors"][nth].as_u64();
        it["name"] == name && bound(0).is_none_or(|it| it <= minor) && bound(1).is_none_or(|it| minor <= it)
    };
    ROWS.iter().find(holds).map(|it| &it["answer"])
}

/// `None` where that version does not refuse. `filled` are the values of placeholders.
pub(crate) fn refusal(name: &str, minor: u64, filled: &[(&str, &str)]) -> Option<Failure> {
    let answer = answer(name, minor)?;
    let text = |member: &str| answer[member].as_str().unwrap_or_default().to_owned();
    let fill = |text: String, (what, with): &(&str, &str)| text.replace(&format!("{{{what}}}"), with);
    let code = answer["code"].as_u64().and_then(|it| it.try_into().ok()).unwrap_or(500);
    Some(Failure::new(code, &text("reason"), filled.iter().fold(text("message"), fill)))
}

pub(crate) fn check(name: &str, minor: u64, filled: &[(&str, &str)]) -> Result<(), Failure> {
    refusal(name, minor, filled).map_or(Ok(()), Err)
}
