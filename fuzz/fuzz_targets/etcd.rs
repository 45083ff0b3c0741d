//! Any bytes as what the margin of etcd is read from. The first says what the rest is: metrics, the list of members, or what
//! the agent of another member answers to `/outage`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outage::trial;

fuzz_target!(|bytes: &[u8]| {
    let Some((which, rest)) = bytes.split_first() else { return };
    let refused = match which % 3 {
        0 => trial::metrics(rest).err(),
        1 => trial::members(rest).err(),
        _ => trial::peer(rest).err(),
    };
    assert!(refused.is_none_or(|why| !why.is_empty()));
});
