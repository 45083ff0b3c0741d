//! What every door does alike.
