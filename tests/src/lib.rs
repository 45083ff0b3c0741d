//! Whole-system scenarios: see the files beside this one.
