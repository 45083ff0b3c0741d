//! How a value is made to fit its message: the first items of its lists stay and the rest is counted, long texts are
//! cut, until the encoded form is short enough. A value that is too long cannot be published at all.
//!
//! Measured is the encoded form itself, so the bound holds for any content. What a topic gives up is in its
//! [`Topic::cut`]; its lists are ordered worst first. Not here: sockets. The limit is 65,534 bytes of base64. Pure: no clock, no I/O, no task.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::go_json::{Error, to_vec};
use crate::{KubeClusterInfo, Topic};

/// Limit of a value in a message: 65,534 bytes hold 49,150 of a value, less topic, key and the paths of large
/// members.
pub const VALUE_BYTES: usize = 48_000;
/// Limit of a large member: its file has less than 1 MiB.
pub const LARGE_BYTES: usize = (1 << 20) - 1024;
/// Limits of texts, from the most generous to the shortest.
const TEXT_BYTES: [usize; 4] = [2048, 512, 128, 48];
/// Fewer items of a list than this are kept only when no shorter text makes room for more.
const FEW: usize = 16;

/// How much of a value is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    items: usize,
    bytes: usize,
}

impl Most {
    /// Keeps the first items; returns how many were left out.
    pub(crate) fn list<T>(self, items: &mut Vec<T>) -> u32 {
        let out = items.len().saturating_sub(self.items);
        items.truncate(self.items);
        u32::try_from(out).unwrap_or(u32::MAX)
    }

    /// The same, with each text cut.
    pub(crate) fn texts(self, items: &mut Vec<String>) -> u32 {
        let out = self.list(items);
        self.each(items);
        out
    }

    /// Keeps the first entries; returns how many were left out.
    pub(crate) fn map<K: Ord + Clone, V>(self, items: &mut BTreeMap<K, V>) -> u32 {
        let Some(first_out) = items.keys().nth(self.items).cloned() else { return 0 };
        u32::try_from(items.split_off(&first_out).len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn set<K: Ord + Clone>(self, items: &mut BTreeSet<K>) -> u32 {
        let Some(first_out) = items.iter().nth(self.items).cloned() else { return 0 };
        u32::try_from(items.split_off(&first_out).len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn each<'a>(self, texts: impl IntoIterator<Item = &'a mut String>) {
        texts.into_iter().for_each(|it| self.text(it));
    }

    pub(crate) fn text(self, text: &mut String) {
        *text = cut_text(text, self.bytes);
    }
}

/// The form on disk, cut as far as needed.
///
/// Errors: it cannot be encoded.
pub fn encode<T: Topic>(value: &T) -> Result<Vec<u8>, Error> {
    let form = |most| {
        let mut kept = value.clone();
        kept.cut(most);
        to_vec(&kept)
    };
    longest(to_vec(value)?, VALUE_BYTES, &form).map(|(_, form)| form)
}

/// The longest cut of `value` with a form of at most so many bytes; the shortest where none fits.
fn within<T: Clone + Serialize>(
    value: &T,
    limit: usize,
    cut: impl Fn(&mut T, Most),
) -> Result<(T, Vec<u8>), Error> {
    let kept = |most| {
        let mut kept = value.clone();
        cut(&mut kept, most);
        kept
    };
    let (most, form) = longest(to_vec(value)?, limit, &|most| to_vec(&kept(most)))?;
    Ok((most.map_or_else(|| value.clone(), kept), form))
}

/// How much of a value is kept, `None` for all, and its form; `whole` is the full form.
fn longest(
    whole: Vec<u8>,
    limit: usize,
    form: &dyn Fn(Most) -> Result<Vec<u8>, Error>,
) -> Result<(Option<Most>, Vec<u8>), Error> {
    if fits(&whole, limit) {
        return Ok((None, whole));
    }
    let with = |items, bytes| {
        let most = Most { items, bytes };
        form(most).map(|form| (Some(most), form))
    };
    let mut best = (None, whole);
    for bytes in TEXT_BYTES {
        best = with(0, bytes)?;
        if !fits(&best.1, limit) {
            continue;
        }
        let (mut low, mut high) = (0, FEW);
        // An item takes a byte at least.
        while high <= limit {
            let more = with(high, bytes)?;
            if !fits(&more.1, limit) {
                break;
            }
            (low, best, high) = (high, more, high * 2);
        }
        // An eighth more or less is not worth the time.
        while high - low > 1 + low / 8 {
            let middle = low.midpoint(high);
            let more = with(middle, bytes)?;
            if fits(&more.1, limit) {
                (low, best) = (middle, more);
            } else {
                high = middle;
            }
        }
        if low >= FEW {
            break;
        }
    }
    Ok(best)
}

/// On a socket an empty list becomes `null`, which is longer.
fn fits(form: &[u8], limit: usize) -> bool {
    form.len() <= limit && form.len() + 2 * form.windows(2).filter(|it| it == b"[]").count() <= limit
}

impl KubeClusterInfo {
    /// Cuts its lists to what one message holds: `AppPods`, `AppVMIs` and `Storage` travel in a file each,
    /// the rest in the message itself, namespaces cut before nodes. The reference's shape has no place for
    /// the number of omitted items. Errors: it has no form.
    pub fn fit(&mut self) -> Result<(), Error> {
        fn list<T>(items: &mut Option<Vec<T>>, most: Most) {
            if let Some(items) = items {
                most.list(items);
            }
        }
        self.app_pods = within(&self.app_pods, LARGE_BYTES, list)?.0;
        self.app_vmis = within(&self.app_vmis, LARGE_BYTES, list)?.0;
        self.storage = within(&self.storage, LARGE_BYTES, |it, most| list(&mut it.volumes, most))?.0;
        let (nodes, form) = within(&self.nodes, VALUE_BYTES, list)?;
        self.nodes = nodes;
        self.pod_ns_info = within(&self.pod_ns_info, VALUE_BYTES.saturating_sub(form.len()), list)?.0;
        Ok(())
    }
}

/// `text` in at most so many bytes of a file, where some letters take more room than here; `…` marks the cut.
pub fn cut_text(text: &str, bytes: usize) -> String {
    const MORE: char = '…';
    let cost = |letter: char| match letter {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => 6,
        letter if letter.is_control() => 6,
        letter => letter.len_utf8(),
    };
    if text.chars().map(cost).sum::<usize>() <= bytes {
        return text.to_owned();
    }
    let mut room = bytes.saturating_sub(MORE.len_utf8());
    let fits = |letter: &char| {
        let left = room.checked_sub(cost(*letter));
        room = left.unwrap_or_default();
        left.is_some()
    };
    text.chars().take_while(fits).chain([MORE]).collect()
}
