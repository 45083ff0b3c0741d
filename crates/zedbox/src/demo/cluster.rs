//! The embedded cluster of the demo: three nodes and the kinds of workload that a drain meets.
