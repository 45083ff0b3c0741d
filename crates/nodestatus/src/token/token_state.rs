//! When a block is opened, opened again, or not opened.
//!
//! It is judged once all certificates have been read, and when a certificate changes while it is closed;
//! trouble with the device is retried after a pause. A clear token stays until there is another block: the
//! hash of its clear text has proved it, with or without certificates. Pure: no clock, no I/O, no task.

use std::time::Duration;

use step::Mono;
use topics::{ControllerCert, EdgeNodeCert, Secret};

use super::block::Certs;
use super::block::{BlockRequest, plan};
use super::fault::TokenFault;
use super::fault::{BlockAnswer, ClusterToken, Sealed};
use super::manifest::Manifest;

/// Pause after trouble with the device.
const PAUSE: Duration = Duration::from_secs(60);

pub(super) enum TokenEvent {
    /// A certificate of the controller; `None` when it is gone.
    Controller(String, Option<ControllerCert>),
    /// One of the device.
    Device(String, Option<EdgeNodeCert>),
    /// The controller's were read; there may be none.
    ControllersRead,
    /// The device's.
    DevicesRead,
    /// Result of an [`TokenAction::Open`].
    Opened(Box<(Sealed, Result<OpenedBlock, TokenFault>)>),
}

pub(super) struct OpenedBlock {
    pub(super) token: Secret,
    pub(super) manifest: Result<Manifest, TokenFault>,
}

pub(super) enum TokenAction {
    /// Open this, in place of the one under way.
    Open(Sealed, Box<BlockRequest>),
    Tell(BlockAnswer),
    Written,
    /// Log a failure that differs from the last one.
    Warn(String),
}

#[derive(Default)]
pub(super) struct TokenState {
    certs: Certs,
    controllers_read: bool,
    devices_read: bool,
    wanted: Option<Sealed>,
    state: BlockState,
    /// The token of `wanted` was given in the clear.
    clear: bool,
    warned: String,
}

#[derive(Default)]
enum BlockState {
    /// To be judged.
    #[default]
    Due,
    /// Being opened; whether a certificate has changed meanwhile.
    Opening { changed: bool },
    /// Open or closed; when it is judged again.
    Settled(Option<Mono>),
}

impl TokenState {
    /// Another block, or none.
    pub(super) fn want(&mut self, wanted: Option<Sealed>) {
        if wanted == self.wanted {
            return;
        }
        let block = |it: &Option<Sealed>| it.as_ref().map(|it| it.block.clone());
        self.clear = self.clear && block(&self.wanted) == block(&wanted);
        (self.wanted, self.state) = (wanted, BlockState::Due);
        self.warned.clear();
    }

    /// When [`TokenState::turn`] is due without an event.
    pub(super) fn due(&self) -> Option<Mono> {
        match self.state {
            BlockState::Settled(again) => again,
            BlockState::Due | BlockState::Opening { .. } => None,
        }
    }

    /// Takes an event; all but the result of an opening is handled by [`TokenState::turn`].
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
        // A clear one was opened again for its manifest only.
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
