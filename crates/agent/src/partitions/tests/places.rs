//! Where the copies of a table are written, and where they never are: in partitions, the first sector, past the end.

use super::super::table::{GptTable, NotWritten};
use super::table::{GOOD, Recorded, UPDATING, change, own_words, words};
use super::*;

const SECTORS: u64 = 3072;
/// Where the backup is, with its entries before it.
const LAST: u64 = 3071;
const BACKUP: std::ops::Range<usize> = 3039 * 512..3072 * 512;
/// Fields of a header, see `table`.
const ALTERNATE: usize = 32;
const LAST_USABLE: usize = 48;
const ENTRIES: usize = 72;

/// `disk` with another value in the header of its primary copy.
fn named(mut disk: Vec<u8>, field: usize, value: u64) -> Vec<u8> {
    disk[512 + field..][..8].copy_from_slice(&value.to_le_bytes());
    disk[512 + 16..][..4].fill(0);
    let crc = crc32fast::hash(&disk[512..512 + 92]);
    disk[512 + 16..][..4].copy_from_slice(&crc.to_le_bytes());
    disk
}

/// `disk` with other sectors for partition `number`, in both copies.
fn moved(mut disk: Vec<u8>, number: usize, first: u64, last: u64) -> Vec<u8> {
    for (header, entries) in [(1, 2), (3071, 3039)] {
        let entry = entries * 512 + (number - 1) * 128;
        disk[entry + 32..][..8].copy_from_slice(&first.to_le_bytes());
        disk[entry + 40..][..8].copy_from_slice(&last.to_le_bytes());
        let crc = crc32fast::hash(&disk[entries * 512..][..128 * 128]);
        disk[header * 512 + 88..][..4].copy_from_slice(&crc.to_le_bytes());
        disk[header * 512 + 16..][..4].fill(0);
        let crc = crc32fast::hash(&disk[header * 512..][..92]);
        disk[header * 512 + 16..][..4].copy_from_slice(&crc.to_le_bytes());
    }
    disk
}

fn without_backup(mut disk: Vec<u8>) -> Vec<u8> {
    disk[BACKUP].fill(0);
    disk
}

/// Changes the words of `disk`, cut off at every write: each cut leaves a table that says the old or the new, and
/// nothing but the two copies of it is ever written.
fn changed(disk: &[u8], backup: std::ops::Range<usize>) -> Vec<u8> {
    let done = change(disk, UPDATING);
    for left in &done.left {
        let read = own_words(left);
        assert!(read == GOOD || read == UPDATING, "{read:x?}");
        // The reference's boot loader refuses a primary whose backup is named inside of what partitions may have.
        let booted = words(left);
        let none_before = booted.is_none() && words(disk).is_none() && read == GOOD;
        assert!(booted == Some(read) || none_before, "{booted:x?}, {read:x?}");
        assert_eq!(left[..512], disk[..512], "the first sector");
        assert_eq!(left[34 * 512..backup.start], disk[34 * 512..backup.start], "between the copies");
        assert_eq!(left[backup.end..], disk[backup.end..], "behind the backup");
    }
    assert_eq!(words(&done.bytes), Some(UPDATING));
    assert_eq!(change(&done.bytes, UPDATING).writes, 0);
    // The second copy is one, and is found.
    let mut lost = done.bytes.clone();
    lost[2 * 512..34 * 512].fill(0xa5);
    assert_eq!((own_words(&lost), words(&lost)), (UPDATING, Some(UPDATING)));
    done.bytes
}

#[test]
fn t8_a_place_that_the_primary_names_is_not_written_and_the_backup_goes_to_the_last_sectors() {
    // The first sector, the primary itself, IMGA, IMGB, P3, what is free, past the end.
    for place in [0, 1, 200, 800, 2000, 34, 1 << 40, u64::MAX] {
        for disk in [disk(), without_backup(disk())] {
            let done = changed(&named(disk, ALTERNATE, place), BACKUP);
            assert_eq!(done[512 + ALTERNATE..][..8], LAST.to_le_bytes(), "{place}");
        }
    }
}

#[test]
fn t8_a_table_without_a_second_copy_gets_one_before_its_first_is_changed() {
    let disk = named(without_backup(disk()), ALTERNATE, 1);
    changed(&disk, BACKUP);
    let first = change(&disk, UPDATING);
    let torn = |left: &&Vec<u8>| !loader::is_primary_whole(left) && own_words(left) == UPDATING;
    for left in first.left.iter().filter(torn) {
        assert_eq!(words(left), Some(UPDATING), "the first is torn, and the second is there");
    }
    assert!(first.left.iter().any(|left| torn(&left)));
}

#[test]
fn t8_the_backup_of_a_disk_that_grew_stays_unless_it_is_lost() {
    let grown = |mut disk: Vec<u8>| {
        disk.resize(disk.len() + (100 << 9), 0x5a);
        disk
    };
    let done = change(&grown(disk()), UPDATING);
    assert_eq!((done.writes, own_words(&done.bytes)), (4, UPDATING));
    assert_eq!(done.bytes[512 + ALTERNATE..][..8], LAST.to_le_bytes());
    let length = grown(disk()).len();
    changed(&grown(without_backup(disk())), length - 33 * 512..length);
}

