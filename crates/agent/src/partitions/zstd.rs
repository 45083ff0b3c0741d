//! What is packed by zstd: frames one after the other, as packers with several threads write them.
//!
//! Source: RFC 8878, section 3.1.

use std::io::{self, BufRead as _, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The memory that a frame may ask for. The RFC asks each decoder for as much; `zstd -19` uses no more.
const WINDOW_BYTES: u64 = 8 << 20;

/// The bytes in the frames of `packed`.
pub(super) struct Frames<R> {
    packed: BufReader<R>,
    decoder: FrameDecoder,
    /// Whether the decoder is inside of a frame.
    inside: bool,
}

impl<R: Read> Frames<R> {
    pub(super) fn new(packed: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES);
        Self { packed: BufReader::new(packed), decoder, inside: false }
    }

    /// What is packed; what was read ahead of it is gone.
    pub(super) fn into_inner(self) -> R {
        self.packed.into_inner()
    }

    /// Goes into the next frame; false where there is none.
    fn enter(&mut self) -> io::Result<bool> {
        while !self.packed.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.packed) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.packed.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(FrameDecoderError::WindowSizeTooBig { requested, .. }) => {
                    return Err(io::Error::other(format!(
                        "a zstd frame asks for {requested} bytes of memory, the limit is {WINDOW_BYTES}; \
                         pack it by zstd -19 or less, without --long"
                    )));
                }
                Err(cause) => return Err(io::Error::other(cause)),
            }
        }
        Ok(false)
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while !into.is_empty() {
            if !self.inside && !self.enter()? {
                break;
            }
            self.inside = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let blocks = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.packed, blocks).map_err(io::Error::other)?;
            }
            let count = self.decoder.read(into)?;
            if count > 0 {
                return Ok(count);
            }
            let noted = self.decoder.get_checksum_from_data();
            if noted.is_some() && noted != self.decoder.get_calculated_checksum() {
                return Err(io::Error::other("the checksum of a zstd frame is wrong"));
            }
            self.inside = false;
        }
        Ok(0)
    }
}
