//! Who asks for a drain of this node: both agents and our own updates of k3s by their topics, and a person by a file.
//!
//! A request that vanishes is withdrawn only when it stays away: a lost file is written again by its publisher within a
//! second, and a person's file may be replaced by removing it first. Not here: what follows from a request (`core`).

use std::time::Duration;

use agent::{Clock, Outbox, Tasks, operator, wire};
use pubsub::{Change, FileState, TopicRoot};
use step::Mono;
use topics::{NodeDrainRequest, Requester, Topic as _, go_json};
use tracing::{error, warn};

use crate::core::Event;

/// A request that is away for less time was not withdrawn. Publishers write a lost file again within a second; a
/// withdrawal takes effect within 5 s all the same.
const GRACE: Duration = Duration::from_secs(2);

/// Follows all requests for good.
pub(crate) fn follow(tasks: &mut Tasks<Event>, topic_root: &TopicRoot, clock: Clock) {
    for (agent, from) in [
        ("zedagent", Requester::DeviceOp),
        ("baseosmgr", Requester::Update),
        (wire::ZEDKUBE, Requester::K3sUpdate),
        (wire::MAINTENANCE, Requester::NodeMaintenance),
    ] {
        let topic_root = topic_root.clone();
        tasks.events(format!("follow {agent}/{}", NodeDrainRequest::NAME), move |outbox| {
            of_agent(topic_root, agent, RequestFollower::new(from, clock, outbox))
        });
    }
    let topic_root = topic_root.clone();
    tasks.events(format!("follow {}", operator::FILE), move |outbox| {
        of_person(topic_root, RequestFollower::new(Requester::Operator, clock, outbox))
    });
}

struct RequestFollower {
    from: Requester,
    clock: Clock,
    outbox: Outbox<Event>,
    /// When a request that has vanished counts as withdrawn.
    withdrawn: Option<Mono>,
}

impl RequestFollower {
    const fn new(from: Requester, clock: Clock, outbox: Outbox<Event>) -> Self {
        Self { from, clock, outbox, withdrawn: None }
    }

    /// Sends the request; false once the receiver is gone. Its topic or file says who asks.
    async fn put(&mut self, request: NodeDrainRequest) -> bool {
        self.withdrawn = None;
        let request = NodeDrainRequest { requested_by: self.from, ..request };
        self.outbox.send(Event::Request(self.from, Some(request))).await
    }

    fn vanished(&mut self) {
        self.withdrawn = Some(self.clock.now() + GRACE);
    }

    /// Returns when what has vanished counts as withdrawn; never while nothing has. Dropping it loses nothing.
    async fn away(&self) {
        self.clock.sleep_until(self.withdrawn).await;
    }

    /// Sends that there is no request; false once the receiver is gone.
    async fn withdraw(&mut self) -> bool {
        self.withdrawn = None;
        self.outbox.send(Event::Request(self.from, None)).await
    }

    /// Sends that all there is was read.
    async fn read(&self) -> bool {
        self.outbox.send(Event::RequestsRead(self.from)).await
    }
}

async fn of_agent(topic_root: TopicRoot, agent: &'static str, mut asked: RequestFollower) {
    let mut topic = wire::subscription::<NodeDrainRequest>(&topic_root, agent);
    loop {
        let listening = tokio::select! {
            biased;
            change = topic.next() => match change {
                Change::Put { value, .. } => asked.put(value).await,
                Change::Gone { .. } => {
                    asked.vanished();
                    true
                }
                Change::Synced => asked.read().await,
                Change::Restarted(_) => true,
                Change::Bad(finding) => {
                    warn!(topic = NodeDrainRequest::NAME, path = %finding.path.display(), reason = finding.reason,
                        "a topic file cannot be used, its last good value stays");
                    true
                }
            },
            () = asked.away() => asked.withdraw().await,
        };
        if !listening {
            return;
        }
    }
}

async fn of_person(topic_root: TopicRoot, mut asked: RequestFollower) {
    let mut file = operator::request(&topic_root);
    let mut read = false;
    loop {
        let listening = tokio::select! {
            biased;
            state = file.next() => match request_in(state) {
                Ok(Some(request)) => asked.put(request).await,
                Ok(None) if !read => asked.withdraw().await,
                Ok(None) => {
                    asked.vanished();
                    true
                }
                // The last good one stays.
                Err(why) => {
                    asked.withdrawn = None;
                    error!(path = operator::FILE, error = why, "drain request refused; ask with `zedbox drain`");
                    true
                }
            },
            () = asked.away() => asked.withdraw().await,
        };
        // The first state, also that there is no such file or directory, is all that there is to read.
        if !listening || (!std::mem::replace(&mut read, true) && !asked.read().await) {
            return;
        }
    }
}

