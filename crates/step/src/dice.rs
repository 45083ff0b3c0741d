//! Pseudo-random numbers from a seed: jitter in cores that can be compared and replayed.
//!
//! Not here: secrets, and the origin of seeds. Source: splitmix64. Pure: no clock, no I/O, no task.

/// Different seeds give different sequences.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }
}
