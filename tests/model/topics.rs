//! Topics: values on disk, and what their readers get.
//!
//! As in the agents' shells: a reader gets the present value, never one in between, and an equal one is no news.

use std::collections::BTreeMap;

use agent::partitions::{Label, Partitions};
use baseosmgr::core::Counters;
use nodeagent::core::{DeviceCommand, RequiredReading, Resumed};
use requester::DeviceClustering;
use topics::{
    BaseOsConfig, BaseOsStatus, ConfigGetStatus, DeviceOp, DeviceOpPending, DeviceOpsCmd, DrainJournal,
    NodeAgentStatus, NodeDrainProgress, NodeDrainRequest, NodeDrainStatus, OperationPause, OutageAnswer,
    OutageQuestion, Requester, ZbootStatus, ZedAgentStatus,
};
use zedagent::core::DesiredDevice;
use zedkube::core::{Force, Membership as InCluster};

use super::k3s::{self, K3sFiles};
use super::scenarios::Scenario;

/// The image that the controller may want, and its content.
pub(crate) const IMAGE: &str = "14.5.0-k-amd64";
pub(crate) const TREE: &str = "2e1f0d3c-4b5a-4697-8897-a6b5c4d3e2f1";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Config {
    pub(crate) reboot: Option<u32>,
    pub(crate) shutdown: Option<u32>,
    pub(crate) clustered: bool,
    pub(crate) image: bool,
    pub(crate) fallback: u32,
    /// The config property wants the new version of k3s.
    pub(crate) k3s: bool,
    /// A cluster detail that no core reads.
    pub(crate) detail: u8,
}

/// Files. Those of `/run` go with the power.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Disk {
    pub(crate) config: Config,
    pub(crate) force: Option<NodeDrainStatus>,
    pub(crate) pause: Option<OperationPause>,
    pub(crate) counters: step::LiteMap<DeviceOp, DeviceOpsCmd>,
    pub(crate) pending: BTreeMap<DeviceOp, DeviceOpPending>,
    pub(crate) journal: Option<DrainJournal>,
    pub(crate) saved: Counters,
    pub(crate) partitions: Partitions,
    pub(crate) leave: Leave,
    pub(crate) k3s: K3sFiles,
    pub(crate) run: Volatile,
}

