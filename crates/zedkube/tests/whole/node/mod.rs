//! The node beside a drain: after a boot, and on its way out of the cluster.

mod after_boot;
mod leaving;
mod leaving_words;
mod other_image;
mod probes;
