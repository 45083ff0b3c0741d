//! zedkube
