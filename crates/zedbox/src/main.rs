//! The program `zedbox`; all of it is in the library, for tools that need its command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    zedbox::main()
}
