//! Room on a disk that cannot be read.

use std::fs::File;

use checks::Severity;
use checks::local::{Machine, look};
use jiff::Timestamp;

#[test]
fn u6_a_disk_whose_room_cannot_be_read_is_named_and_a_folder_that_is_not_there_is_not() {
    let root = tempfile::tempdir().unwrap();
    File::create(root.path().join("persist")).unwrap();
    let disks = |all: &[&str]| {
        let disks = all.iter().map(|it| (*it).to_owned()).collect();
        let machine = Machine { root: root.path().to_owned(), disks, ..Machine::default() };
        look(&machine, Timestamp::UNIX_EPOCH).into_iter().filter(|it| it.code == "disk").collect::<Vec<_>>()
    };
    assert_eq!(disks(&["nowhere", "no/where"]), []);
    let found = disks(&["persist/vault", "nowhere"]);
    let [one] = found.as_slice() else { panic!("{found:?}") };
    assert!(one.is_unread() && one.severity == Severity::Warns && !one.next.is_empty(), "{one:?}");
    assert!(one.text.contains("persist/vault: Not a directory"), "{one:?}");
}
