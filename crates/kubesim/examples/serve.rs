//! Serves an empty embedded cluster until it is interrupted, and writes a kubeconfig that leads to it: to try
//! `kubectl`, or the scenarios as on a real API server.

use std::path::Path;

use kubesim::{Sim, SimConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let Some(file) = std::env::args_os().nth(1) else {
        return Err(std::io::Error::other("name the kubeconfig to write: serve FILE"));
    };
    let server = Sim::new(SimConfig::default()).serve().await?;
    std::io::Write::write_all(&mut std::fs::File::create(Path::new(&file))?, server.kubeconfig().as_bytes())?;
    std::future::pending::<()>().await;
    Ok(())
}
