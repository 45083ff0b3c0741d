//! The state of this node's drain, told once: what the files say, what that means, and in which words.
//!
//! `view` reads, `judge` decides on the headline and on how a command ends, `rows` and `next` say the rest. Who prints it,
//! and in which form, is not here; nor is any decision about a drain. All but `view` is pure.

mod files;
mod judge;
mod next;
mod outcome;
mod rows;
pub mod text;
mod view;

pub use files::{ForceFileOrder, Watched, operator_file, order_rule, watched};
pub use judge::Judgement;
pub use judge::words::purpose;
pub use outcome::DrainOutcome;
pub use rows::{
    Row, RowWeight, blocker_words, counts_words, finding_words, for_whom, reason, recordons, request_words,
    rows, status_name, status_words,
};
pub use view::{DrainView, Live, OPERATOR};
