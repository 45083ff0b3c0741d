//! Speed, requests and memory of a drain, beside a floor that does only what must be done, by hand.
//!
//! `cargo bench -p kubenodeop --bench drain` prints a Markdown table; `-- many` measures one case only. No harness:
//! this program, started by itself, is also the API server, the floor and the drain, each a process of its own.
//! With `KUBECONFIG` set the server is the one it names; see `real`.

#![expect(clippy::unwrap_used, reason = "a bench: a panic is its way to fail")]
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod case;
mod floor;
mod ours;
#[path = "../../../pubsub/benches/two_processes/process.rs"]
mod process;
mod real;
mod server;
mod table;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use case::{CASES, Case, Way};
use server::{Sample, Server};
use table::{Row, print};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [role, case, file] = &arguments[..]
        && let Some(role) = role.strip_prefix("--as-")
    {
        play(role, Case::named(case), Path::new(file));
        return ExitCode::SUCCESS;
    }
    if !arguments.iter().any(|it| it == "--bench") {
        println!("skipped: measured only by `cargo bench -p kubenodeop --bench drain`");
        return ExitCode::SUCCESS;
    }
    let only: Vec<&String> = arguments.iter().filter(|it| !it.starts_with("--")).collect();
    let real = env::var_os("KUBECONFIG").filter(|it| !it.is_empty()).map(PathBuf::from);
    let mut rows = Vec::new();
    for case in CASES.into_iter().filter(|it| only.is_empty() || only.iter().any(|name| *name == it.name)) {
        if let (Some(_), Some(why)) = (&real, case.not_on_a_real_server) {
            println!("{}: cannot run on a real API server: {why}", case.what);
            continue;
        }
        rows.push(measure(case, real.as_deref()));
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap();
    println!("load of this machine: {}; beside other work the numbers are about that", load.trim());
    print(&rows);
    // A miss is told, and no reason to fail: the machine may have been busy.
    ExitCode::SUCCESS
}

/// The floor and ours in turn, each on a cluster of its own.
fn measure(case: Case, real: Option<&Path>) -> Row {
    let mut row = Row::new(case);
    for round in 0..case.rounds {
        let mut ways = [Way::Floor, Way::Ours];
        if round % 2 == 1 {
            ways.reverse();
        }
        for way in ways {
            let sample = run(case, way, real);
            println!("{}, {way:?}: {sample}", case.what);
            row.push(way, sample);
        }
    }
    row
}

fn run(case: Case, way: Way, real: Option<&Path>) -> Sample {
    let server = Server::start(case, real);
    let sample = server.drained_by(way);
    Sample { requests: server.end(), ..sample }
}

/// One of the other processes.
fn play(role: &str, case: Case, file: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match role {
        "server" => runtime.block_on(server::serve(case, file)),
        "real" => runtime.block_on(real::serve(case, file)),
        "floor" => runtime.block_on(floor::drain(case, file)),
        _ => runtime.block_on(ours::drain(case, file)),
    }
}
