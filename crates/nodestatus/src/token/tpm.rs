//! The only command for a TPM: make a shared point with its key (`TPM2_ECDH_ZGen`).
//!
//! Source: Trusted Platform Module Library, parts 2 and 3; the key is where lf-edge/eve pkg/pillar/evetpm puts it, and
//! has an empty password. Pure: no clock, no I/O, no task.

use zeroize::Zeroizing;

use super::block::{COORDINATE_BYTES, SharedPoint};

/// The TPM's key for exchanges.
pub(super) const KEY: u32 = 0x8100_0005;
pub(super) const RESPONSE_LIMIT_BYTES: usize = 4096;

/// `TPM_ST_NO_SESSIONS`, of refusals.
const PLAIN: u16 = 0x8001;
/// `TPM_ST_SESSIONS`.
const WITH_SESSION: u16 = 0x8002;
/// `TPM_CC_ECDH_ZGen`.
const ECDH_ZGEN: u32 = 0x0000_0154;
/// `TPM_RS_PW`: a password takes the place of a session.
const PASSWORD: u32 = 0x4000_0009;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum No {
    /// With this code.
    Refused(u32),
    Garbled(&'static str),
}

/// The command, for the peer's point.
pub(super) fn command(x: &[u8; COORDINATE_BYTES], y: &[u8; COORDINATE_BYTES]) -> Vec<u8> {
    let size = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    let mut point = Vec::new();
    for coordinate in [x, y] {
        point.extend(size(coordinate.len()));
        point.extend(coordinate);
    }
    // An empty nonce, no attributes, an empty password.
    let session = [PASSWORD.to_be_bytes().as_slice(), &size(0), &[0], &size(0)].concat();
    let session_bytes = u32::from(u16::from_be_bytes(size(session.len())));
    let body = [
        ECDH_ZGEN.to_be_bytes().as_slice(),
        &KEY.to_be_bytes(),
        &session_bytes.to_be_bytes(),
        &session,
        &size(point.len()),
        &point,
    ]
    .concat();
    let all_bytes = u32::from(u16::from_be_bytes(size(6 + body.len())));
    [WITH_SESSION.to_be_bytes().as_slice(), &all_bytes.to_be_bytes(), &body].concat()
}

pub(super) fn point(response: &[u8]) -> Result<SharedPoint, No> {
    let (tag, rest) = short(response)?;
    let (size, rest) = long(rest)?;
    let (code, body) = long(rest)?;
    if usize::try_from(size) != Ok(response.len()) {
        return Err(No::Garbled("its size is not the one that it names"));
    }
    match (tag, code) {
        (PLAIN | WITH_SESSION, 1..) => return Err(No::Refused(code)),
        (WITH_SESSION, 0) => {}
        _ => return Err(No::Garbled("its tag is none of those in use")),
    }
    let (parameters_bytes, body) = long(body)?;
    let parameters = usize::try_from(parameters_bytes).ok().and_then(|size| body.get(..size));
    let (point, after) = sized(parameters.ok_or(No::Garbled("it ends early"))?)?;
    let (x, rest) = sized(point)?;
    let (y, rest) = sized(rest)?;
    if !rest.is_empty() || !after.is_empty() {
        return Err(No::Garbled("it has more than a point"));
    }
    let mut shared = Zeroizing::new([0; 2 * COORDINATE_BYTES]);
    let (left, right) = shared.split_at_mut(COORDINATE_BYTES);
    for (place, coordinate) in [(left, x), (right, y)] {
        let zeros = COORDINATE_BYTES.checked_sub(coordinate.len());
        let zeros = zeros.ok_or(No::Garbled("a coordinate is longer than 32 bytes"))?;
        place.get_mut(zeros..).unwrap_or_default().copy_from_slice(coordinate);
    }
    if shared.iter().all(|byte| *byte == 0) {
        return Err(No::Garbled("its point is empty"));
    }
    Ok(shared)
}

fn short(bytes: &[u8]) -> Result<(u16, &[u8]), No> {
    let (number, rest) = bytes.split_first_chunk().ok_or(No::Garbled("it ends early"))?;
    Ok((u16::from_be_bytes(*number), rest))
}

fn long(bytes: &[u8]) -> Result<(u32, &[u8]), No> {
    let (number, rest) = bytes.split_first_chunk().ok_or(No::Garbled("it ends early"))?;
    Ok((u32::from_be_bytes(*number), rest))
}

/// Length-prefixed bytes.
fn sized(bytes: &[u8]) -> Result<(&[u8], &[u8]), No> {
    let (size, rest) = short(bytes)?;
    rest.split_at_checked(size.into()).ok_or(No::Garbled("it ends early"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::samples::{COMMAND, POINT, RESPONSE, bytes};
    use super::*;

    #[test]
    fn a_tpm_was_asked_this_and_said_that() {
        let command_bytes = bytes(COMMAND);
        let (x, y) = (&command_bytes[31..63], &command_bytes[65..97]);
        assert_eq!(command(x.try_into().unwrap(), y.try_into().unwrap()), command_bytes);
        assert_eq!(point(&bytes(RESPONSE)).unwrap().as_slice(), bytes(POINT));
        // No key there; a point that is not on the curve.
        assert_eq!(point(&bytes("80010000000a0000018b")), Err(No::Refused(0x18b)));
        assert_eq!(point(&bytes("80010000000a000001e7")), Err(No::Refused(0x1e7)));
    }

    #[test]
    fn coordinates_without_their_leading_zeros_are_filled_up() {
        // Parameters of 7 bytes: a point with X = 0x01 and Y empty.
        let short = point(&bytes("8002000000170000000000000007000500010100000000")).unwrap();
        let mut expected = [0; 64];
        expected[31] = 1;
        assert_eq!(short.as_slice(), expected);
    }

    #[test]
    fn a_response_that_makes_no_sense_is_refused() {
        let good = bytes(RESPONSE);
        for length in 0..good.len() {
            assert!(matches!(point(&good[..length]), Err(No::Garbled(_))), "{length}");
            // The same with a size that is right.
            let mut cut = good[..length].to_vec();
            if let Some(size) = cut.get_mut(2..6) {
                size.copy_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
            }
            // The parameters end at byte 84; what follows is the session.
            assert_eq!(point(&cut).is_ok(), length >= 84, "{length}");
        }
        let change = |at: usize, to: u8| {
            let mut changed = good.clone();
            changed[at] = to;
            point(&changed).map(|_| ())
        };
        let wrong = [
            (1, 0xc4, "tag"),
            (1, 1, "tag"),
            (5, 0x5a, "size"),
            (13, 0x47, "more"),
            (13, 0x45, "early"),
            (17, 0x21, "early"),
            (17, 0x1f, "early"),
        ];
        for (at, to, word) in wrong {
            match change(at, to) {
                Err(No::Garbled(why)) => assert!(why.contains(word), "{at}: {why}"),
                other => panic!("{at}: {other:?}"),
            }
        }
        // A head with the size that is right, then parameters.
        let said = |parameters: &[u8]| {
            let size = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
            let (all, here) = (size(14 + parameters.len()), size(parameters.len()));
            point(&[&[0x80, 2], all.as_slice(), &[0; 4], &here, parameters].concat())
        };
        let long = [&[0, 37, 0, 33], [1; 33].as_slice(), &[0, 0]].concat();
        assert_eq!(said(&long), Err(No::Garbled("a coordinate is longer than 32 bytes")));
        assert_eq!(said(&[0, 4, 0, 0, 0, 0]), Err(No::Garbled("its point is empty")));
    }
}
