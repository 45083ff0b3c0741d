//! Faults of the reference that this core must not have; each test fails on the reference's logic.
