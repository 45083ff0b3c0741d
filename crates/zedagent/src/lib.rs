//! zedagent
