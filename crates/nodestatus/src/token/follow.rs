//! Follows the certificates, and opens requested blocks.
//!
//! Keys and files are used on a thread of their own, for a limited time: neither the agent's loop nor a drain
//! waits for a TPM.

use std::time::Duration;

use agent::{AgentContext, Outbox, Tasks};
use pubsub::{Change, TopicRoot};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use topics::{ControllerCert, EdgeNodeCert, Secret, Topic};
use tracing::{info, warn};

use super::block::BlockRequest;
use super::fault::TokenFault;
use super::fault::{BlockAnswer, ClusterToken, Sealed};
use super::keys::TokenKeys;
use super::token_state::{OpenedBlock, TokenAction, TokenEvent, TokenState};
use super::{fields, manifest};

/// A key without an answer for so long is tried again later. A TPM needs about a second.
const KEY_LIMIT: Duration = Duration::from_secs(30);
/// The task that opens a block; there is one at a time.
const OPEN: &str = "open";

/// Answers requests until the sender of `asked` is gone. Dropping it leaves a call to the TPM to end by
/// itself.
pub(crate) async fn follow<E: From<BlockAnswer> + Send + 'static>(
    context: AgentContext,
    keys: TokenKeys,
    mut asked: watch::Receiver<Option<Sealed>>,
    answers: Outbox<E>,
) {
    let (outbox, mut inbox) = agent::inbox();
    let mut tasks = Tasks::new(outbox);
    follow_certs::<ControllerCert>(
        &mut tasks,
        &context.topic_root,
        "zedagent",
        TokenEvent::Controller,
        TokenEvent::ControllersRead,
    );
    follow_certs::<EdgeNodeCert>(
        &mut tasks,
        &context.topic_root,
        "tpmmgr",
        TokenEvent::Device,
        TokenEvent::DevicesRead,
    );
    let (mut desk, mut acts) = (TokenState::default(), Vec::new());
    loop {
        desk.want(asked.borrow_and_update().clone());
        acts.extend(desk.turn(context.clock.now()));
        if !perform(acts, &mut tasks, &context.topic_root, &keys, &answers).await {
            return;
        }
        acts = tokio::select! {
            changed = asked.changed() => if changed.is_err() { return } else { Vec::new() },
            heard = inbox.recv() => match heard {
                Some(heard) => desk.hear(context.clock.now(), heard),
                None => return,
            },
            () = context.clock.sleep_until(desk.due()) => Vec::new(),
        };
    }
}

fn follow_certs<T: Topic>(
    tasks: &mut Tasks<TokenEvent>,
    topic_root: &TopicRoot,
    agent: &str,
    cert: fn(String, Option<T>) -> TokenEvent,
    read: TokenEvent,
) {
    let mut read = Some(read);
    tasks.follow::<T>(topic_root, agent, move |change| match change {
        Change::Put { key, value, .. } => Some(cert(key, Some(value))),
        Change::Gone { key, .. } => Some(cert(key, None)),
        Change::Synced => read.take(),
        Change::Restarted(_) | Change::Bad(_) => None,
    });
}

/// Performs actions; false once the receiver is gone.
async fn perform<E: From<BlockAnswer>>(
    acts: Vec<TokenAction>,
    tasks: &mut Tasks<TokenEvent>,
    topic_root: &TopicRoot,
    keys: &TokenKeys,
    answers: &Outbox<E>,
) -> bool {
    for act in acts {
        match act {
            TokenAction::Open(of, order) => {
                let (topic_root, keys) = (topic_root.clone(), keys.clone());
                tasks.start(OPEN, async move {
                    let bootstrap = of.bootstrap;
                    let work = async move {
                        let turn = keys.turn().await;
                        spawn_blocking(move || {
                            let result = open(&topic_root, &keys, &order, bootstrap);
                            drop(turn);
                            result
                        })
                        .await
                    };
                    let result = match timeout(KEY_LIMIT, work).await {
                        Ok(Ok(result)) => result,
                        Ok(Err(_)) => Err(TokenFault::Late("the work on the key ended early")),
                        Err(_) => Err(TokenFault::Late("the key has not answered within 30 s")),
                    };
                    Some(TokenEvent::Opened(Box::new((of, result))))
                });
            }
            TokenAction::Tell(answer) => {
                if matches!(answer.token, ClusterToken::Clear(_)) {
                    info!("the cluster's token is decrypted");
                }
                if !answers.send(answer.into()).await {
                    return false;
                }
            }
            TokenAction::Written => {
                info!(path = %topic_root.path(manifest::FILE).display(), "the registration manifest is written");
            }
            TokenAction::Warn(error) => warn!(error, "the cluster's token or its manifest waits"),
        }
    }
    true
}

/// Blocks its thread.
fn open(
    topic_root: &TopicRoot,
    keys: &TokenKeys,
    order: &BlockRequest,
    bootstrap: bool,
) -> Result<OpenedBlock, TokenFault> {
    let shared = keys.shared(order)?;
    let clear = order.open(&shared)?;
    let fields = fields::read(&clear).map_err(TokenFault::Content)?;
    Ok(OpenedBlock {
        token: Secret::new(fields.token.to_owned()),
        manifest: manifest::put(topic_root, if bootstrap { fields.manifest } else { &[] }),
    })
}

#[cfg(test)]
pub(super) mod tests;
