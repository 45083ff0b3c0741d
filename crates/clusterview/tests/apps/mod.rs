//! Applications as a node reports them: watches and logs of an embedded cluster, and real files, on a clock that
//! stands still.

mod crashes;
mod logs;
mod pipe;
mod runs;
mod stage;
mod statuses;
