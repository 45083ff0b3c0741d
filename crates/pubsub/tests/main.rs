//! Files and sockets of topics, as publishers and subscribers use them.

mod files;
mod places;
mod quoted;
mod records;
mod restored;
mod sockets;
