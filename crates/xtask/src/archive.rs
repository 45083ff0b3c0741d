//! Reproducible archives: sorted, owned by root, with one time.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use flate2::{Compression, GzBuilder};
use ring::digest::{SHA256, digest as sha};
use tar::{Builder, EntryType, Header};

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// From the top, without a leading slash.
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Entry {
    pub(crate) fn file(path: &str, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self { path: path.to_owned(), mode, bytes: bytes.into() }
    }
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let digit = |it: u8| char::from_digit(it.into(), 16).unwrap_or_default();
    sha(&SHA256, bytes).as_ref().iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// As a tar archive, with their folders and empty `folders`.
pub(crate) fn tar(entries: &[Entry], folders: &[&str], epoch: u64) -> anyhow::Result<Vec<u8>> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|one, other| one.path.cmp(&other.path));
    let mut archive = Builder::new(Vec::new());
    let mut put = |kind: EntryType, path: &str, mode: u32, bytes: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_username("root")?;
        header.set_groupname("root")?;
        header.set_mtime(epoch);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, path, bytes)
    };
    let above = |path: &str| -> Vec<String> {
        let all = Path::new(path).ancestors().skip(1);
        all.map(|it| it.display().to_string()).filter(|it| !it.is_empty()).collect()
    };
    let mut made: BTreeSet<String> = folders.iter().map(|it| (*it).to_owned()).collect();
    made.extend(folders.iter().copied().chain(sorted.iter().map(|it| it.path.as_str())).flat_map(above));
    for folder in &made {
        put(EntryType::Directory, &format!("{folder}/"), 0o755, &[])?;
    }
    for entry in sorted {
        put(EntryType::Regular, &entry.path, entry.mode, &entry.bytes)?;
    }
    Ok(archive.into_inner()?)
}

/// Without a name or a time.
pub(crate) fn gzip(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut packed = GzBuilder::new().write(Vec::new(), Compression::best());
    packed.write_all(bytes)?;
    Ok(packed.finish()?)
}
