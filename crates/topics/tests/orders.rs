//! What a person orders on a node, from any bytes: refused, or read as what is written back the same. `fuzz/` looks deeper.

use topics::{DeviceOrder, NodeDrainRequest, OperationPause, PreflightPass, WindowPass, go_json};

/// Reads `bytes` as each order, pause and pass; returns how many parse.
///
/// Errors: a value changes when written and read again, or a pause has more time left than its length.
pub(crate) fn trial(bytes: &[u8]) -> Result<usize, String> {
    let pause: Option<OperationPause> = go_json::from_slice(bytes).ok();
    for (boot_id, now) in [("", 0), ("b", u64::MAX), (pause.as_ref().map_or("", |it| &it.boot_id), 1)] {
        let left = pause.as_ref().and_then(|it| it.left_secs(boot_id, now));
        if left.is_some_and(|left| pause.as_ref().is_some_and(|it| left > it.lasts_secs)) {
            return Err(format!("{left:?} s are left of {pause:?}"));
        }
    }
    let shown = [
        again(pause.as_ref())?.map(|it| it.words()),
        again(go_json::from_slice::<DeviceOrder>(bytes).ok().as_ref())?.map(|it| it.words()),
        again(go_json::from_slice::<WindowPass>(bytes).ok().as_ref())?.map(|it| format!("{:?}", it.id())),
        again(go_json::from_slice::<NodeDrainRequest>(bytes).ok().as_ref())?
            .map(|it| format!("{:?}", it.id())),
        again(PreflightPass::read(bytes).ok().as_ref())?.map(|it| format!("{it:?}")),
    ];
    Ok(shown.iter().flatten().filter(|it| !it.is_empty()).count())
}

fn again<T>(value: Option<&T>) -> Result<Option<T>, String>
where
    T: PartialEq + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let Some(value) = value else { return Ok(None) };
    let written = go_json::to_vec(value).map_err(|cause| cause.to_string())?;
    let again = go_json::from_slice(&written).map_err(|cause| cause.to_string())?;
    if again == *value { Ok(Some(again)) } else { Err(format!("{value:?} became {again:?}")) }
}

#[test]
fn s4_any_bytes_as_an_order_are_refused_or_stay_what_they_are() {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/order");
    let mut read = 0;
    for file in std::fs::read_dir(kept).unwrap() {
        let path = file.unwrap().path();
        let tried = trial(&std::fs::read(&path).unwrap());
        read += tried.unwrap_or_else(|broken| panic!("{}: {broken}", path.display()));
    }
    assert!(read >= 10, "{read} were read");
}
