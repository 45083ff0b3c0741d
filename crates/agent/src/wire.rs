//! Topics on disk: joins the codecs of `topics` with the files of `pubsub`, and turns changes into events.

use std::path::PathBuf;

use pubsub::{
    BadFile, Change, Codec, CodecError, FILE_LIMIT_BYTES, FileRule, FileState, Name, Publication, Retry,
    StoreLarge, Subscription, TopicRoot, store,
};
use topics::{GoTime, Kind, Topic, go_json};
use tracing::warn;

use crate::tasks::{Outbox, Tasks};
use crate::{Clock, Error};

/// Of topics with one value.
pub const GLOBAL: &str = "global";
/// As whom zedkube publishes the request of a NodeMaintenance.
pub const MAINTENANCE: &str = "nodemaintenance";
/// Publisher of the drain, the cluster and this node.
pub const ZEDKUBE: &str = "zedkube";

pub fn name<T: Topic>(agent: &str) -> Name {
    match T::KIND {
        Kind::Volatile => Name::volatile(agent, T::NAME),
        Kind::Persistent => Name::persistent(agent, T::NAME),
    }
}

/// The form of `T` on disk, which always fits a message.
pub fn codec<T: Topic>() -> Codec<T> {
    Codec {
        encode: |value| value.encode().map_err(Into::into),
        decode: |bytes| go_json::from_slice(bytes).map_err(Into::into),
    }
}

/// Follows `agent`'s topic `T`; of a topic with one value that value alone, not other files beside it.
pub fn subscription<T: Topic>(topic_root: &TopicRoot, agent: &str) -> Subscription<T> {
    let all = topic_root.subscription(&name::<T>(agent), codec::<T>());
    match T::KEY {
        Some(key) => all.only(key),
        None => all,
    }
}

/// Becomes the only publisher of `agent`'s topic `T`, with the values of an earlier run, over files and a
/// socket. Needs a runtime.
///
/// Errors: another live process publishes it, or the directory or the socket cannot be made or read.
pub fn publication<T: Topic>(topic_root: &TopicRoot, agent: &str) -> Result<Publication<T>, Error> {
    let refused = |source| Error::Pubsub { what: format!("{agent}/{}", T::NAME), source };
    let mut publication = topic_root.publication(name::<T>(agent), codec::<T>()).map_err(refused)?;
    let served = topic_root.serve(&mut publication, to_wire);
    report_opened(T::NAME, served, publication.take_findings()).map_err(refused)?;
    Ok(publication)
}

fn to_wire(disk: &[u8], store: &mut StoreLarge<'_>) -> Result<Vec<u8>, CodecError> {
    go_json::to_wire(disk, store).map_err(Into::into)
}

fn report_opened(
    topic: &'static str,
    served: Result<(), pubsub::Error>,
    findings: Vec<BadFile>,
) -> Result<(), pubsub::Error> {
    match served {
        // Under so deep a root the reference's processes do not run; files are followed all the same.
        Err(error @ pubsub::Error::SocketPath { .. }) => {
            warn!(topic, %error, "no socket, subscribers hear by files alone");
        }
        other => other?,
    }
    for finding in findings {
        warn!(topic, path = %finding.path.display(), reason = finding.reason, "left out a bad file");
    }
    Ok(())
}

pub fn publish<T: Topic>(publication: &mut Publication<T>, key: &str, value: &T) -> Result<(), Error> {
    publication.publish(key, value).map(drop).map_err(Error::pubsub(T::NAME))
}

/// Removes `key`; a missing one is no error.
pub fn withdraw<T: Topic>(publication: &mut Publication<T>, key: &str) -> Result<(), Error> {
    match publication.unpublish(key) {
        Ok(()) | Err(pubsub::Error::UnknownKey { .. }) => Ok(()),
        Err(source) => Err(Error::pubsub(T::NAME)(source)),
    }
}

pub fn path<T: Topic>(topic_root: &TopicRoot, agent: &str, key: &str) -> PathBuf {
    name::<T>(agent).dir(topic_root.root()).join(format!("{key}.json"))
}

/// One reading of that file; `None` where it is missing or invalid, which a subscription reports.
///
/// Errors: it cannot be read, so it may exist.
pub fn peek<T: Topic>(topic_root: &TopicRoot, agent: &str, key: &str) -> Result<Option<T>, pubsub::Error> {
    match store::read(&path::<T>(topic_root, agent, key), FILE_LIMIT_BYTES) {
        Ok(bytes) => Ok(bytes.and_then(|bytes| go_json::from_slice(&bytes).ok())),
        Err(error) if error.is_refusal() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same for a decision that must not wait for a subscription: a failed read is logged once and repeated
/// until it works. Dropping it loses nothing.
pub async fn look<T: Topic>(topic_root: &TopicRoot, agent: &str, key: &str) -> Option<T> {
    let mut retry = Retry::default();
    loop {
        let error = match peek(topic_root, agent, key) {
            Ok(found) => return found,
            Err(error) => error,
        };
        if retry.failed() {
            warn!(topic = T::NAME, error = %step::chain(&error), "cannot read a topic file, retrying");
        }
        retry.due().await;
    }
}

impl<E: Send + 'static> Tasks<E> {
    /// Follows `agent`'s topic `T`. Bad files are logged here, once each, and make no event.
    pub fn follow<T: Topic>(
        &mut self,
        topic_root: &TopicRoot,
        agent: &str,
        mut to_event: impl FnMut(Change<T>) -> Option<E> + Send + 'static,
    ) {
        let mut subscription = subscription::<T>(topic_root, agent);
        self.events(format!("follow {agent}/{}", T::NAME), move |outbox| async move {
            while send_event(&outbox, subscription.next().await, &mut to_event).await {}
        });
    }

    /// Sends [`Clock::booted_at`], now and each time that the wall clock was set.
    pub fn follow_wall(&mut self, clock: Clock, to_event: impl Fn(GoTime) -> E + Send + 'static) {
        let mut boots = clock.boots();
        self.events("follow the wall clock", move |outbox| async move {
            loop {
                let booted_at = *boots.borrow_and_update();
                if !outbox.send(to_event(booted_at)).await || boots.changed().await.is_err() {
                    return;
                }
            }
        });
    }

    /// Follows one plain file: its present state first, then each new one.
    pub fn follow_file(
        &mut self,
        topic_root: &TopicRoot,
        path: impl Into<PathBuf>,
        rule: FileRule,
        mut to_event: impl FnMut(FileState) -> Option<E> + Send + 'static,
    ) {
        let path = path.into();
        let mut watch = topic_root.file(path.clone(), rule);
        self.events(format!("follow {}", path.display()), move |outbox| async move {
            loop {
                if let Some(event) = to_event(watch.next().await)
                    && !outbox.send(event).await
                {
                    return;
                }
            }
        });
    }
}

/// Sends the event of a change, if any; false once the receiver is gone.
async fn send_event<T: Topic, E: Send>(
    outbox: &Outbox<E>,
    change: Change<T>,
    to_event: &mut impl FnMut(Change<T>) -> Option<E>,
) -> bool {
    let event = match change {
        Change::Bad(finding) => {
            report_bad(T::NAME, &finding);
            None
        }
        change @ (Change::Put { .. } | Change::Gone { .. } | Change::Synced | Change::Restarted(_)) => {
            to_event(change)
        }
    };
    match event {
        Some(event) => outbox.send(event).await,
        None => true,
    }
}

fn report_bad(topic: &'static str, finding: &BadFile) {
    let (path, reason) = (finding.path.display(), &finding.reason);
    warn!(topic, %path, reason, "a topic file cannot be used, its last good value stays");
}