/// What a person with a shell asks for.
fn request_in(file: FileState) -> Result<Option<NodeDrainRequest>, String> {
    match file {
        FileState::Absent => Ok(None),
        FileState::Present(bytes) => go_json::from_slice(&bytes).map(Some).map_err(|cause| cause.to_string()),
        FileState::Bad(finding) => Err(finding.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::Inbox;
    use pubsub::store;

    const FILES: [(Requester, &str); 4] = [
        (Requester::K3sUpdate, "run/zedkube/NodeDrainRequest/global.json"),
        (Requester::DeviceOp, "run/zedagent/NodeDrainRequest/global.json"),
        (Requester::Update, "run/baseosmgr/NodeDrainRequest/global.json"),
        (Requester::Operator, operator::FILE),
    ];
    const LONG: Duration = Duration::from_secs(600);

    struct RequestsFixture {
        root: tempfile::TempDir,
        clock: Clock,
        inbox: Inbox<Event>,
        _tasks: Tasks<Event>,
    }

    impl RequestsFixture {
        fn new() -> Self {
            let (root, clock) = (tempfile::tempdir().unwrap(), Clock::new());
            let (outbox, inbox) = agent::inbox();
            let mut tasks = Tasks::new(outbox);
            follow(&mut tasks, &TopicRoot::open(root.path()).unwrap(), clock);
            Self { root, clock, inbox, _tasks: tasks }
        }

        fn write(&self, file: &str, context: &str) {
            let request = NodeDrainRequest { context: context.to_owned(), ..NodeDrainRequest::default() };
            store::replace(&self.root.path().join(file), &go_json::to_vec(&request).unwrap()).unwrap();
        }

        /// The next request from `from`: its context, or `None` for a withdrawal.
        async fn request_of(&mut self, from: Requester) -> Option<String> {
            loop {
                let event = tokio::time::timeout(LONG, self.inbox.recv()).await.unwrap().unwrap();
                if let Event::Request(by, request) = event
                    && by == from
                {
                    return request.map(|it| it.context);
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_back_within_two_seconds_was_not_withdrawn() {
        for (from, file) in FILES {
            let mut site = RequestsFixture::new();
            let clock = site.clock;
            site.write(file, "first");
            while site.request_of(from).await.as_deref() != Some("first") {}
            std::fs::remove_file(site.root.path().join(file)).unwrap();
            let before_it_counts = clock.now() + Duration::from_millis(1_999);
            tokio::select! {
                () = clock.sleep_until(Some(before_it_counts)) => {}
                heard = site.request_of(from) => panic!("{heard:?} of {file}"),
            }
            site.write(file, "first");
            // The file is the same request: at most it is heard once more.
            let long_after = clock.now() + 3 * GRACE;
            loop {
                tokio::select! {
                    () = clock.sleep_until(Some(long_after)) => break,
                    heard = site.request_of(from) => assert_eq!(heard.as_deref(), Some("first"), "{file}"),
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn d19_a_request_that_stays_away_for_two_seconds_is_withdrawn() {
        for (from, file) in FILES {
            let mut site = RequestsFixture::new();
            site.write(file, "first");
            while site.request_of(from).await.as_deref() != Some("first") {}
            std::fs::remove_file(site.root.path().join(file)).unwrap();
            let removed = site.clock.now();
            assert_eq!(site.request_of(from).await, None, "{file}");
            let after = site.clock.now().since(removed);
            assert!((GRACE..GRACE * 2).contains(&after), "{after:?} of {file}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_copy_beside_a_request_says_nothing_when_it_comes_and_when_it_goes() {
        for (from, file) in &FILES[..3] {
            let mut site = RequestsFixture::new();
            let copy = file.replace("global", "k0");
            site.write(file, "first");
            while site.request_of(*from).await.as_deref() != Some("first") {}
            site.write(&copy, "of a copy");
            let soon = site.clock.now() + GRACE;
            site.clock.sleep_until(Some(soon)).await;
            std::fs::remove_file(site.root.path().join(&copy)).unwrap();
            let long_after = site.clock.now() + 3 * GRACE;
            loop {
                let clock = site.clock;
                tokio::select! {
                    () = clock.sleep_until(Some(long_after)) => break,
                    heard = site.request_of(*from) => assert_eq!(heard.as_deref(), Some("first"), "{file}"),
                }
            }
        }
    }
}
