//! nodeagent
