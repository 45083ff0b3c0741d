//! Networks written as `a.b.c.d/n`, read as Go reads them. Pure: no clock, no I/O, no task.

use core::net::IpAddr;

/// A network as `a.b.c.d/n` names it; bits of the host do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    network: u128,
    /// Bits of the host.
    host_bits: u32,
    v4: bool,
}

impl Cidr {
    /// `None` where `text` is no network.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        // Like Go: digits only, no sign, no leading zero.
        let plain = bits.bytes().all(|it| it.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
        let bits: u32 = bits.parse().ok().filter(|_| plain)?;
        let address: IpAddr = address.parse().ok()?;
        let (number, v4) = number(address);
        let host_bits = if v4 { 32_u32 } else { 128 }.checked_sub(bits)?;
        Some(Self { network: front(number, host_bits), host_bits, v4 })
    }

    /// IPv4-mapped IPv6 counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        let (number, v4) = number(address.to_canonical());
        v4 == self.v4 && front(number, self.host_bits) == self.network
    }
}

fn number(address: IpAddr) -> (u128, bool) {
    match address {
        IpAddr::V4(it) => (u128::from(it.to_bits()), true),
        IpAddr::V6(it) => (it.to_bits(), false),
    }
}

fn front(number: u128, host_bits: u32) -> u128 {
    number.checked_shr(host_bits).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_hold_what_go_says_they_hold() {
        let holds =
            |cidr: &str, address: &str| Cidr::parse(cidr).map(|it| it.contains(address.parse().unwrap()));
        for (cidr, address, held) in [
            ("192.168.86.200/29", "192.168.86.207", Some(true)),
            ("192.168.86.200/29", "192.168.86.208", Some(false)),
            ("0.0.0.0/0", "203.0.113.1", Some(true)),
            ("0.0.0.0/0", "::1", Some(false)),
            ("10.0.0.1/32", "::ffff:10.0.0.1", Some(true)),
            ("::/0", "fe80::1", Some(true)),
            ("fd00::/8", "fe80::1", Some(false)),
            ("10.0.0.1/33", "10.0.0.1", None),
            ("10.0.0.1/+8", "10.0.0.1", None),
            ("10.0.0.1/", "10.0.0.1", None),
            ("10.0.0/8", "10.0.0.1", None),
        ] {
            assert_eq!(holds(cidr, address), held, "{cidr} {address}");
        }
    }
}
