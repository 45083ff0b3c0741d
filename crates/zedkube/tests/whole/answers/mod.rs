//! Who asks, who is answered what, and what is kept of it.

mod clock;
mod forced;
mod history;
mod operator;
mod statuses;
mod void;
mod withdrawn;
