//! What every door does alike.

use std::io::Write as _;

use super::*;

/// A program that does what the reference's zboot does, on files; one of these names the running partition.
const ZBOOT: &str = r#"#!/bin/sh
set -e
cd "$(dirname "$0")"
case "$1" in
curpart) cat current ;;
partdev) echo "$PWD/$2.img" ;;
partdevsize) stat -c %s "$2.img" ;;
partstate) cat "$2.state" ;;
set_partstate) echo "$3" >"$2.state" ;;
*) exit 1 ;;
esac
"#;

const OLD: &str = "1.0-k-amd64";
const NEW: &str = "2.0-k-amd64";
const ACTIVE: PartitionState = PartitionState::Active;
const INPROGRESS: PartitionState = PartitionState::Inprogress;
const UPDATING: PartitionState = PartitionState::Updating;
const UNUSED: PartitionState = PartitionState::Unused;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gpt,
    Exec,
    Record,
}

struct Bench {
    kind: Kind,
    machine: Machine,
    boots: u32,
    store: Box<dyn PartitionStore>,
}

impl Bench {
    /// All of them, with [`OLD`] running from IMGA.
    fn all() -> [Self; 3] {
        [Kind::Gpt, Kind::Exec, Kind::Record].map(|kind| {
            let machine = Machine::new();
            machine.put("etc/eve-release", OLD.as_bytes());
            for (label, state) in [("IMGA", "active"), ("IMGB", "unused")] {
                machine.put(&format!("zboot/{label}.img"), &vec![0; usize::try_from(PART_BYTES).unwrap()]);
                machine.put(&format!("zboot/{label}.state"), state.as_bytes());
            }
            machine.put("zboot/current", b"IMGA");
            let program = machine.put("zboot/zboot", ZBOOT.as_bytes());
            std::fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
            let store = open(kind, &machine);
            Self { kind, machine, boots: 1, store }
        })
    }

    fn start(&mut self) {
        self.store = open(self.kind, &self.machine);
    }

    /// The machine restarts, and the boot loader does its part.
    async fn boot(&mut self) -> BootResult {
        self.boots += 1;
        let running = match self.kind {
            Kind::Record => None,
            Kind::Gpt => {
                let mut disk = self.machine.bytes();
                let booted = loader::boot(&mut disk).expect("nothing to boot");
                self.machine.put("disk.img", &disk);
                self.machine.runs(&booted.partuuid, "");
                Some(booted.label)
            }
            Kind::Exec => {
                let state =
                    |label: &str| std::fs::read_to_string(self.path(&format!("{label}.state"))).unwrap();
                let next = LABELS.into_iter().find(|it| state(it).trim() == "updating");
                if let Some(next) = next {
                    self.machine.put(&format!("zboot/{next}.state"), b"inprogress");
                }
                let good = LABELS.into_iter().find(|it| state(it).trim() == "active");
                let runs = next.or(good).expect("nothing to boot").to_owned();
                self.machine.put("zboot/current", runs.as_bytes());
                Some(runs)
            }
        };
        if let Some(running) = running {
            let version = if running == "IMGA" { OLD } else { NEW };
            self.machine.put("run/eve-release", version.as_bytes());
        }
        self.start();
        self.store.boot(&format!("boot-{}", self.boots)).await.unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.machine.dir.path().join("zboot").join(name)
    }

    async fn write(&mut self, image: ImageToWrite) -> Result<String, Error> {
        self.store.write_image(Label::B, image, nobody()).await
    }

    async fn states(&mut self) -> (Label, PartitionState, PartitionState) {
        let now = self.store.read().await.unwrap();
        (now.current, now.a.state, now.b.state)
    }

    async fn spare(&mut self) -> Partition {
        self.store.read().await.unwrap().spare().clone()
    }

