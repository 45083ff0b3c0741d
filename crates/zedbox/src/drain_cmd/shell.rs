//! Where a command of a person works, and for whom.

use std::path::Path;

use agent::Clock;
use anyhow::Context as _;
use kubeapi::ApiClient;
use outage::site::record::OperatorStatement;
use pubsub::TopicRoot;
use sheet::DrainView;

use super::person;
use super::voice::Voice;
use crate::args::{NodePlace, Surroundings, kubeconfig_of};

pub(crate) struct Shell {
    pub(crate) topic_root: TopicRoot,
    pub(crate) clock: Clock,
    pub(crate) voice: Voice,
    surroundings: Surroundings,
}

impl Shell {
    pub(crate) fn open(place: &NodePlace) -> anyhow::Result<Self> {
        let surroundings = Surroundings::of_this_process();
        let topic_root = TopicRoot::open(&place.root);
        Ok(Self {
            topic_root: topic_root.with_context(|| format!("open the root {}", place.root.display()))?,
            clock: Clock::new(),
            voice: Voice::new(place.output, &surroundings),
            surroundings,
        })
    }

    /// Errors: as [`kubeconfig_of`].
    pub(crate) fn cluster(&self, kubeconfig: Option<&Path>) -> anyhow::Result<ApiClient> {
        Ok(ApiClient::from_kubeconfig(kubeconfig_of(kubeconfig, self.topic_root.root())?))
    }

    pub(super) fn look(&self) -> DrainView {
        DrainView::read(&self.topic_root, self.clock)
    }

    /// The name of the person.
    pub(super) fn who(&self) -> String {
        person::name(&self.surroundings)
    }

    /// The same in words that are kept elsewhere: `operator field on edge-node-1`.
    pub(crate) fn operator(&self) -> String {
        format!("operator {}", person::at(&self.surroundings))
    }

    /// What the person says, why and when.
    pub(crate) fn statement(&self, why: &str) -> anyhow::Result<OperatorStatement> {
        let (who, when) = (self.operator(), self.clock.wall().to_timestamp().to_string());
        let why = person::reason(why)?.to_owned();
        Ok(OperatorStatement { who, why, when, ..OperatorStatement::default() })
    }
}
