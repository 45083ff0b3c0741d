//! What the linker leaves out of an image: tables for unwinding, functions with the same code twice, relocations one
//! by one.
//!
//! A profile of cargo cannot say it. Only for the profile `image` (small, no debug lines) and only where the compiler
//! brings the linker that knows these words; elsewhere the program is as good and about two megabytes larger. The code is
//! told by `no_unwind_tables`.

#![expect(clippy::disallowed_methods, reason = "the words of cargo to a build script are variables")]

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=image.ld");
    println!("cargo:rustc-check-cfg=cfg(no_unwind_tables)");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    let small = is("OPT_LEVEL", "z") && is("DEBUG", "false");
    let brought = is("TARGET", "x86_64-unknown-linux-gnu") && env::var_os("RUSTC_LINKER").is_none();
    if small && brought {
        println!("cargo:rustc-cfg=no_unwind_tables");
        let script = format!("-T{}/image.ld", env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
        for word in ["--icf=all", "-zpack-relative-relocs", "--no-eh-frame-hdr", &script] {
            println!("cargo:rustc-link-arg-bins=-Wl,{word}");
        }
    }
}
