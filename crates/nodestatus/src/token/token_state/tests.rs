//! The tokens by itself: when it opens, waits, tries again and keeps quiet.

use std::time::Duration;

use step::Mono;
use topics::Secret;

use super::super::fault::TokenFault;
use super::super::manifest::Manifest;
use super::super::tests::samples::*;
use super::{OpenedBlock, TokenAction, TokenEvent, TokenState};
use crate::token::fault::{ClusterToken, Sealed};

const TEXT: &str = "a token";

fn at(secs: u64) -> Mono {
    Mono::START + Duration::from_secs(secs)
}

fn sealed(bootstrap: bool) -> Sealed {
    Sealed { block: fixed(), bootstrap }
}

fn said(acts: Vec<TokenAction>) -> Vec<String> {
    let word = |act| match act {
        TokenAction::Open(of, _) => format!("open {}", of.bootstrap),
        TokenAction::Tell(answer) => match answer.token {
            ClusterToken::Clear(text) => format!("clear {}", text.reveal()),
            ClusterToken::Failed(why) => format!("failed {why}"),
            other @ (ClusterToken::None | ClusterToken::Pending) => panic!("{other:?}"),
        },
        TokenAction::Written => "written".to_owned(),
        TokenAction::Warn(why) => format!("warn {why}"),
    };
    acts.into_iter().map(word).collect()
}

fn hear(tokens: &mut TokenState, now: Mono, heard: TokenEvent) -> Vec<String> {
    let mut acts = tokens.hear(now, heard);
    acts.extend(tokens.turn(now));
    said(acts)
}

fn opened(
    tokens: &mut TokenState,
    now: Mono,
    of: Sealed,
    result: Result<OpenedBlock, TokenFault>,
) -> Vec<String> {
    hear(tokens, now, TokenEvent::Opened(Box::new((of, result))))
}

fn good(manifest: Result<Manifest, TokenFault>) -> OpenedBlock {
    OpenedBlock { token: Secret::new(TEXT.to_owned()), manifest }
}

fn controller(there: bool) -> TokenEvent {
    let (key, cert) = controller_cert(CONTROLLER_CERT.as_bytes());
    TokenEvent::Controller(key, there.then_some(cert))
}

fn device() -> TokenEvent {
    let (key, cert) = device_cert(DEVICE_CERT.as_bytes(), true);
    TokenEvent::Device(key, Some(cert))
}

/// A tokens at which the fixed block is being opened.
fn opening() -> TokenState {
    let mut tokens = TokenState::default();
    tokens.want(Some(sealed(true)));
    for heard in [controller(true), device(), TokenEvent::ControllersRead] {
        assert!(hear(&mut tokens, at(0), heard).is_empty(), "judged before all certificates were read");
    }
    assert_eq!(hear(&mut tokens, at(0), TokenEvent::DevicesRead), ["open true"]);
    tokens
}

#[test]
fn nothing_is_judged_before_the_certificates_were_looked_for_and_then_what_is_missing_is_told_once() {
    let mut tokens = TokenState::default();
    tokens.want(Some(sealed(false)));
    assert!(hear(&mut tokens, at(0), TokenEvent::DevicesRead).is_empty());
    let told = hear(&mut tokens, at(0), TokenEvent::ControllersRead);
    assert!(
        told[0].starts_with("warn no such cert") && told[1].starts_with("failed decryptCluster"),
        "{told:?}"
    );
    // Time brings no certificate.
    assert_eq!(tokens.due(), None);
    assert!(said(tokens.turn(at(9999))).is_empty());
    // Another certificate: the same is told, and not logged again.
    let told = hear(&mut tokens, at(1), device());
    assert!(told.len() == 1 && told[0].starts_with("failed decryptCluster"), "{told:?}");
    assert_eq!(hear(&mut tokens, at(2), controller(true)), ["open false"]);
}

