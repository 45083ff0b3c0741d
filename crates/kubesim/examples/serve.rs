//! Serves an embedded cluster until it is interrupted, and writes its kubeconfig: to try `kubectl`, or the
//! scenarios as on a real API server, or to measure the agents. It is empty, or has three nodes and the given
//! number of pods.

use std::path::Path;

use kubesim::{Sim, SimConfig};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let Some(file) = std::env::args_os().nth(1) else {
        return Err(std::io::Error::other("name the kubeconfig to write: serve FILE [PODS]"));
    };
    let pods =
        std::env::args().nth(2).map_or(Ok(0), |it| it.parse::<u64>()).map_err(std::io::Error::other)?;
    let sim = Sim::new(SimConfig::default());
    if pods > 0 {
        for number in 1..=3 {
            sim.add_node(&format!("edge-node-{number}"), &format!("{number:08}-0000-4000-8000-000000000000"));
        }
        // Workloads of ten, as on a site.
        for workload in 0..pods.div_ceil(10) {
            sim.add_deployment("shop", &format!("web-{workload}"), 10.min(pods - workload * 10));
        }
    }
    let server = sim.serve().await?;
    std::io::Write::write_all(&mut std::fs::File::create(Path::new(&file))?, server.kubeconfig().as_bytes())?;
    std::future::pending::<()>().await;
    Ok(())
}
