//! Any bytes as a force file: refused with a reason, or an order that is read as what is written back the same.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match topics::read_force(bytes) {
        Ok(order) => {
            let again = topics::go_json::to_vec(&order).unwrap();
            assert_eq!(topics::read_force(&again).unwrap(), order);
        }
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
});