#[test]
fn trouble_with_the_device_is_tried_again_after_a_minute_and_logged_once() {
    let mut tokens = opening();
    let trouble = || Err(TokenFault::Late("the key sleeps"));
    let told = opened(&mut tokens, at(1), sealed(true), trouble());
    assert!(told[0].starts_with("warn the key sleeps") && told[1].starts_with("failed "), "{told:?}");
    assert_eq!(tokens.due(), Some(at(61)));
    assert!(said(tokens.turn(at(60))).is_empty());
    assert_eq!(said(tokens.turn(at(61))), ["open true"]);
    assert_eq!(tokens.due(), None);
    assert_eq!(opened(&mut tokens, at(62), sealed(true), trouble()).len(), 1, "logged again");
    assert_eq!(said(tokens.turn(at(122))), ["open true"]);
    assert_eq!(
        opened(&mut tokens, at(123), sealed(true), Ok(good(Ok(Manifest::Written)))),
        ["clear a token", "written"]
    );
    assert_eq!(tokens.due(), None);
}

#[test]
fn what_another_try_cannot_mend_is_not_tried_again_but_with_another_certificate() {
    let mut tokens = opening();
    opened(&mut tokens, at(1), sealed(true), Err(TokenFault::Mismatch));
    assert_eq!(tokens.due(), None);
    assert_eq!(hear(&mut tokens, at(2), device()), ["open true"]);
    // One that comes while the block is being opened counts too.
    assert!(hear(&mut tokens, at(3), device()).is_empty());
    assert_eq!(opened(&mut tokens, at(4), sealed(true), Err(TokenFault::Mismatch)), ["open true"]);
}

#[test]
fn a_clear_token_stays_clear_whatever_becomes_of_certificates_and_manifest() {
    let mut tokens = opening();
    let place = || TokenFault::Place("no vault".to_owned());
    let told = opened(&mut tokens, at(1), sealed(true), Ok(good(Err(place()))));
    assert!(told[0] == "clear a token" && told[1].starts_with("warn no vault"), "{told:?}");
    assert_eq!(tokens.due(), Some(at(61)));
    assert!(hear(&mut tokens, at(2), controller(false)).is_empty());
    // For the manifest it is opened again, which fails now: that is logged, and the token stays.
    let told = said(tokens.turn(at(61)));
    assert!(told.len() == 1 && told[0].starts_with("warn no such cert"), "{told:?}");
    assert_eq!(tokens.due(), Some(at(121)));
    // A manifest that no try can fix is left.
    hear(&mut tokens, at(62), controller(true));
    assert_eq!(said(tokens.turn(at(121))), ["open true"]);
    let told =
        opened(&mut tokens, at(122), sealed(true), Ok(good(Err(TokenFault::Manifest("torn".to_owned())))));
    assert!(told[0] == "clear a token" && told[1].starts_with("warn the manifest cannot"), "{told:?}");
    assert_eq!(tokens.due(), None);
}

#[test]
fn an_answer_speaks_for_its_block_alone_and_no_block_is_no_work() {
    let mut tokens = opening();
    let mut other = sealed(true);
    other.block.cipher_block_id = "other".to_owned();
    tokens.want(Some(other.clone()));
    assert_eq!(said(tokens.turn(at(1))), ["open true"]);
    assert!(opened(&mut tokens, at(2), sealed(true), Ok(good(Ok(Manifest::Unchanged)))).is_empty());
    tokens.want(None);
    assert!(said(tokens.turn(at(3))).is_empty());
    assert!(opened(&mut tokens, at(4), other.clone(), Ok(good(Ok(Manifest::Unchanged)))).is_empty());
    assert_eq!(tokens.due(), None);
    // Wanted again it is opened again; as the node that starts the cluster too.
    tokens.want(Some(sealed(false)));
    assert_eq!(said(tokens.turn(at(5))), ["open false"]);
    assert_eq!(
        opened(&mut tokens, at(6), sealed(false), Ok(good(Ok(Manifest::Unchanged)))),
        ["clear a token"]
    );
    tokens.want(Some(sealed(true)));
    assert_eq!(said(tokens.turn(at(7))), ["open true"]);
    // It is clear already: trouble now does not take it back.
    let told = opened(&mut tokens, at(8), sealed(true), Err(TokenFault::Late("the key sleeps")));
    assert!(told.len() == 1 && told[0].starts_with("warn"), "{told:?}");
}
