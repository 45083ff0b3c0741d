//! When a block is opened, again, and not at all.
//!
//! It is judged once all certificates have been read, and when a certificate changes while it is shut; trouble with the
//! device is tried again after a pause. A token that is clear stays so until the block is another one: the hash of its
//! clear text has proved it, whatever becomes of the certificates. Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;
use topics::{ControllerCert, EdgeNodeCert, Secret};

use super::block::{BlockRequest, plan};
use super::cert::Certs;
use super::facts::{BlockAnswer, ClusterToken, Sealed};
use super::fault::TokenFault;
use super::manifest::Manifest;

/// Pause before trouble with the device is looked at again.
const PAUSE: Duration = Duration::from_secs(60);

pub(super) enum TokenEvent {
    /// A certificate of the controller; `None` when it is gone.
    Controller(String, Option<ControllerCert>),
    /// One of the device.
    Device(String, Option<EdgeNodeCert>),
    /// The controller's have been looked for; there may be none.
    ControllersRead,
    /// The device's.
    DevicesRead,
    /// What came of an [`TokenAction::Open`].
    Opened(Box<(Sealed, Result<OpenedBlock, TokenFault>)>),
}

/// What was in a block.
pub(super) struct OpenedBlock {
    pub(super) token: Secret,
    /// What became of the manifest.
    pub(super) manifest: Result<Manifest, TokenFault>,
}

/// What is to be done.
pub(super) enum TokenAction {
    /// Open this, in place of what is being opened.
    Open(Sealed, Box<BlockRequest>),
    Tell(BlockAnswer),
    /// Log that the manifest is written.
    Written,
    /// Log why something is not done: a text that was not logged last.
    Warn(String),
}

/// The state of the one block that is wanted.
#[derive(Default)]
pub(super) struct TokenState {
    certs: Certs,
    controllers_read: bool,
    devices_read: bool,
    wanted: Option<Sealed>,
    state: BlockState,
    /// The token of `wanted` has been told in the clear.
    clear: bool,
    warned: String,
}

/// What continues with it.
#[derive(Default)]
enum BlockState {
    /// It is to be judged.
    #[default]
    Due,
    /// It is being opened; whether a certificate has changed meanwhile.
    Opening { changed: bool },
    /// It is open or shut; when it is judged again by itself.
    Settled(Option<Mono>),
}

impl TokenState {
    /// Another block is wanted, or none.
    pub(super) fn want(&mut self, wanted: Option<Sealed>) {
        if wanted == self.wanted {
            return;
        }
        let block = |it: &Option<Sealed>| it.as_ref().map(|it| it.block.clone());
        self.clear = self.clear && block(&self.wanted) == block(&wanted);
        (self.wanted, self.state) = (wanted, BlockState::Due);
        self.warned.clear();
    }

    /// When [`TokenState::turn`] is due without anything heard.
    pub(super) fn due(&self) -> Option<Mono> {
        match self.state {
            BlockState::Settled(again) => again,
            BlockState::Due | BlockState::Opening { .. } => None,
        }
    }

    /// Hears of something; what follows is for [`TokenState::turn`], but for what came of an opening.
    pub(super) fn hear(&mut self, now: Mono, heard: TokenEvent) -> Vec<TokenAction> {
        match heard {
            TokenEvent::ControllersRead => self.controllers_read = true,
            TokenEvent::DevicesRead => self.devices_read = true,
            TokenEvent::Controller(key, Some(cert)) => drop(self.certs.controller.insert(key, cert)),
            TokenEvent::Controller(key, None) => drop(self.certs.controller.remove(&key)),
            TokenEvent::Device(key, Some(cert)) => drop(self.certs.device.insert(key, cert)),
            TokenEvent::Device(key, None) => drop(self.certs.device.remove(&key)),
            TokenEvent::Opened(done) => {
                let (of, result) = *done;
                return if Some(&of) == self.wanted.as_ref() { self.opened(now, of, result) } else { vec![] };
            }
        }
        match &mut self.state {
            BlockState::Opening { changed } => *changed = true,
            BlockState::Settled(_) if !self.clear => self.state = BlockState::Due,
            BlockState::Settled(_) | BlockState::Due => {}
        }
        vec![]
    }

    /// What is to be done now.
    pub(super) fn turn(&mut self, now: Mono) -> Vec<TokenAction> {
        if self.due().is_some_and(|due| due <= now) {
            self.state = BlockState::Due;
        }
        let Some(wanted) = &self.wanted else { return vec![] };
        if !matches!(self.state, BlockState::Due) || !self.controllers_read || !self.devices_read {
            return vec![];
        }
        let of = wanted.clone();
        match plan(&of.block, &self.certs) {
            Ok(order) => {
                self.state = BlockState::Opening { changed: false };
                vec![TokenAction::Open(of, Box::new(order))]
            }
            Err(fault) => self.shut(now, of, &fault),
        }
    }

    fn opened(&mut self, now: Mono, of: Sealed, result: Result<OpenedBlock, TokenFault>) -> Vec<TokenAction> {
        let changed = matches!(self.state, BlockState::Opening { changed: true });
        let opened = match result {
            Ok(opened) => opened,
            Err(_) if changed => {
                self.state = BlockState::Due;
                return vec![];
            }
            Err(fault) => return self.shut(now, of, &fault),
        };
        self.clear = true;
        let mut acts = vec![TokenAction::Tell(BlockAnswer { of, token: ClusterToken::Clear(opened.token) })];
        let again = match opened.manifest {
            Ok(Manifest::Unchanged) => None,
            Ok(Manifest::Written) => {
                acts.push(TokenAction::Written);
                None
            }
            Err(fault) => {
                acts.extend(self.warn(fault.to_string()));
                fault.may_pass().then(|| now + PAUSE)
            }
        };
        self.state = BlockState::Settled(again);
        acts
    }

    fn shut(&mut self, now: Mono, of: Sealed, fault: &TokenFault) -> Vec<TokenAction> {
        // One that is clear was opened again for its manifest alone.
        self.state = BlockState::Settled((fault.may_pass() || self.clear).then(|| now + PAUSE));
        let mut acts = self.warn(fault.to_string());
        if !self.clear {
            acts.push(TokenAction::Tell(BlockAnswer {
                of,
                token: ClusterToken::Failed(fault.status_text()),
            }));
        }
        acts
    }

    fn warn(&mut self, text: String) -> Vec<TokenAction> {
        if self.warned == text {
            return vec![];
        }
        self.warned.clone_from(&text);
        vec![TokenAction::Warn(text)]
    }
}

#[cfg(test)]
mod tests;