#[tokio::test]
async fn t8_where_a_copy_has_no_place_of_its_own_nothing_is_written_and_the_command_is_named() {
    let to_the_end = moved(disk(), 9, 1344, LAST);
    let whole_inside = moved(disk(), 9, 1344, 3040);
    let cut_short = disk()[..3000 * 512].to_vec();
    let rows = [
        (
            "a partition in the last sectors",
            named(to_the_end.clone(), ALTERNATE, 0),
            "3071, where partition 9 (P3) is",
        ),
        ("and the backup in it", to_the_end, "belongs to sectors 3071 to 3071, where partition 9 (P3) is"),
        ("its entries in one", whole_inside, "belongs to sectors 3039 to 3070, where partition 9 (P3) is"),
        (
            "the image of a larger disk",
            cut_short,
            "made for a disk of another size: it gives sectors up to 3038",
        ),
        (
            "no room kept free",
            named(without_backup(disk()), LAST_USABLE, 3060),
            "sectors up to 3060 to partitions",
        ),
    ];
    for (what, bytes, why) in rows {
        let machine = Machine::new();
        machine.put("disk.img", &bytes);
        let mut store = GptStore::new(&machine.topic_root, &machine.disk, None);
        // The primary is whole: states are known, and nothing stops the agent.
        assert_eq!(store.boot("").await.unwrap(), BootResult::Same, "{what}");
        assert_eq!(store.read().await.unwrap().b.state, PartitionState::Unused, "{what}");
        let file = machine.put("new", &root_fs(vec![7; 9000]));
        let refusals = [
            store.write_image(Label::B, image(Bytes::Path(file)), nobody()).await.map(drop),
            store.mark_current_active().await,
        ];
        for refused in refusals {
            let refused = step::chain(&refused.unwrap_err());
            let command = format!("nothing was written; type sgdisk -e {}", machine.disk.display());
            assert!(refused.contains(why) && refused.contains(&command), "{what}: {refused}");
        }
        assert_eq!(machine.bytes(), bytes, "{what}");
    }
}

#[test]
fn t8_entries_that_lie_in_a_partition_are_not_written() {
    // They are moved into CONFIG, where the header says that they are.
    let mut disk = disk();
    disk.copy_within(1024..34 * 512, 1220 * 512);
    let mut disk = Recorded::new(named(disk, ENTRIES, 1220));
    assert_eq!(own_words(&disk.bytes), GOOD);
    let refused = GptTable::write(&mut disk, &[(3, 0x13)]).unwrap_err();
    let NotWritten::NoPlace(why) = refused else { panic!("{refused:?}") };
    assert!(
        why.contains("the first copy of its table belongs to sectors 1220 to 1251, where partition 4"),
        "{why}"
    );
    assert_eq!(disk.writes, 0);
}

#[tokio::test]
async fn t8_an_image_partition_that_is_not_its_own_or_not_on_the_disk_is_refused() {
    let rows = [
        (moved(disk(), 3, 704, 1216), "partitions 3 (IMGB) and 4 (CONFIG) overlap"),
        (moved(disk(), 3, 500, 600), "partitions 2 (IMGA) and 3 (IMGB) overlap"),
        (
            moved(disk(), 3, 704, SECTORS),
            "IMGB ends at sector 3073, and the disk has 3072; it does not run, so type sgdisk",
        ),
        (moved(disk(), 3, 704, u64::MAX), "so type sgdisk"),
        (
            moved(disk(), 2, 192, SECTORS),
            "IMGA ends at sector 3073, and the disk has 3072; install this device again",
        ),
        (
            moved(disk(), 3, 3040, SECTORS),
            "IMGB ends at sector 3073, and the disk has 3072; install this device again",
        ),
        (
            moved(moved(disk(), 9, 1344, SECTORS), 3, 704, SECTORS),
            "; P3 ends past it as well; install this device again",
        ),
    ];
    for (bytes, why) in rows {
        let machine = Machine::new();
        machine.put("disk.img", &bytes);
        let mut store = GptStore::new(&machine.topic_root, &machine.disk, None);
        let refused = step::chain(&store.read().await.unwrap_err());
        assert!(refused.contains(why), "{refused}");
    }
}

#[tokio::test]
async fn t8_the_command_for_an_image_partition_that_ends_past_the_disk_makes_it_usable() {
    // The last one of the disk, in a free part of it.
    let bytes = moved(moved(disk(), 9, 1344, 2000), 3, 2001, SECTORS + 100);
    let machine = Machine::new();
    machine.put("disk.img", &bytes);
    let mut store = GptStore::new(&machine.topic_root, &machine.disk, None);
    let refused = step::chain(&store.read().await.unwrap_err());
    let table = GptTable::read(&mut std::fs::File::open(&machine.disk).unwrap()).unwrap();
    let words = table.shortens(table.slots().iter().find(|it| it.label == "IMGB").unwrap()).unwrap();
    assert!(
        refused.contains(&format!("type sgdisk {} {}:", words.join(" "), machine.disk.display())),
        "{refused}"
    );
    let run = std::process::Command::new("sgdisk").args(words).arg(&machine.disk).output();
    let Ok(run) = run else {
        writeln!(std::io::stderr(), "skipped: there is no program `sgdisk` here").unwrap();
        return;
    };
    assert!(run.status.success(), "{refused}: {run:?}");
    let now = store.read().await.unwrap();
    assert_eq!((now.current, now.b.state), (Label::A, PartitionState::Unused));
    assert_eq!(now.b.size_bytes, (3038 - 2001 + 1) * 512);
    let file = machine.put("new", &root_fs(vec![7; 9000]));
    store.write_image(Label::B, image(Bytes::Path(file)), nobody()).await.unwrap();
    store.set_state(Label::B, PartitionState::Updating).await.unwrap();
    machine.runs(PARTUUIDS[1], "2.0");
    assert_eq!(store.read().await.unwrap().current, Label::B, "it keeps its PARTUUID");
}
