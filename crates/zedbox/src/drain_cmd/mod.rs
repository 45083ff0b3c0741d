//! Commands on this node for a person with a shell, over the agents' own files: its drain, pauses, reboot and shutdown.
//!
//! Not here: any decision about a drain; zedkube makes them all.

mod course;
mod device_order;
mod follow;
mod history;
pub(crate) mod orders;
pub(crate) mod person;
pub(crate) mod plan;
mod request;
mod status;
pub(crate) mod text;
pub(crate) mod voice;
mod watch;

use agent::Clock;
use anyhow::Context as _;
use pubsub::TopicRoot;
use sheet::DrainView;
use topics::DeviceOp;

use crate::Exit;
use crate::args::{NodeCommand, NodePlace, OtherDrain, Surroundings};
use course::Goal;
use voice::Voice;
use watch::WatchPatience;

/// Where a command works, and for whom.
struct Shell {
    topic_root: TopicRoot,
    clock: Clock,
    surroundings: Surroundings,
    voice: Voice,
}

impl Shell {
    fn open(place: &NodePlace) -> anyhow::Result<Self> {
        let surroundings = Surroundings::of_this_process();
        let topic_root = TopicRoot::open(&place.root);
        Ok(Self {
            topic_root: topic_root.with_context(|| format!("open the root {}", place.root.display()))?,
            clock: Clock::new(),
            voice: Voice::new(place.output, &surroundings),
            surroundings,
        })
    }

    fn look(&self) -> DrainView {
        DrainView::read(&self.topic_root, self.clock)
    }

    /// The name of whoever types.
    fn who(&self) -> String {
        person::name(&self.surroundings)
    }
}

/// Does what `command` says. What goes wrong is said on standard error in plain words.
pub(crate) async fn run(command: &NodeCommand) -> Exit {
    let (word, done) = match Shell::open(command.place()) {
        Ok(shell) => act(command, &shell).await,
        Err(error) => ("drain", Err(error)),
    };
    Voice::exit(word, done)
}

async fn act(command: &NodeCommand, shell: &Shell) -> (&'static str, anyhow::Result<Exit>) {
    match command {
        NodeCommand::Status(it) => ("status", status::run(shell, it).await),
        NodeCommand::Watch(it) => {
            let patience = WatchPatience::until(shell.clock, it.timeout);
            ("watch", watch::run(shell, Goal::Any, patience).await)
        }
        NodeCommand::Plan(it) => ("plan", plan::run(shell, it).await),
        NodeCommand::History(_) => ("history", history::run(shell)),
        NodeCommand::Drain(it) => match &it.other {
            None => ("drain", request::ask(shell, it).await),
            Some(OtherDrain::Force(it)) => ("drain", orders::force::run(shell, it).await),
            Some(OtherDrain::AtShutdown(it)) => {
                ("drain", Box::pin(orders::at_shutdown::run(shell, it)).await)
            }
        },
        NodeCommand::Undrain(it) if it.wait => ("undrain", orders::done::run(shell, it).await),
        NodeCommand::Undrain(_) => ("undrain", request::cancel(shell)),
        NodeCommand::Pause(it) => ("pause", orders::pause::pause(shell, it).await),
        NodeCommand::Resume(_) => ("resume", orders::pause::resume(shell)),
        NodeCommand::Go(it) => ("go", Box::pin(orders::go::run(shell, it)).await),
        NodeCommand::Reboot(it) => ("reboot", device_order::run(shell, DeviceOp::Reboot, it, None).await),
        NodeCommand::Shutdown(it) => {
            ("shutdown", device_order::run(shell, DeviceOp::Shutdown, &it.order, it.within).await)
        }
    }
}
