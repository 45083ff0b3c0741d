//! What the elected node reports and what this node follows of its cluster, against the embedded cluster.

mod apps;
mod duties;
mod stats;