    fn held(&self, bytes: usize) -> Vec<u8> {
        let held = match self.kind {
            Kind::Gpt => self.machine.bytes()[704 * 512..].to_vec(),
            Kind::Exec => std::fs::read(self.path("IMGB.img")).unwrap(),
            Kind::Record => std::fs::read(self.machine.topic_root.path("persist/zboot/IMGB.img")).unwrap(),
        };
        held[..bytes].to_vec()
    }
}

fn open(kind: Kind, machine: &Machine) -> Box<dyn PartitionStore> {
    let choice = match kind {
        Kind::Gpt => PartitionsChoice::Gpt(machine.disk.clone()),
        Kind::Exec => PartitionsChoice::Exec(machine.dir.path().join("zboot/zboot")),
        Kind::Record => PartitionsChoice::Record,
    };
    choice.open(&machine.topic_root, None).unwrap().unwrap()
}

fn content() -> Vec<u8> {
    root_fs((0..200_000_u32).flat_map(u32::to_le_bytes).take(200_000).collect())
}

#[tokio::test]
async fn both_partitions_are_read_as_they_are() {
    for mut bench in Bench::all() {
        assert_eq!(bench.store.boot("boot-1").await.unwrap(), BootResult::Same);
        let now = bench.store.read().await.unwrap();
        assert_eq!((now.current, now.a.state, now.b.state), (Label::A, ACTIVE, UNUSED));
        assert_eq!((now.a.short_version.as_str(), now.b.short_version.as_str()), (OLD, ""));
        assert!(!now.b.device.is_empty());
        assert!(bench.kind == Kind::Record || now.b.size_bytes == PART_BYTES);
    }
}

#[tokio::test]
async fn an_image_gets_one_try_and_is_kept_once_it_is_found_good() {
    for mut bench in Bench::all() {
        assert_eq!(bench.store.boot("boot-1").await.unwrap(), BootResult::Same);
        let file = bench.machine.put("new.img", &content());
        assert_eq!(bench.write(image(Bytes::Path(file))).await.unwrap(), NEW);
        assert_eq!(bench.held(content().len()), content());
        assert_eq!(bench.states().await, (Label::A, ACTIVE, UNUSED), "nothing is booted yet");
        bench.store.set_state(Label::B, UPDATING).await.unwrap();
        assert_eq!(bench.states().await, (Label::A, ACTIVE, UPDATING));
        assert_eq!(bench.boot().await, BootResult::Tried);
        assert_eq!(bench.states().await, (Label::B, ACTIVE, INPROGRESS));
        bench.store.mark_current_active().await.unwrap();
        assert_eq!(bench.states().await, (Label::B, UNUSED, ACTIVE));
        bench.store.mark_current_active().await.unwrap();
        assert_eq!(bench.boot().await, BootResult::Same);
        assert_eq!(bench.states().await, (Label::B, UNUSED, ACTIVE));
    }
}

#[tokio::test]
async fn an_image_that_was_not_found_good_falls_back_and_keeps_its_mark() {
    for mut bench in Bench::all() {
        bench.store.boot("boot-1").await.unwrap();
        let file = bench.machine.put("new.img", &content());
        bench.write(image(Bytes::Path(file))).await.unwrap();
        bench.store.set_state(Label::B, UPDATING).await.unwrap();
        assert_eq!(bench.boot().await, BootResult::Tried);
        assert_eq!(bench.boot().await, BootResult::FellBack);
        assert_eq!(bench.states().await, (Label::A, ACTIVE, INPROGRESS));
        let spare = bench.spare().await;
        assert_eq!((spare.short_version.as_str(), spare.content.as_str()), (NEW, "tree#0"));
        bench.store.set_state(Label::B, UPDATING).await.unwrap();
        assert_eq!(bench.boot().await, BootResult::Tried, "another try of the same image");
    }
}

