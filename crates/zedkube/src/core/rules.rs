//! Rules of the drain, each tried in a sentence.
