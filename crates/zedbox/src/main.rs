//! The program `zedbox`; all of it is in the library, which tools of the workspace can ask for its command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    zedbox::main()
}
