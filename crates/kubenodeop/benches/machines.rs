//! Prints what a drain of twenty virtual machines takes of which five may move at once, the floor, and their ratio. The
//! clock is paused: the figures are those of the waits alone, on any machine.

#![expect(clippy::unwrap_used, reason = "a measurement: a panic is its way to fail")]

#[path = "../tests/stage/order.rs"]
mod order;
#[path = "../tests/stage/machines.rs"]
mod twenty;

use std::io::Write;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let floor = twenty::floor().await?;
    let ours = twenty::ours().await?;
    let ratio = ours.took.as_secs_f64() / floor.as_secs_f64();
    let (all, most) = ours.migrations;
    writeln!(
        std::io::stdout(),
        "floor {:.2} s, drain {:.2} s, ratio {ratio:.3}",
        floor.as_secs_f64(),
        ours.took.as_secs_f64()
    )?;
    writeln!(
        std::io::stdout(),
        "{all} migrations, {most} at once, {} requests of the drain and the cluster's parts",
        ours.requests
    )?;
    Ok(())
}
