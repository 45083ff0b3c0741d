//! The bytes of an image: unpacked, counted, and digested while they are read.
//!
//! Not here: where they go.

use std::fs::File;
use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use ring::digest::{Context, SHA256};

use super::{Bytes, ImageToWrite, Percent, hex, refuse, root_layer};
use crate::Error;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

pub(super) struct ImageSource {
    name: String,
    sha256: String,
    /// Unpacked length, if known.
    bytes: Option<u64>,
    unpacked: Unpacked,
}

enum Unpacked {
    Plain(Box<Tally>),
    Gzip(Box<MultiGzDecoder<Tally>>),
}

impl ImageSource {
    /// `percent` follows the reading.
    pub(super) fn open(image: &ImageToWrite, percent: Percent) -> Result<Self, Error> {
        let given = if image.sha256.is_empty() { String::new() } else { root_layer::digits(&image.sha256)? };
        let (path, sha256) = match &image.bytes {
            Bytes::Inline(text) => {
                let raw = Box::new(io::Cursor::new(text.clone().into_bytes()));
                return Self::unpack("the stand-in".to_owned(), given, raw, text.len() as u64, percent);
            }
            Bytes::Path(path) if !path.is_dir() => (path.clone(), given),
            Bytes::Path(folder) => {
                let layer = root_layer::root(folder, &[], &given)?;
                (layer.path, layer.sha256)
            }
            Bytes::Blobs { folder, names } => {
                let layer = root_layer::root(folder, names, &given)?;
                (layer.path, layer.sha256)
            }
        };
        let name = path.display().to_string();
        let told = |cause: io::Error| refuse(format!("{name}: {cause}"));
        let file = File::open(&path).map_err(told)?;
        let total = file.metadata().map_err(told)?.len();
        Self::unpack(name, sha256, Box::new(file), total, percent)
    }

    fn unpack(
        name: String,
        sha256: String,
        mut raw: Box<dyn Read + Send>,
        total: u64,
        percent: Percent,
    ) -> Result<Self, Error> {
        let mut head = Vec::new();
        let read = raw.by_ref().take(ZSTD.len() as u64).read_to_end(&mut head);
        read.map_err(|cause| refuse(format!("{name}: {cause}")))?;
        if head.is_empty() {
            return Err(refuse(format!("{name} is empty")));
        }
        if head == ZSTD {
            return Err(refuse(format!("{name} is packed by zstd; give it plain or packed by gzip")));
        }
        let gzip = head.starts_with(GZIP);
        let raw = Box::new(io::Cursor::new(head).chain(raw));
        let tally = Tally { raw, digest: Context::new(&SHA256), done: 0, total, percent };
        let (bytes, unpacked) = if gzip {
            (None, Unpacked::Gzip(Box::new(MultiGzDecoder::new(tally))))
        } else {
            // A pipe has no length.
            (Some(total).filter(|total| *total > 0), Unpacked::Plain(Box::new(tally)))
        };
        Ok(Self { name, sha256, bytes, unpacked })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Length, if known before it is read.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    pub(super) fn fill(&mut self, into: &mut [u8]) -> Result<usize, Error> {
        let mut count = 0;
        while let Some(room) = into.get_mut(count..).filter(|room| !room.is_empty()) {
            let read = match &mut self.unpacked {
                Unpacked::Plain(tally) => tally.read(room),
                Unpacked::Gzip(decoder) => decoder.read(room),
            };
            match read {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(refuse(format!("{} cannot be read: {cause}", self.name))),
            }
        }
        Ok(count)
    }

    /// After all was read: whether it was the wanted image.
    pub(super) fn finish(self) -> Result<(), Error> {
        let mut tally = match self.unpacked {
            Unpacked::Plain(tally) => *tally,
            Unpacked::Gzip(decoder) => decoder.into_inner(),
        };
        io::copy(&mut tally, &mut io::sink())
            .map_err(|cause| refuse(format!("{} cannot be read: {cause}", self.name)))?;
        let found = hex(tally.digest.finish().as_ref());
        if self.sha256.is_empty() || self.sha256 == found {
            return Ok(());
        }
        Err(refuse(format!(
            "{} has the sha256 {found}, not {}; bring the image again",
            self.name, self.sha256
        )))
    }
}

struct Tally {
    raw: Box<dyn Read + Send>,
    digest: Context,
    done: u64,
    total: u64,
    percent: Percent,
}

impl Read for Tally {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.raw.read(into)?;
        self.digest.update(into.get(..count).unwrap_or_default());
        self.done += count as u64;
        let percent = self.done.saturating_mul(100) / self.total.max(1);
        let percent = u8::try_from(percent.min(100)).unwrap_or(100);
        self.percent.send_if_modified(|told| step::update(told, percent));
        Ok(count)
    }
}
