//! What only the door to a disk does: names, words of the kernel, tables of others.

use super::super::table::{GptTable, Sectors};
use super::*;

async fn read(machine: &Machine, running: Option<Label>) -> Result<Partitions, String> {
    let mut store = GptStore::new(&machine.topic_root, &machine.disk, running);
    store.read().await.map_err(|cause| step::chain(&cause))
}

#[tokio::test]
async fn the_running_partition_is_the_one_that_the_kernel_was_given_or_the_one_that_is_named() {
    let machine = Machine::new();
    assert_eq!(read(&machine, None).await.unwrap().current, Label::A);
    machine.runs(&PARTUUIDS[1].to_uppercase(), "2.0");
    assert_eq!(read(&machine, None).await.unwrap().current, Label::B);
    assert_eq!(read(&machine, Some(Label::A)).await.unwrap().current, Label::A);
    machine.runs("ad6871ee-31f9-4cf3-9e09-6f7a25c30099", "2.0");
    let refused = read(&machine, None).await.unwrap_err();
    assert!(refused.contains("30099 as root, neither IMGA nor IMGB; type --current-partition"), "{refused}");
    machine.put("proc/cmdline", b"quiet root=/dev/sda2\n");
    assert!(read(&machine, None).await.unwrap_err().contains("names no partition as root"));
    std::fs::remove_file(machine.dir.path().join("proc/cmdline")).unwrap();
    assert!(read(&machine, None).await.unwrap_err().contains("proc/cmdline"));
}

#[tokio::test]
async fn a_word_that_is_no_state_is_told_with_what_puts_it_right_and_leaves_what_runs_to_boot() {
    for (label, number, word) in [("IMGA", 2, "0x102"), ("IMGB", 3, "0x0")] {
        let machine = Machine::new();
        let mut disk = std::fs::File::options().read(true).write(true).open(&machine.disk).unwrap();
        GptTable::write(&mut disk, &[(number, 0x112)]).unwrap();
        let refused = read(&machine, None).await.unwrap_err();
        let command = format!("type cgpt add -i {number} -A {word} {}", machine.disk.display());
        assert!(refused.contains(&format!("{label} has the attribute word 0x112")), "{refused}");
        assert!(refused.contains(&command), "{refused}");
    }
}

#[tokio::test]
async fn a_disk_without_the_two_partitions_is_refused() {
    let machine = Machine::new();
    // The name of CONFIG becomes that of a second IMGB.
    let mut disk = std::fs::File::options().read(true).write(true).open(&machine.disk).unwrap();
    let mut entry = [0; 128];
    disk.read_at(1024 + 256, &mut entry).unwrap();
    for (entries, header) in [(2, 1), (3039, 3071)] {
        disk.write_at(entries * 512 + 384 + 56, &entry[56..]).unwrap();
        let mut array = vec![0; 128 * 128];
        disk.read_at(entries * 512, &mut array).unwrap();
        disk.write_at(header * 512 + 88, &crc32fast::hash(&array).to_le_bytes()).unwrap();
        let mut sector = [0; 92];
        disk.read_at(header * 512, &mut sector).unwrap();
        sector[16..20].fill(0);
        disk.write_at(header * 512 + 16, &crc32fast::hash(&sector).to_le_bytes()).unwrap();
    }
    let refused = read(&machine, None).await.unwrap_err();
    assert!(refused.contains("2 partitions are named IMGB; one IMGA and one IMGB are needed"), "{refused}");
    machine.put("disk.img", &vec![0; 1 << 16]);
    assert!(read(&machine, None).await.unwrap_err().contains("no GUID partition table is whole"));
    std::fs::remove_file(&machine.disk).unwrap();
    assert!(read(&machine, None).await.unwrap_err().contains("disk.img: No such file"));
}

#[tokio::test]
async fn b1_a_change_that_was_cut_off_is_taken_to_its_end_at_the_next_start() {
    let machine = Machine::new();
    let mut half = disk();
    let whole = {
        let mut disk = std::fs::File::options().read(true).write(true).open(&machine.disk).unwrap();
        GptTable::write(&mut disk, &[(2, 0x102), (3, 0x13)]).unwrap();
        machine.bytes()
    };
    half[512..1024].copy_from_slice(&whole[512..1024]);
    half[3039 * 512..].copy_from_slice(&whole[3039 * 512..]);
    machine.put("disk.img", &half);
    assert_eq!(read(&machine, None).await.unwrap().b.state, PartitionState::Updating);
    assert!(!loader::is_primary_whole(&half));
    GptStore::new(&machine.topic_root, &machine.disk, None).boot("").await.unwrap();
    assert_eq!(machine.bytes(), whole);
}