/// Whether the node was in a cluster, and leaves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Leave {
    Outside,
    Member,
    /// The config says no cluster; the first step out of it was announced.
    Announced,
    UnderWay,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Volatile {
    pub(crate) looked_in: bool,
    /// Membership, and the detail beside it.
    pub(crate) member: Option<(bool, u8)>,
    pub(crate) image: bool,
    /// The version of k3s that the config property wants.
    pub(crate) k3s: Option<&'static str>,
    /// Of zedagent, baseosmgr, a person, and the update of k3s.
    pub(crate) requests: [Option<NodeDrainRequest>; 4],
    pub(crate) status: Option<NodeDrainStatus>,
    pub(crate) progress: Option<Box<NodeDrainProgress>>,
    pub(crate) zedagent: Option<Box<ZedAgentStatus>>,
    pub(crate) nodeagent: Option<Box<NodeAgentStatus>>,
    pub(crate) latched: Option<Resumed>,
    pub(crate) question: Option<OutageQuestion>,
    pub(crate) outage: Option<OutageAnswer>,
    pub(crate) zboot: BTreeMap<Label, ZbootStatus>,
    pub(crate) tested: BTreeMap<Label, bool>,
    pub(crate) images: BTreeMap<String, BaseOsStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Who {
    Zedagent,
    Nodeagent,
    Zedkube,
    Baseosmgr,
    /// Within zedkube: it has its clock, and ends with it.
    K3s,
}

impl Who {
    pub(crate) const fn process(self) -> Self {
        match self {
            Self::K3s => Self::Zedkube,
            Self::Zedagent | Self::Nodeagent | Self::Zedkube | Self::Baseosmgr => self,
        }
    }
}

pub(crate) const ALL: [Who; 5] = [Who::Zedagent, Who::Nodeagent, Who::Zedkube, Who::Baseosmgr, Who::K3s];

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fact {
    Zedagent(zedagent::core::Event),
    Nodeagent(nodeagent::core::Event),
    Zedkube(zedkube::core::Event),
    Baseosmgr(baseosmgr::core::Event),
    K3s(zedkube::k3s::Event),
    /// A part of a value that no core reads.
    Detail(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    Zedagent,
    Nodeagent,
    Zedkube,
    Baseosmgr,
    Person,
}

macro_rules! links {
    ($($link:ident: $writer:ident => $who:ident),+ $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Link { $($link),+ }
        pub(crate) const LINKS: &[Link] = &[$(Link::$link),+];
        impl Link {
            pub(crate) const fn who(self) -> Who {
                match self { $(Self::$link => Who::$who),+ }
            }
            pub(crate) const fn writer(self) -> Writer {
                match self { $(Self::$link => Writer::$writer),+ }
            }
        }
    };
}

links! {
    ConfigToZedagent: Person => Zedagent,
    ProgressToZedagent: Zedkube => Zedagent,
    StatusToZedagent: Zedkube => Zedagent,
    LeaveToZedagent: Zedkube => Zedagent,
    NodeagentToZedagent: Nodeagent => Zedagent,
    ZbootToZedagent: Baseosmgr => Zedagent,
    ForceToZedagent: Person => Zedagent,
    StatusToNodeagent: Zedkube => Nodeagent,
    ZedagentToNodeagent: Zedagent => Nodeagent,
    ZbootAToNodeagent: Baseosmgr => Nodeagent,
    ZbootBToNodeagent: Baseosmgr => Nodeagent,
    MemberToZedkube: Zedagent => Zedkube,
    DeviceRequestToZedkube: Zedagent => Zedkube,
    UpdateRequestToZedkube: Baseosmgr => Zedkube,
    OperatorRequestToZedkube: Person => Zedkube,
    ForceToZedkube: Person => Zedkube,
    ImageToBaseosmgr: Zedagent => Baseosmgr,
    ProgressToBaseosmgr: Zedkube => Baseosmgr,
    StatusToBaseosmgr: Zedkube => Baseosmgr,
    MemberToBaseosmgr: Zedagent => Baseosmgr,
    LeaveToBaseosmgr: Zedkube => Baseosmgr,
    TestAToBaseosmgr: Nodeagent => Baseosmgr,
    TestBToBaseosmgr: Nodeagent => Baseosmgr,
    ForceToBaseosmgr: Person => Baseosmgr,
    FallbackToBaseosmgr: Zedagent => Baseosmgr,
    QuestionToZedkube: Nodeagent => Zedkube,
    AnswerToNodeagent: Zedkube => Nodeagent,
    PauseToZedagent: Person => Zedagent,
    PauseToZedkube: Person => Zedkube,
    PauseToBaseosmgr: Person => Baseosmgr,
    ConfigToK3s: Zedagent => K3s,
    ProgressToK3s: Zedkube => K3s,
    StatusToK3s: Zedkube => K3s,
    MemberToK3s: Zedagent => K3s,
    ForceToK3s: Person => K3s,
    PauseToK3s: Person => K3s,
    K3sToZedkube: Zedkube => Zedkube,
    K3sRequestToZedkube: Zedkube => Zedkube,
}

/// By which zedkube gets the requests, in the order of [`Volatile::requests`].
pub(crate) const REQUESTS: [Link; 4] = [
    Link::DeviceRequestToZedkube,
    Link::UpdateRequestToZedkube,
    Link::OperatorRequestToZedkube,
    Link::K3sRequestToZedkube,
];

impl Link {
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Whether it is used: without turns, there is no question before the machine goes down, and no file to read.
    pub(crate) fn is_used(self, scenario: &Scenario) -> bool {
        let of_turns = matches!(self, Self::QuestionToZedkube | Self::AnswerToNodeagent);
        let of_pauses = matches!(
            self,
            Self::PauseToZedagent | Self::PauseToZedkube | Self::PauseToBaseosmgr | Self::PauseToK3s
        );
        let of_k3s = matches!(self, Self::K3sToZedkube | Self::K3sRequestToZedkube);
        (!of_turns || scenario.kube.take_turns)
            && (!of_pauses || scenario.pauses())
            && (!of_k3s || scenario.with_k3s)
    }

    /// The facts of the topic now.
    pub(crate) fn level(self, disk: &Disk) -> Vec<Fact> {
        use baseosmgr::core::Event as B;
        use nodeagent::core::Event as N;
        use zedagent::core::Event as Z;
        use zedkube::core::Event as K;
        let run = &disk.run;
        let test = |label| {
            let complete = run.tested.get(&label).copied().unwrap_or_default();
            vec![Fact::Baseosmgr(B::TestComplete { label, complete })]
        };
        let requested = |nth: usize, by| vec![Fact::Zedkube(K::Request(by, run.requests[nth].clone()))];
        match self {
            Self::ConfigToZedagent => {
                let others = u8::from(disk.config.image) + 2 * u8::from(disk.config.k3s);
                let detail = Fact::Detail(disk.config.detail * 4 + others);
                vec![detail, Fact::Zedagent(Z::Config(wanted(disk.config)))]
            }
            Self::ProgressToZedagent => vec![Fact::Zedagent(Z::Progress(run.progress.clone()))],
            // The shells read the progress right before the status.
            Self::StatusToZedagent => {
                let progress = run.progress.clone().map(|it| Fact::Zedagent(Z::Progress(Some(it))));
                progress.into_iter().chain([Fact::Zedagent(Z::Drain(run.status))]).collect()
            }
            Self::LeaveToZedagent => vec![Fact::Zedagent(Z::HasToLeave(disk.leave != Leave::Outside))],
            Self::NodeagentToZedagent => {
                run.nodeagent.iter().map(|it| Fact::Zedagent(Z::Nodeagent(it.clone()))).collect()
            }
            Self::ZbootToZedagent => {
                let spare = run.zboot.values().find(|it| !it.current_partition);
                spare
                    .map(|it| Fact::Zedagent(Z::ImageWaits(it.partition_state == "updating")))
                    .into_iter()
                    .collect()
            }
            Self::ForceToZedagent => vec![Fact::Zedagent(Z::Forced(disk.force))],
            Self::StatusToNodeagent => {
                run.status.map(|it| Fact::Nodeagent(N::Drain(it))).into_iter().collect()
            }
            Self::ZedagentToNodeagent => {
                run.zedagent.iter().map(|it| Fact::Nodeagent(N::Wish(wish(it)))).collect()
            }
            Self::ZbootAToNodeagent => partition(disk, Label::A),
            Self::ZbootBToNodeagent => partition(disk, Label::B),
            Self::MemberToZedkube => {
                // A config without a cluster arrives before the membership changes.
                let detail = run.member.map(|(member, detail)| Fact::Detail(detail * 2 + u8::from(member)));
                detail.into_iter().chain([Fact::Zedkube(K::Member(membership(disk)))]).collect()
            }
            Self::DeviceRequestToZedkube => requested(0, Requester::DeviceOp),
            Self::UpdateRequestToZedkube => requested(1, Requester::Update),
            Self::OperatorRequestToZedkube => requested(2, Requester::Operator),
            Self::ForceToZedkube => {
                vec![Fact::Zedkube(K::Force(disk.force.map_or(Force::Absent, Force::Order)))]
            }
            Self::ImageToBaseosmgr => {
                let value = run.image.then(image);
                vec![Fact::Baseosmgr(B::Config { key: TREE.to_owned(), value })]
            }
            Self::ProgressToBaseosmgr => vec![Fact::Baseosmgr(B::Progress(run.progress.clone()))],
            Self::StatusToBaseosmgr => {
                let progress = run.progress.clone().map(|it| Fact::Baseosmgr(B::Progress(Some(it))));
                progress.into_iter().chain([Fact::Baseosmgr(B::Drain(run.status))]).collect()
            }
            Self::MemberToBaseosmgr => {
                let membership = match run.member {
                    Some((true, _)) => DeviceClustering::Clustered,
                    Some((false, _)) => DeviceClustering::Single,
                    None => DeviceClustering::Undecided,
                };
                vec![Fact::Baseosmgr(B::Cluster(membership))]
            }
            Self::LeaveToBaseosmgr => vec![Fact::Baseosmgr(B::HasToLeave(disk.leave != Leave::Outside))],
            Self::TestAToBaseosmgr => test(Label::A),
            Self::TestBToBaseosmgr => test(Label::B),
            Self::ForceToBaseosmgr => vec![Fact::Baseosmgr(B::Forced(disk.force))],
            Self::FallbackToBaseosmgr => {
                let status = run.zedagent.iter().filter(|it| it.config_get_status != ConfigGetStatus::Never);
                status.map(|it| Fact::Baseosmgr(B::FallbackCounter(it.force_fallback_counter))).collect()
            }
            Self::QuestionToZedkube => {
                run.question.iter().map(|it| Fact::Zedkube(K::Question(it.clone()))).collect()
            }
            Self::AnswerToNodeagent => {
                run.outage.iter().map(|it| Fact::Nodeagent(N::Answer(it.clone()))).collect()
            }
            Self::PauseToZedagent | Self::PauseToZedkube | Self::PauseToBaseosmgr | Self::PauseToK3s => {
                vec![self.pause(disk)]
            }
            Self::ConfigToK3s => run.k3s.into_iter().map(k3s::wanted).collect(),
            Self::ProgressToK3s => k3s::heard(run, false),
            Self::StatusToK3s => k3s::heard(run, true),
            Self::MemberToK3s => vec![k3s::member(membership(disk))],
            Self::ForceToK3s => vec![Fact::K3s(zedkube::k3s::Event::Forced(disk.force))],
            Self::K3sToZedkube => vec![k3s::hold(disk)],
            Self::K3sRequestToZedkube => requested(k3s::REQUEST, Requester::K3sUpdate),
        }
    }

    /// How many facts of `level` are of another topic that is read beside this one: they are no news.
    pub(crate) fn beside(self, level: &[Fact]) -> usize {
        let of_status = matches!(self, Self::StatusToZedagent | Self::StatusToBaseosmgr | Self::StatusToK3s);
        if of_status { level.len() - 1 } else { 0 }
    }

    /// The fact after the first reading of a topic.
    pub(crate) fn read_once(self, scenario: &Scenario) -> Vec<Fact> {
        use baseosmgr::core::RequiredTopic as From;
        let heard = |it| vec![Fact::Baseosmgr(baseosmgr::core::Event::Heard(it))];
        let read = |it| vec![Fact::Zedkube(zedkube::core::Event::RequestsRead(it))];
        let of_operator = [Requester::Operator, Requester::NodeMaintenance];
        // Without updates of k3s there is no requester of them to wait for.
        let of_k3s = (!scenario.with_k3s).then_some(Requester::K3sUpdate);
        let once = [
            (
                Self::StatusToNodeagent,
                vec![Fact::Nodeagent(nodeagent::core::Event::Heard(RequiredReading::Drain))],
            ),
            (Self::DeviceRequestToZedkube, read(Requester::DeviceOp)),
            (Self::UpdateRequestToZedkube, read(Requester::Update)),
            (Self::OperatorRequestToZedkube, of_operator.into_iter().chain(of_k3s).flat_map(read).collect()),
            (Self::K3sRequestToZedkube, read(Requester::K3sUpdate)),
            (Self::StatusToK3s, k3s::read()),
            (Self::ImageToBaseosmgr, heard(From::Configs)),
            (Self::StatusToBaseosmgr, heard(From::Drain)),
            (Self::MemberToBaseosmgr, heard(From::Cluster)),
            (Self::LeaveToBaseosmgr, heard(From::Leave)),
            (Self::TestBToBaseosmgr, heard(From::Test)),
            (Self::FallbackToBaseosmgr, heard(From::Fallback)),
        ];
        once.into_iter().find(|(link, _)| *link == self).map(|(_, facts)| facts).unwrap_or_default()
    }
}

fn membership(disk: &Disk) -> InCluster {
    match (disk.run.member.map(|it| it.0), disk.leave) {
        (None, Leave::Outside | Leave::Member | Leave::Announced) => InCluster::Undecided,
        (Some(true), _) | (Some(false), Leave::Member | Leave::Announced) => InCluster::Member,
        (Some(false), Leave::Outside) => InCluster::Outside,
        (None | Some(false), Leave::UnderWay) => InCluster::Leaving,
    }
}

fn wanted(config: Config) -> DesiredDevice {
    let command = |counter| DeviceOpsCmd { counter, desired_state: true, ops_time: String::new() };
    let commands = [(DeviceOp::Reboot, config.reboot), (DeviceOp::Shutdown, config.shutdown)];
    DesiredDevice {
        commands: commands.into_iter().filter_map(|(op, it)| Some((op, command(it?)))).collect(),
        clustered: config.clustered,
        force_fallback_counter: config.fallback,
        config_get_status: ConfigGetStatus::Success,
        ..DesiredDevice::default()
    }
}

fn image() -> BaseOsConfig {
    BaseOsConfig {
        base_os_version: IMAGE.to_owned(),
        content_tree_uuid: TREE.to_owned(),
        activate: true,
        ..BaseOsConfig::default()
    }
}

fn wish(status: &ZedAgentStatus) -> DeviceCommand {
    DeviceCommand {
        reboot: status.reboot_cmd,
        shutdown: status.shutdown_cmd,
        poweroff: status.poweroff_cmd,
        reason: status.requested_reboot_reason.clone(),
        boot_reason: status.requested_boot_reason,
        contact: status.config_get_status,
        certs_refused: status.edge_node_certs_refused,
        ours: true,
    }
}

fn partition(disk: &Disk, label: Label) -> Vec<Fact> {
    let told = |it: &ZbootStatus| Fact::Nodeagent(nodeagent::core::Event::Partition(it.clone()));
    disk.run.zboot.get(&label).map(told).into_iter().collect()
}
