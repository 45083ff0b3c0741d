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
mod shell;
mod status;
pub(crate) mod text;
pub(crate) mod voice;
mod watch;

use topics::DeviceOp;

use crate::Exit;
use crate::args::{NodeCommand, OtherDrain};
use course::Goal;
pub(crate) use shell::Shell;
use watch::WatchPatience;

/// Does what `command` says; with its name for what goes wrong.
pub(crate) async fn run(command: &NodeCommand) -> (&'static str, anyhow::Result<Exit>) {
    let shell = &match Shell::open(command.place()) {
        Ok(shell) => shell,
        Err(error) => return ("drain", Err(error)),
    };
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
