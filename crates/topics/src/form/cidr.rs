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
