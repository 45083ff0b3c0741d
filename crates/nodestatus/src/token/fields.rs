//! Reads two fields of the controller's message `EncryptionBlock`.
//!
//! Not by a library, which would copy each string of the message, unneeded passwords included, into memory
//! that is not wiped. Other fields are skipped, of repeated ones the last counts. Source: the wire format of
//! protocol buffers; lf-edge/eve-api evecommon/acipherinfo.proto.
//!
//! Pure: no clock, no I/O, no task.

/// `cluster_token`, a string.
const TOKEN: u64 = 8;
/// `gzip_registration_manifest_yaml`, bytes.
const MANIFEST: u64 = 13;
/// A token must fit into a message between agents.
const TOKEN_LIMIT_BYTES: usize = 4096;

/// Empty where the message has none.
#[derive(PartialEq, Eq, Default)]
pub(super) struct TokenFields<'a> {
    pub(super) token: &'a str,
    /// Gzip.
    pub(super) manifest: &'a [u8],
}

pub(super) fn read(mut message: &[u8]) -> Result<TokenFields<'_>, &'static str> {
    let mut fields = TokenFields::default();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match (tag >> 3, tag & 7) {
            (0, _) => return Err("a field has the number 0"),
            (_, 0) => drop(varint(&mut message)?),
            (_, 1) => drop(take(&mut message, 8)?),
            (_, 5) => drop(take(&mut message, 4)?),
            (number, 2) => {
                let length = varint(&mut message)?;
                let content = take(&mut message, length)?;
                match number {
                    TOKEN => fields.token = token(content)?,
                    MANIFEST => fields.manifest = content,
                    _ => {}
                }
            }
            _ => return Err("a field has a type that is not in use"),
        }
    }
    Ok(fields)
}

fn token(content: &[u8]) -> Result<&str, &'static str> {
    if content.len() > TOKEN_LIMIT_BYTES {
        return Err("the token is longer than 4096 bytes");
    }
    str::from_utf8(content).ok().ok_or("the token is no UTF-8")
}

/// Up to 64 bits, seven per byte, lowest first.
fn varint(message: &mut &[u8]) -> Result<u64, &'static str> {
    let mut number = 0_u64;
    for nth in 0..10 {
        let Some((byte, rest)) = message.split_first() else { return Err("it ends within a number") };
        *message = rest;
        let bits = u64::from(byte & 0x7f);
        if nth == 9 && bits > 1 {
            break;
        }
        number |= bits << (7 * nth);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number is longer than 64 bits")
}

fn take<'a>(message: &mut &'a [u8], length: u64) -> Result<&'a [u8], &'static str> {
    let taken = usize::try_from(length).ok().and_then(|length| message.split_at_checked(length));
    let (content, rest) = taken.ok_or("it ends within a field")?;
    *message = rest;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: &[u8]) -> Result<(String, Vec<u8>), &'static str> {
        read(message).map(|it| (it.token.to_owned(), it.manifest.to_owned()))
    }

    #[test]
    fn two_fields_are_read_and_all_others_skipped() {
        let message = b"\x0a\x03key\x42\x05first\x48\x96\x01\x42\x04t<k>\x6a\x03\x00\xff\x1f\x79\0\0\0\0\0\0\0\0\xfd\x7f\0\0\0\0";
        assert_eq!(said(message), Ok(("t<k>".to_owned(), b"\x00\xff\x1f".to_vec())));
        assert_eq!(said(b""), Ok((String::new(), Vec::new())));
        // The same number with another type is another field.
        assert_eq!(said(b"\x40\x05"), Ok((String::new(), Vec::new())));
        let longest = "t".repeat(4096);
        let message = [b"\x42\x80\x20".as_slice(), longest.as_bytes()].concat();
        assert_eq!(said(&message).unwrap().0, longest);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let long = [b"\x42\x81\x20".as_slice(), &[b't'; 4097]].concat();
        let wrong: [(&[u8], &str); 12] = [
            (b"\x42", "within a number"),
            (b"\x42\x05abcd", "within a field"),
            (b"\x42\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "within a field"),
            (b"\x79\0\0\0\0\0\0\0", "within a field"),
            (b"\x7d\0\0\0", "within a field"),
            (b"\x48\x80", "within a number"),
            (b"\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "64 bits"),
            (b"\x48\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", "64 bits"),
            (b"\x02\x00", "number 0"),
            (b"\x0b\x0c", "type"),
            (b"\x42\x02\xc3\x28", "UTF-8"),
            (&long, "4096"),
        ];
        for (message, word) in wrong {
            let refused = said(message).unwrap_err();
            assert!(refused.contains(word), "{message:x?}: {refused}");
        }
    }
}
