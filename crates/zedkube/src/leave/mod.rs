//! Leaving the cluster: what the config says about it, what is known of it from before, and the walk out of it.
//!
//! A task of its own: no turn of the drain waits for it (D-K10). Until the walk has ended, this node counts as one
//! that is leaving: its address and status in the cluster stay as they are, no drain begins, and the lease is given
//! back. Not here: the walk's steps (`kubenodeop::leave`). `rules` decides and is pure; `run` waits, writes and walks.

mod rules;
mod run;

pub(crate) use run::Leaver;
