//! The demo's output, with the time since the start: a story of a few sentences for a person, and with `--verbose`
//! between them each value that the agents publish. A count is overwritten on a terminal.

#![expect(clippy::print_stdout, reason = "the demo talks to a person")]

use std::io::{IsTerminal as _, Write as _, stdout};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::{Clock, wire};
use pubsub::{Change, TopicRoot};
use step::Mono;
use tokio::task::JoinSet;
use topics::{
    DeviceOpPending, DrainStatus, NodeAgentStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus,
    Topic, ZedAgentStatus,
};

use crate::args::{Output, Surroundings};
use crate::drain_cmd::text::paragraph;
use crate::drain_cmd::voice::Voice;

/// Between two lines of a count, and on a terminal.
const COUNTS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(1)];

/// Who publishes, and how it is called.
const ZEDAGENT: (&str, &str) = ("zedagent", "zedagent");
const ZEDKUBE: (&str, &str) = ("zedkube", "zedkube");

#[derive(Clone)]
pub(super) struct Narrator {
    clock: Clock,
    start: Mono,
    terminal: bool,
    voice: Voice,
    pub(super) verbose: bool,
    /// The next line overwrites a count.
    drawn: Arc<AtomicBool>,
}

impl Narrator {
    pub(super) fn new(clock: Clock, verbose: bool) -> Self {
        let (voice, terminal) =
            (Voice::new(Output::Text, &Surroundings::of_this_process()), stdout().is_terminal());
        Self { clock, start: clock.now(), terminal, voice, verbose, drawn: Arc::default() }
    }

    /// Prints text for copying.
    pub(super) fn show(&self, text: &str) {
        self.wipe();
        print!("{text}");
    }

    pub(super) fn explain(&self, text: &str) {
        self.show(&paragraph("", text, self.voice.columns()));
    }

    /// A sentence of the story.
    pub(super) fn say(&self, what: &str) {
        self.line("demo", what);
    }

    fn detail(&self, who: &str, what: &str) {
        if self.verbose {
            self.line(who, what);
        }
    }

    fn line(&self, who: &str, what: &str) {
        let secs = self.clock.now().since(self.start).as_secs_f64();
        let who = if self.verbose { format!("{who:<11} ") } else { String::new() };
        self.show(&paragraph(&format!("{secs:6.2} s  {who}"), what, self.voice.columns()));
    }

    /// Awaits `wait`, which may take `secs`, and counts the seconds down until `what`.
    pub(super) async fn count<T>(&self, secs: u64, what: &str, wait: impl Future<Output = T>) -> T {
        let (mut wait, end) = (pin!(wait), self.clock.now() + Duration::from_secs(secs));
        loop {
            let next = self.clock.now() + COUNTS[usize::from(self.terminal)];
            tokio::select! {
                biased;
                done = &mut wait => return done,
                () = self.clock.sleep_until(Some(next)) => {
                    let left = end.since(self.clock.now()).as_secs_f64();
                    self.draw(&format!("{left:.0} s until {what}"));
                }
            }
        }
    }

    /// A count; on a terminal it stays until the next line.
    fn draw(&self, text: &str) {
        self.wipe();
        print!("          {text}");
        if self.terminal {
            self.drawn.store(stdout().flush().is_ok(), Ordering::Relaxed);
        } else {
            println!();
        }
    }

    fn wipe(&self) {
        if self.drawn.swap(false, Ordering::Relaxed) {
            print!("\r\x1b[2K");
        }
    }

    /// Follows the agents' topics until the returned tasks are dropped.
    pub(super) fn follow(&self, topic_root: &TopicRoot) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        self.topic::<NodeDrainRequest>(&mut tasks, topic_root, ZEDAGENT, |request| match request {
            Some(request) => format!(
                "asks for a drain: NodeDrainRequest {{{}, \"{}\"}}",
                request.requested_by.number(),
                request.context
            ),
            None => "withdraws its NodeDrainRequest".to_owned(),
        });
        self.topic::<NodeDrainStatus>(&mut tasks, topic_root, ZEDKUBE, drain_status);
        self.topic::<DeviceOpPending>(&mut tasks, topic_root, ZEDAGENT, |pending| match pending {
            Some(op) => {
                let what = format!("{:?} {} {:?}", op.op, op.counter, op.state).to_lowercase();
                format!("{what}: {}", op.waiting_for)
            }
            None => "nothing pending".to_owned(),
        });
        self.topic::<ZedAgentStatus>(&mut tasks, topic_root, ZEDAGENT, |status| match status {
            Some(status) if status.reboot_cmd => format!("RebootCmd, \"{}\"", status.requested_reboot_reason),
            Some(_) | None => String::new(),
        });
        self.topic::<NodeAgentStatus>(&mut tasks, topic_root, ("nodeagent", "nodeagent"), |status| {
            match status {
                Some(status) if status.all_domains_halted => "applications are down".to_owned(),
                Some(status) if status.device_reboot => "DeviceReboot: the reboot is on its way".to_owned(),
                Some(status) if status.wait_drain_in_progress => "WaitDrainInProgress true".to_owned(),
                Some(_) | None => String::new(),
            }
        });
        let tell = self.clone();
        self.topic::<NodeDrainProgress>(&mut tasks, topic_root, ZEDKUBE, move |progress| {
            let (counts, worst) = progress.map(|it| (it.counts, it.blockers.first())).unwrap_or_default();
            if tell.terminal && counts.total > 0 {
                tell.draw(&format!("{} of {} have left", counts.gone, topics::number(counts.total, "pod")));
            }
            worst.map(|it| format!("waits for {}: {}", it.pod, it.reason)).unwrap_or_default()
        });
        tasks
    }

    /// Follows one node's drain until the returned tasks are dropped.
    pub(super) fn follow_node(&self, topic_root: &TopicRoot, node: &'static str) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        self.topic::<NodeDrainStatus>(&mut tasks, topic_root, ("zedkube", node), drain_status);
        tasks
    }

    /// Tells topic `T` of `agent` whenever its text changes; an empty text is skipped.
    fn topic<T: Topic>(
        &self,
        tasks: &mut JoinSet<()>,
        topic_root: &TopicRoot,
        (agent, name): (&'static str, &'static str),
        text: impl Fn(Option<&T>) -> String + Send + 'static,
    ) {
        let mut subscription = topic_root.subscription(&wire::name::<T>(agent), wire::codec::<T>());
        let tell = self.clone();
        tasks.spawn(async move {
            let mut last = text(None);
            loop {
                let now = match subscription.next().await {
                    Change::Put { value, .. } => text(Some(&value)),
                    Change::Gone { .. } => text(None),
                    Change::Bad(finding) => finding.to_string(),
                    Change::Synced | Change::Restarted(_) => continue,
                };
                if now != last && !now.is_empty() {
                    tell.detail(name, &now);
                }
                last = now;
            }
        });
    }
}

fn drain_status(status: Option<&NodeDrainStatus>) -> String {
    match status {
        // Of an agent that has read no config yet.
        Some(status) if status.status == DrainStatus::NotSupported => String::new(),
        Some(status) => format!("NodeDrainStatus {} {}", status.status.number(), status.status.text()),
        None => "NodeDrainStatus is gone".to_owned(),
    }
}
