//! Rules of device operations, each tried in a sentence, and all of them against any order of facts.
