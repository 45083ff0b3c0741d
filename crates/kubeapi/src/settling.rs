//! Whether the API server is only just back.
//!
//! A kube-apiserver that has just started answers before it has read who may do what: it refuses calls that
//! it allows a second later (seen with 1.36: 403 for watches and calls right after a restart). Such a refusal
//! does not count against the role, and no pod or attempt is given up for it.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// How long after the last call without a server refusals are doubted.
pub(crate) const SETTLES: Duration = Duration::from_secs(30);

/// The last call that found no server.
#[derive(Debug, Default)]
pub(crate) struct Settling(Mutex<Option<Instant>>);

impl Settling {
    pub(crate) fn away(&self) {
        *self.last() = Some(now());
    }

    pub(crate) fn lasts(&self) -> bool {
        self.last().is_some_and(|away| now().duration_since(away) < SETTLES)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[expect(clippy::disallowed_methods, reason = "a time limit of calls, as everywhere in this crate")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ApiClient;
    use crate::error::Error;
    use crate::mock;
    use crate::nodes;
    use crate::reply::ReplyClass;

    async fn refused(cluster: &ApiClient) -> Error {
        nodes::probe(cluster).await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_once_the_server_has_been_there_for_a_while() {
        let no = |code| mock::status(code, "nodes is forbidden");
        let answers = vec![no(403), mock::MockReply::Refused("gone"), no(403), no(401), no(403), no(401)];
        let (cluster, _) = mock::cluster(answers);
        assert_eq!(refused(&cluster).await.reply().class(), ReplyClass::Permanent, "it was never away");
        assert!(matches!(refused(&cluster).await, Error::Connection { .. }));
        for code in [403, 401] {
            let error = refused(&cluster).await;
            assert_eq!(error.reply().class(), ReplyClass::Transient, "{code}");
            assert!(error.line().contains("only just back"), "{}", error.line());
            assert!(error.next_step().contains("wait"), "{}", error.next_step());
        }
        tokio::time::advance(SETTLES).await;
        for code in [403, 401] {
            let error = refused(&cluster).await;
            assert_eq!(error.reply().class(), ReplyClass::Permanent, "{code}");
            assert!(!error.line().contains("only just back"), "{}", error.line());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_cut_and_silence_are_signs_too() {
        let no = || mock::status(403, "nodes is forbidden");
        let cut = mock::MockReply::Lines(Vec::new(), mock::AfterLines::Cut);
        let (cluster, _) = mock::cluster(vec![cut, no()]);
        let watch = kube::core::Request::new("/api/v1/nodes").watch(&kube::api::WatchParams::default(), "1");
        let mut body = cluster.watch("watch nodes", watch).await.unwrap();
        let cut = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap_err();
        let end = cluster.cut("watch nodes", cut);
        assert!(matches!(end, Error::Connection { .. }), "{end:?}");
        assert_eq!(refused(&cluster).await.reply().class(), ReplyClass::Transient);

        let (cluster, _) = mock::cluster(vec![mock::MockReply::Silence, no()]);
        assert!(matches!(refused(&cluster).await, Error::Silent { .. }));
        assert_eq!(refused(&cluster).await.reply().class(), ReplyClass::Transient);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_there_and_in_trouble_refuses_for_good() {
        let (cluster, _) = mock::cluster(vec![
            mock::status(500, "a webhook failed"),
            mock::status(403, "nodes is forbidden"),
        ]);
        refused(&cluster).await;
        assert_eq!(refused(&cluster).await.reply().class(), ReplyClass::Permanent);
    }
}
