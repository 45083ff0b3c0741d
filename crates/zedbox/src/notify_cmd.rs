//! `zedbox notify test`: one message where the agents would post their notices.
//!
//! Not here: when agents post (`zedkube::node_report`), and how (`kubeapi::connect::webhook`).

use anyhow::{Context as _, anyhow};

use crate::Exit;
use crate::args::{NotifyCommand, settings, webhook};
use crate::drain_cmd::voice::Voice;

pub(crate) async fn run(command: &NotifyCommand) -> anyhow::Result<Exit> {
    let address = settings::notify(&command.root).with_context(|| {
        let file = command.root.join("etc/zedbox").join(settings::NAME);
        let file = file.display();
        format!("find an address: {file} names none, as notify = \"https://…\" (`zedbox check {file}` shows its faults)")
    })?;
    let hook = webhook(&address)?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let posted = hook.post(&format!("{host}: a test of zedbox; notices of this node come here")).await;
    posted.map_err(|why| anyhow!("{why}")).with_context(|| format!("post to {hook}"))?;
    Voice::print(&format!("Posted a test message to {hook}.\n")).map(|_| Exit::Done)
}
