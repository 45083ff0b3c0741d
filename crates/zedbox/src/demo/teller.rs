//! The demo's output: each transition once, with the time since the start; one line each, and on a terminal a
//! pod count that is overwritten.

#![expect(clippy::print_stdout, reason = "the demo talks to a person")]

use std::io::{IsTerminal as _, Write as _, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::{Clock, wire};
use pubsub::{Change, TopicRoot};
use step::Mono;
use tokio::task::JoinSet;
use topics::{
    DeviceOpPending, NodeAgentStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, Topic,
    ZedAgentStatus,
};

use crate::args::{Output, Surroundings};
use crate::drain_cmd::text::paragraph;
use crate::drain_cmd::voice::Voice;

#[derive(Clone)]
pub(super) struct Narrator {
    clock: Clock,
    start: Mono,
    terminal: bool,
    voice: Voice,
    /// The next line overwrites a count.
    drawn: Arc<AtomicBool>,
}

impl Narrator {
    pub(super) fn new(clock: Clock) -> Self {
        let (voice, terminal) =
            (Voice::new(Output::Text, &Surroundings::of_this_process()), stdout().is_terminal());
        Self { clock, start: clock.now(), terminal, voice, drawn: Arc::default() }
    }

    /// Prints text for copying.
    pub(super) fn show(&self, text: &str) {
        self.wipe();
        print!("{text}");
    }

    pub(super) fn explain(&self, text: &str) {
        self.show(&paragraph("", text, self.voice.columns()));
    }

    pub(super) fn say(&self, who: &str, what: &str) {
        let secs = self.clock.now().since(self.start).as_secs_f64();
        self.show(&paragraph(&format!("{secs:6.2} s  {who:<11} "), what, self.voice.columns()));
    }

    /// On a terminal, a count that stays until the next line.
    fn draw(&self, text: &str) {
        self.wipe();
        print!("          {text}");
        self.drawn.store(stdout().flush().is_ok(), Ordering::Relaxed);
    }

    fn wipe(&self) {
        if self.drawn.swap(false, Ordering::Relaxed) {
            print!("\r\x1b[2K");
        }
    }

    /// Follows the agents' topics until the returned tasks are dropped.
    pub(super) fn follow(&self, topic_root: &TopicRoot) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        self.topic::<NodeDrainRequest>(&mut tasks, topic_root, "zedagent", |request| match request {
            Some(request) => format!(
                "asks for a drain: NodeDrainRequest {{{}, \"{}\"}}",
                request.requested_by.number(),
                request.context
            ),
            None => "withdraws its NodeDrainRequest".to_owned(),
        });
        self.topic::<NodeDrainStatus>(&mut tasks, topic_root, "zedkube", drain_status);
        self.topic::<DeviceOpPending>(&mut tasks, topic_root, "zedagent", |pending| match pending {
            Some(op) => {
                let what = format!("{:?} {} {:?}", op.op, op.counter, op.state).to_lowercase();
                format!("{what}: {}", op.waiting_for)
            }
            None => "nothing pending".to_owned(),
        });
        self.topic::<ZedAgentStatus>(&mut tasks, topic_root, "zedagent", |status| match status {
            Some(status) if status.reboot_cmd => format!("RebootCmd, \"{}\"", status.requested_reboot_reason),
            Some(_) | None => String::new(),
        });
        self.topic::<NodeAgentStatus>(&mut tasks, topic_root, "nodeagent", |status| match status {
            Some(status) if status.all_domains_halted => "applications are down".to_owned(),
            Some(status) if status.device_reboot => "DeviceReboot: the reboot is on its way".to_owned(),
            Some(status) if status.wait_drain_in_progress => "WaitDrainInProgress true".to_owned(),
            Some(_) | None => String::new(),
        });
        self.pods(&mut tasks, topic_root);
        tasks
    }

    /// Follows one node's drain until the returned tasks are dropped.
    pub(super) fn follow_node(&self, topic_root: &TopicRoot, node: &'static str) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        self.topic_of::<NodeDrainStatus>(&mut tasks, topic_root, ("zedkube", node), drain_status);
        tasks
    }

    /// Prints topic `T` of `agent` whenever its text changes; an empty text is skipped.
    fn topic<T: Topic>(
        &self,
        tasks: &mut JoinSet<()>,
        topic_root: &TopicRoot,
        agent: &'static str,
        text: impl Fn(Option<&T>) -> String + Send + 'static,
    ) {
        self.topic_of(tasks, topic_root, (agent, agent), text);
    }

    fn topic_of<T: Topic>(
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
                match subscription.next().await {
                    Change::Put { value, .. } => tell.once(name, &mut last, text(Some(&value))),
                    Change::Gone { .. } => tell.once(name, &mut last, text(None)),
                    Change::Bad(finding) => tell.say(name, &finding.to_string()),
                    Change::Synced | Change::Restarted(_) => {}
                }
            }
        });
    }

    fn once(&self, who: &str, last: &mut String, text: String) {
        if *last != text {
            if !text.is_empty() {
                self.say(who, &text);
            }
            *last = text;
        }
    }

    /// Pod counts: blockers as lines, and on a terminal every count.
    fn pods(&self, tasks: &mut JoinSet<()>, topic_root: &TopicRoot) {
        let mut subscription = topic_root
            .subscription(&wire::name::<NodeDrainProgress>("zedkube"), wire::codec::<NodeDrainProgress>());
        let tell = self.clone();
        tasks.spawn(async move {
            let mut blocked = String::new();
            loop {
                let Change::Put { value, .. } = subscription.next().await else { continue };
                for blocker in &value.blockers {
                    tell.once(
                        "zedkube",
                        &mut blocked,
                        format!("waits for {}: {}", blocker.pod, blocker.reason),
                    );
                }
                if tell.terminal && value.counts.total > 0 {
                    let counts = value.counts;
                    tell.draw(&format!(
                        "pods: {} of {} gone, {} blocked",
                        counts.gone, counts.total, counts.blocked
                    ));
                }
            }
        });
    }
}

fn drain_status(status: Option<&NodeDrainStatus>) -> String {
    match status {
        Some(status) => format!("NodeDrainStatus {} {}", status.status.number(), status.status.text()),
        None => "NodeDrainStatus is gone".to_owned(),
    }
}
