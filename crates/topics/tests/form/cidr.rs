use topics::Cidr;

#[test]
fn prefixes_hold_what_go_says_they_hold() {
    let holds = |cidr: &str, address: &str| Cidr::parse(cidr).map(|it| it.contains(address.parse().unwrap()));
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