#[tokio::test]
async fn b3_the_running_partition_is_neither_written_nor_set() {
    for mut bench in Bench::all() {
        let file = bench.machine.put("new.img", &content());
        let refused =
            bench.store.write_image(Label::A, image(Bytes::Path(file)), nobody()).await.unwrap_err();
        assert!(refused.to_string().contains("IMGA is the partition that runs"), "{refused}");
        let refused = bench.store.set_state(Label::A, UNUSED).await.unwrap_err();
        assert!(refused.to_string().contains("IMGA"), "{refused}");
        for state in [ACTIVE, INPROGRESS] {
            assert!(bench.store.set_state(Label::B, state).await.is_err(), "{state}");
        }
        assert_eq!(bench.states().await, (Label::A, ACTIVE, UNUSED));
    }
}

#[tokio::test]
async fn a_partition_without_an_image_is_not_booted() {
    for mut bench in Bench::all() {
        let refused = bench.store.set_state(Label::B, UPDATING).await.unwrap_err().to_string();
        assert!(refused.contains("IMGB holds no whole image"), "{refused}");
        assert_eq!(bench.states().await, (Label::A, ACTIVE, UNUSED));
    }
}

#[tokio::test]
async fn what_was_written_is_known_after_a_restart() {
    for mut bench in Bench::all() {
        let file = bench.machine.put("new.img", &content());
        bench.write(image(Bytes::Path(file))).await.unwrap();
        bench.start();
        let spare = bench.spare().await;
        assert_eq!((spare.short_version.as_str(), spare.content.as_str()), (NEW, "tree#0"));
    }
}

#[tokio::test]
async fn b3_an_image_of_another_digest_is_no_image() {
    for mut bench in Bench::all() {
        let file = bench.machine.put("new.img", &content());
        bench.write(image(Bytes::Path(file.clone()))).await.unwrap();
        bench.store.set_state(Label::B, UPDATING).await.unwrap();
        let wrong = ImageToWrite { sha256: "00".repeat(32), ..image(Bytes::Path(file)) };
        let refused = bench.write(wrong).await.unwrap_err().to_string();
        assert!(refused.contains("new.img has the sha256") && refused.contains("not 0000"), "{refused}");
        assert_eq!(bench.states().await, (Label::A, ACTIVE, UNUSED));
        let spare = bench.spare().await;
        assert_eq!((spare.short_version.as_str(), spare.content.as_str()), ("", ""));
        assert!(bench.store.set_state(Label::B, UPDATING).await.is_err());
    }
}

#[tokio::test]
async fn a_write_that_is_dropped_leaves_no_image() {
    for mut bench in Bench::all() {
        let file = bench.machine.put("new.img", &content());
        bench.write(image(Bytes::Path(file.clone()))).await.unwrap();
        let pipe = bench.machine.dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        let mut writing = bench.store.write_image(Label::B, image(Bytes::Path(pipe.clone())), nobody());
        // More than a pipe holds: returns once some has been taken out, so that the write has begun.
        let held = tokio::task::spawn_blocking(move || {
            let mut pipe = std::fs::File::options().write(true).open(&pipe).unwrap();
            pipe.write_all(&content()[..100 << 10]).map(|()| pipe)
        });
        let held = tokio::select! {
            outcome = &mut writing => panic!("{outcome:?}"),
            held = held => held.unwrap(),
        };
        drop(writing);
        drop(held);
        bench.start();
        while !bench.spare().await.short_version.is_empty() {
            tokio::task::yield_now().await;
        }
        // The next one waits for the end of the first.
        bench.write(image(Bytes::Path(file))).await.unwrap();
        assert_eq!(bench.held(content().len()), content());
    }
}

#[tokio::test]
async fn how_far_a_write_is_can_be_followed() {
    for mut bench in Bench::all() {
        let file = bench.machine.put("new.img", &content());
        let (percent, told) = watch::channel(0);
        bench.store.write_image(Label::B, image(Bytes::Path(file)), percent).await.unwrap();
        assert_eq!(*told.borrow(), 100);
    }
}
