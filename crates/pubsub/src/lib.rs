//! pubsub
