//! When drains may start: the windows that are set, whether the clock can be believed, and a person's word that this one
//! starts now.

mod follow;
mod rules;

pub(crate) use follow::follow;
pub(crate) use rules::Windows;
