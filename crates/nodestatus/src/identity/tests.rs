//! The identity against the values of the reference and of Go, and who is accepted by it.

use tokio::net::TcpListener;

use super::*;

/// The reference pins the first two values in `clusterstatusauth_test.go`; the others are Go 1.26's, with serial numbers that
/// begin with a high bit and with a zero.
#[test]
fn the_identity_is_the_reference_s_byte_for_byte() {
    for (token, bearer, sum) in [
        (
            "test-join-token",
            "8e9df6c76b89b9a2965bc34190469f2dac724bbe5ce18beb08a1214d94e6ddfc",
            "b2cd067de4af8389b7abb9a86f549f82420d82aebe08b984e483b49ac130e90b",
        ),
        (
            "token-0",
            "9d30d933f876eb598e35642ecfb280c6f89ef5f6c144a0553ddf5a9de9d4f4aa",
            "3d230e0dd5b5f8ffe5e547b7b7519b1b11df4e37fd58ae1e8e1168767e462789",
        ),
        (
            "token-161",
            "04d1246323029f89985c94d0762eae49d4876159c6e92096a662403754ad2ea7",
            "f477c3481f06d4b48d24c9507e2b2abd61228d44f5c1d6e891a0cdba8932a036",
        ),
    ] {
        let identity = ClusterIdentity::of(token).unwrap();
        assert_eq!(identity.bearer, bearer, "{token}");
        assert_eq!(hex(digest(&SHA256, &identity.certificate).as_ref()), sum, "{token}");
        assert!(!format!("{identity:?} {:?}", identity.header().unwrap()).contains(bearer));
    }
}

#[tokio::test]
async fn another_certificate_is_refused_and_so_is_the_same_one_without_its_key() {
    let [ours, other] = ["token-0", "token-161"].map(|it| ClusterIdentity::of(it).unwrap());
    let thief = ClusterIdentity { certificate: ours.certificate.clone(), ..other.clone() };
    assert!(thief.acceptor().is_err());
    for (of_server, expected) in [(&ours, true), (&other, false)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, acceptor) = (listener.local_addr().unwrap(), of_server.acceptor().unwrap());
        let serve = async { drop(acceptor.accept(listener.accept().await.unwrap().0).await) };
        let ask = async { ours.connect(TcpStream::connect(address).await.unwrap()).await };
        let (asked, ()) = tokio::join!(ask, serve);
        assert_eq!(asked.is_ok(), expected);
    }
    assert!(ours.is_shown(Some(&ours.header().unwrap())) && !ours.is_shown(None));
    assert!(!ours.is_shown(Some(&other.header().unwrap())));
}
