//! The program as a person, an image and a machine use it.
//!
//! Tests start in the order of their names: the longest ones are in modules of the first half of the alphabet.

#![expect(clippy::panic, clippy::unwrap_used, reason = "a test binary: a panic is its way to fail")]
#![expect(clippy::explicit_write, reason = "a test that passes must not swallow why it did nothing")]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

mod access;
mod artifacts;
mod calls;
mod check;
mod demo;
mod documents;
mod drain_cmd;
mod image;
mod page;
mod processes;
mod setup;
mod update_status;

/// A test that cannot do its work says why.
fn skipped(why: &str) {
    writeln!(std::io::stderr(), "skipped: {why}").unwrap();
}

/// Whether a program is installed; says so when it is not.
fn is_here(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        skipped(&format!("{program} is not installed"));
    }
    found
}

/// Whether it is so within this time.
async fn in_time(limit: Duration, mut is: impl FnMut() -> bool) -> bool {
    let clock = agent::Clock::new();
    let end = clock.now() + limit;
    while !is() {
        if clock.now() >= end {
            return false;
        }
        clock.sleep_until(Some(clock.now() + Duration::from_millis(20))).await;
    }
    true
}

/// A server on loopback: `answer` makes code and text of the number of a request and its head, and ends it with none.
/// Returns its address.
fn serve(mut answer: impl FnMut(usize, &str) -> Option<(u16, String)> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let (mut stream, mut head, mut byte) = (stream.unwrap(), Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or_default() > 0 {
                head.push(byte[0]);
            }
            let Some((code, body)) = answer(nth, &String::from_utf8_lossy(&head)) else { return };
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {code} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            // It may have gone.
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    address
}

/// A test that waits so long has failed.
const TOO_LONG: Duration = Duration::from_secs(60);

/// Killed at the end, before what is declared behind it is dropped.
struct KilledChild(Child);

impl Drop for KilledChild {
    fn drop(&mut self) {
        drop(self.kill());
        drop(self.wait());
    }
}

impl Deref for KilledChild {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for KilledChild {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}
