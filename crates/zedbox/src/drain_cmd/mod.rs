//! `zedbox drain`: the drain of this node for a person with a shell, over the agents' own files.
//!
//! Not here: any decision about a drain; zedkube makes them all.

mod course;
pub(crate) mod device_order;
mod follow;
mod history;
pub(crate) mod orders;
pub(crate) mod person;
mod plan;
mod request;
mod status;
pub(crate) mod text;
pub(crate) mod voice;
mod watch;

use agent::Clock;
use anyhow::Context as _;
use pubsub::TopicRoot;

use crate::Exit;
use crate::args::{DrainAction, DrainCommand, Surroundings};
use course::Goal;
use voice::Voice;
use watch::WatchPatience;

/// Does what `command` says. What goes wrong is said on standard error in plain words.
pub(crate) async fn run(command: &DrainCommand) -> Exit {
    let surroundings = Surroundings::of_this_process();
    let voice = Voice::new(command.output, &surroundings);
    Voice::exit("drain", act(command, &surroundings, &voice).await)
}

async fn act(command: &DrainCommand, surroundings: &Surroundings, voice: &Voice) -> anyhow::Result<Exit> {
    let clock = Clock::new();
    let topic_root = TopicRoot::open(&command.root)
        .with_context(|| format!("open the root {}", command.root.display()))?;
    match &command.action {
        DrainAction::Status(options) => status::run(&topic_root, clock, options, voice).await,
        DrainAction::Request(options) => request::ask(&topic_root, clock, options, surroundings, voice).await,
        DrainAction::Cancel => request::cancel(&topic_root, clock, voice),
        DrainAction::AtShutdown(options) => {
            Box::pin(orders::at_shutdown::run(&topic_root, clock, options, surroundings, voice)).await
        }
        DrainAction::Done(options) => orders::done::run(&topic_root, clock, options, voice).await,
        DrainAction::Refuse(options) => {
            orders::pause::refuse(&topic_root, clock, options, surroundings, voice).await
        }
        DrainAction::StartNow(options) => {
            orders::passes::start_now(&topic_root, clock, options, surroundings, voice).await
        }
        DrainAction::Force(options) => {
            orders::force::run(&topic_root, clock, options, surroundings, voice).await
        }
        DrainAction::Plan(options) => plan::run(&topic_root, clock, options, voice).await,
        DrainAction::Pass(options) => {
            orders::passes::pass(&topic_root, clock, options, surroundings, voice).await
        }
        DrainAction::History => history::run(&topic_root, voice),
        DrainAction::Watch(options) => {
            watch::run(&topic_root, clock, Goal::Any, WatchPatience::until(clock, options.timeout), voice)
                .await
        }
    }
}
