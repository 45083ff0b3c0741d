//! The file of consoles, with a consumer that behaves like the kube container's: it looks once a second, at the content
//! only while it has no proxy.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use clusterview::apps::{AppRequirements, Console};
use clusterview::consoles::{self, ConsoleFiles};
use pubsub::store;
use tokio::sync::watch;
use topics::{VmiVnc, go_json};

use super::stage::{Stage, beside};

const FILE: &str = "run/edgeview/VncParams/vmiVNC.run";
const OLDER: &str = "run/zedkube/vmiVNC.run";
const APP: &str = "b3e2f1a0-5c4d-4e6f-8a9b-0c1d2e3f4a5b";
const OTHER: &str = "d4f3a2b1-6d5e-4f70-9bac-1d2e3f4a5b6c";
const MACHINE: &str = "ubuntu-b3e2f-0ab1cd";
const EDGEVIEW: i64 = 4711;

struct Bench {
    stage: Stage,
    wanted: watch::Sender<AppRequirements>,
    /// What the proxy serves, each time that it was started.
    served: watch::Sender<Vec<VmiVnc>>,
    open: watch::Sender<Option<VmiVnc>>,
}

impl Bench {
    fn new() -> Self {
        let bench = Self {
            stage: Stage::new(),
            wanted: watch::Sender::default(),
            served: watch::Sender::default(),
            open: watch::Sender::default(),
        };
        bench.listen(None);
        bench
    }

    /// The kernel's table says that something listens at this port, or nothing does.
    fn listen(&self, port: Option<u32>) {
        let line =
            port.map(|it| format!("   0: 0100007F:{it:04X} 00000000:0000 0A 0:0\n")).unwrap_or_default();
        let table = format!("  sl  local_address rem_address   st\n{line}");
        store::replace(&self.stage.context.topic_root.path("proc/net/tcp"), table.as_bytes()).unwrap();
    }

    async fn consume(&self, file: &str) {
        loop {
            self.stage.pass(Duration::from_secs(1)).await;
            let text = self.stage.text(file);
            let open = self.open.borrow().clone();
            match (open, text) {
                (None, Some(text)) => {
                    let Ok(console) = go_json::from_slice::<VmiVnc>(text.as_bytes()) else { continue };
                    self.listen(Some(console.vnc_port));
                    self.served.send_modify(|it| it.push(console.clone()));
                    self.open.send_replace(Some(console));
                }
                (Some(_), None) => {
                    self.open.send_replace(None);
                    self.listen(None);
                }
                (None, None) | (Some(_), Some(_)) => {}
            }
        }
    }

    fn wants(&self, apps: &[(&str, &str, u16)]) {
        let console = |(app, machine, port): &(&str, &str, u16)| {
            ((*app).to_owned(), Console { machine: (*machine).to_owned(), port: *port })
        };
        let consoles: BTreeMap<_, _> = apps.iter().map(console).collect();
        self.wanted.send_replace(AppRequirements { consoles: Some(consoles), ..AppRequirements::default() });
    }

    fn write(&self, console: &VmiVnc) {
        let bytes = go_json::to_vec(console).unwrap();
        store::replace(&self.stage.context.topic_root.path(FILE), &bytes).unwrap();
    }

    fn serves(&self) -> Option<String> {
        self.open.borrow().as_ref().map(|it| it.vmi_name.clone())
    }

    /// Runs duty and consumer for as long as `course` lasts.
    async fn run(&self, files: ConsoleFiles, course: impl Future<Output = ()>) {
        let duty = consoles::run(&self.stage.context, files, self.wanted.subscribe());
        let file = if files == ConsoleFiles::Zedkube { OLDER } else { FILE };
        let all = async { tokio::join!(duty, self.consume(file)) };
        beside(all, course).await;
    }
}

fn vnc(machine: &str, port: u32, app: &str, caller_pid: i64) -> VmiVnc {
    VmiVnc { vmi_name: machine.to_owned(), vnc_port: port, app_uuid: app.to_owned(), caller_pid }
}

