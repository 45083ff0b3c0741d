//! Publishers and their subscribers over real sockets.

mod any_order;
mod large;
mod publisher;
mod wired;