fn golden() -> String {
    let path = format!("{}/../../tests/golden/vmiVNC.run/remote-console.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(start_paused = true)]
async fn e7_d_v3_a_console_is_opened_in_the_references_bytes_at_create_and_restart_and_closed_when_the_app_goes()
 {
    let bench = Bench::new();
    let stage = &bench.stage;
    bench.wants(&[(APP, MACHINE, 5901)]);
    bench
        .run(ConsoleFiles::Both, async {
            let late = stage.until("a proxy", |_| bench.serves().is_some()).await;
            assert!(late <= Duration::from_secs(5), "{late:?}");
            assert_eq!((stage.text(FILE), stage.text(OLDER)), (Some(golden()), Some(golden())));
        })
        .await;
    // Nothing changes by a restart, while what is wanted is not known yet too.
    let inode = stage.inode(FILE);
    let before = bench.wanted.send_replace(AppRequirements::default());
    bench
        .run(ConsoleFiles::Both, async {
            stage.pass(Duration::from_mins(1)).await;
            bench.wanted.send_replace(before);
            stage.pass(Duration::from_mins(1)).await;
            assert_eq!((stage.inode(FILE), bench.served.borrow().len()), (inode, 1));
            // Somebody has removed it.
            store::remove(&stage.context.topic_root.path(FILE)).unwrap();
            stage.until("it again", |it| it.text(FILE) == Some(golden())).await;
        })
        .await;
    // The application went while nobody ran.
    bench.wants(&[]);
    bench
        .run(ConsoleFiles::Both, async {
            stage.until("no proxy", |_| bench.serves().is_none()).await;
            stage.until("no file", |it| it.text(FILE).is_none() && it.text(OLDER).is_none()).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn e7_d_v4_d_v5_a_machine_that_moved_gets_a_proxy_of_its_own_however_fast_it_is_switched() {
    let bench = Bench::new();
    let stage = &bench.stage;
    bench
        .run(ConsoleFiles::Both, async {
            bench.wants(&[(APP, MACHINE, 5901)]);
            stage.until("a proxy", |_| bench.serves().is_some()).await;
            bench.wants(&[(APP, "ubuntu-b3e2f-0zzzzz", 5901)]);
            stage
                .until("another machine", |_| bench.serves().as_deref() == Some("ubuntu-b3e2f-0zzzzz"))
                .await;
            bench.wants(&[(APP, "ubuntu-b3e2f-0zzzzz", 5907)]);
            stage
                .until("another port", |_| bench.open.borrow().as_ref().is_some_and(|it| it.vnc_port == 5907))
                .await;
            // Off, on, off, on within one second of the consumer.
            for _ in 0..5 {
                bench.wants(&[]);
                stage.pass(Duration::from_millis(100)).await;
                bench.wants(&[(APP, MACHINE, 5902)]);
                stage.pass(Duration::from_millis(100)).await;
            }
            stage
                .until("the last one", |_| bench.open.borrow().as_ref().is_some_and(|it| it.vnc_port == 5902))
                .await;
            stage.pass(Duration::from_mins(1)).await;
            assert_eq!(bench.serves().as_deref(), Some(MACHINE));
            bench.wants(&[]);
            stage.until("no proxy", |_| bench.serves().is_none()).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn e7_d_v2_of_two_applications_one_has_its_console_and_the_other_comes_after_it() {
    let bench = Bench::new();
    let stage = &bench.stage;
    bench
        .run(ConsoleFiles::Both, async {
            bench.wants(&[(OTHER, "web", 5903)]);
            stage.until("a proxy", |_| bench.serves().is_some()).await;
            // It comes first by its name, and waits all the same.
            bench.wants(&[(OTHER, "web", 5903), (APP, MACHINE, 5901)]);
            stage.pass(Duration::from_mins(5)).await;
            assert_eq!((bench.serves().as_deref(), bench.served.borrow().len()), (Some("web"), 1));
            // The waiting one is switched off: the open one stays.
            bench.wants(&[(OTHER, "web", 5903)]);
            stage.pass(Duration::from_mins(1)).await;
            assert_eq!(bench.served.borrow().len(), 1);
            bench.wants(&[(APP, MACHINE, 5901)]);
            stage.until("the other", |_| bench.serves().as_deref() == Some(MACHINE)).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn e7_a_console_of_edgeview_is_never_removed_while_it_lives_and_is_taken_once_it_is_dead() {
    let bench = Bench::new();
    let stage = &bench.stage;
    let theirs = vnc("web", 5905, OTHER, EDGEVIEW);
    let comm = format!("proc/{EDGEVIEW}/comm");
    store::replace(&stage.context.topic_root.path(&comm), b"edge-view\n").unwrap();
    bench.write(&theirs);
    // Its copy in the older place is not ours either.
    store::replace(&stage.context.topic_root.path(OLDER), &go_json::to_vec(&theirs).unwrap()).unwrap();
    bench
        .run(ConsoleFiles::Both, async {
            stage.until("its proxy", |_| bench.serves().as_deref() == Some("web")).await;
            for apps in [&[][..], &[(APP, MACHINE, 5901)], &[(OTHER, "web", 5905)], &[]] {
                bench.wants(apps);
                stage.pass(Duration::from_mins(10)).await;
                assert_eq!(bench.served.borrow().as_slice(), std::slice::from_ref(&theirs), "{apps:?}");
                assert!(stage.text(FILE).is_some() && stage.text(OLDER).is_some());
            }
            store::remove(&stage.context.topic_root.path(&comm)).unwrap();
            stage.pass(Duration::from_mins(10)).await;
            assert_eq!(bench.served.borrow().len(), 1, "nobody claims it");
            bench.wants(&[(APP, MACHINE, 5901)]);
            stage.until("ours", |_| bench.serves().as_deref() == Some(MACHINE)).await;
            // Another process of the same number.
            store::replace(&stage.context.topic_root.path(&comm), b"bash\n").unwrap();
            bench.write(&theirs);
            stage.until("ours again", |it| it.text(FILE) == Some(golden())).await;
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn e7_a_setting_turns_one_of_the_two_files_off() {
    for (files, shared, older) in
        [(ConsoleFiles::Edgeview, true, false), (ConsoleFiles::Zedkube, false, true)]
    {
        let bench = Bench::new();
        bench.wants(&[(APP, MACHINE, 5901)]);
        bench
            .run(files, async {
                bench.stage.until("a proxy", |_| bench.serves().is_some()).await;
                let there = |file| bench.stage.text(file).is_some();
                assert_eq!((there(FILE), there(OLDER)), (shared, older));
                for dir in ["run/edgeview", "run/edgeview/VncParams"].into_iter().filter(|_| shared) {
                    let mode = std::fs::metadata(bench.stage.context.topic_root.path(dir))
                        .unwrap()
                        .permissions()
                        .mode();
                    assert_eq!(mode & 0o777, 0o755, "{dir}: others share it");
                }
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_may_not_be_read_is_left_alone() {
    let bench = Bench::new();
    let path = bench.stage.context.topic_root.path(FILE);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    bench.wants(&[(APP, MACHINE, 5901)]);
    bench
        .run(ConsoleFiles::Edgeview, async {
            bench.stage.pass(Duration::from_mins(1)).await;
            assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
            let log = bench.stage.lines.text();
            assert_eq!(log.matches("cannot keep the file of consoles").count(), 1, "{log}");
        })
        .await;
}
