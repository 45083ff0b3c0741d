//! The logs of all applications: which containers are read, and which marks are kept.
//!
//! Only containers of applications with this node as designated node. Marks are kept as long as their pod,
//! also while it is not read. Source: D-K23. Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;

use crate::pods::{AppPod, LogLine, LogRange};
use step::{Inserted as _, LiteMap, Mono, SmallSort as _};
use topics::{AppLogMark, AppLogMarks};

use super::app::{App, PodRole};
use super::app_table::AppTable;
use super::marks::LogMark;
use super::track::{ContainerRun, ContainerTrack, ReadEnd};

/// The container beside a virtual machine that prints its console.
const CONSOLE: &str = "guest-console-log";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogSource {
    pub(super) app: String,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) container: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Scene {
    /// Keys of the configured applications, once known.
    apps: Option<BTreeSet<String>>,
    /// The existing pods, while known.
    pods: Option<BTreeSet<String>>,
    runs: LiteMap<LogSource, ContainerRun>,
}

impl Scene {
    pub(super) fn of(book: &AppTable) -> Self {
        let runs = book.apps.iter().filter(|(_, app)| app.designated).flat_map(|(key, app)| {
            let pods = book.pods.iter();
            pods.flat_map(move |pod| containers(app, pod).map(move |run| (source(key, pod, run.0), run.1)))
        });
        Self {
            apps: book.read.then(|| book.apps.keys().cloned().collect()),
            pods: book.is_well().then(|| book.pods.iter().map(|pod| pod.uid.clone()).collect()),
            runs: runs.into_lite(),
        }
    }
}

fn source(key: &str, pod: &AppPod, container: &str) -> LogSource {
    let text = str::to_owned;
    LogSource { app: text(key), pod: pod.name.clone(), uid: pod.uid.clone(), container: text(container) }
}

/// The containers of `pod` that are logged for `app`.
fn containers<'a>(app: &App, pod: &'a AppPod) -> impl Iterator<Item = (&'a str, ContainerRun)> + use<'a> {
    let (kind, native) = (app.pod(&pod.name), app.native);
    let speaks = move |name: &str, init: bool| match kind {
        Some(PodRole::Native) => !init,
        Some(PodRole::Launcher(_)) => !native && name == CONSOLE,
        None => false,
    };
    let ending = pod.ending || matches!(pod.phase.as_str(), "Succeeded" | "Failed");
    pod.containers
        .iter()
        .filter(move |it| speaks(&it.name, it.init))
        .map(move |it| (it.name.as_str(), ContainerRun { restarts: it.restarts, state: it.state, ending }))
}

#[derive(Debug, Default)]
pub(super) struct LogCourse {
    tracks: LiteMap<LogSource, ContainerTrack>,
    /// Marks of containers that are not read now.
    resting: LiteMap<LogSource, LogMark>,
    scene: Scene,
    /// Applications whose marks on disk are out of date.
    changed: BTreeSet<String>,
}

impl LogCourse {
    /// Starts with the marks of an earlier run.
    pub(super) fn new<'a>(kept: impl IntoIterator<Item = (&'a str, &'a AppLogMarks)>) -> Self {
        let marks =
            kept.into_iter().flat_map(|(key, marks)| marks.containers.iter().map(move |it| (key, it)));
        let resting = marks.map(|(key, it)| {
            let source = LogSource {
                app: key.to_owned(),
                pod: it.pod.clone(),
                uid: it.pod_uid.clone(),
                container: it.container.clone(),
            };
            (source, LogMark::read(it.restarts, it.older, &it.moments))
        });
        Self { resting: resting.into_lite(), ..Self::default() }
    }

    pub(super) fn see(&mut self, now: Mono, scene: &Scene) {
        self.scene = scene.clone();
        for (source, run) in &self.scene.runs {
            if let Some(track) = self.tracks.get_mut(source) {
                track.see(now, *run);
                continue;
            }
            let mark = self.resting.remove(source);
            if mark.is_none() {
                self.changed.insert(source.app.clone());
            }
            self.tracks.insert(source.clone(), ContainerTrack::new(mark, *run, now));
        }
        self.tidy();
    }

    /// Rests what is not read any more, and drops what no longer exists.
    fn tidy(&mut self) {
        let gone =
            |it: &LogSource, track: &ContainerTrack| !self.scene.runs.contains_key(it) && !track.is_reading();
        let gone: Vec<LogSource> =
            self.tracks.iter().filter(|(it, track)| gone(it, track)).map(|(it, _)| it.clone()).collect();
        for source in gone {
            if let Some(track) = self.tracks.remove(&source) {
                self.resting.insert(source, track.mark);
            }
        }
        let (apps, pods) = (&self.scene.apps, &self.scene.pods);
        let changed = &mut self.changed;
        self.resting.retain(|source, _| {
            let stays = apps.as_ref().is_none_or(|apps| apps.contains(&source.app))
                && pods.as_ref().is_none_or(|pods| pods.contains(&source.uid));
            if !stays {
                changed.insert(source.app.clone());
            }
            stays
        });
    }

    /// The next log to read. Nothing is read without current pods: it would be unknown which run a log is of.
    pub(super) fn due(&mut self, now: Mono) -> Option<(LogSource, LogRange)> {
        self.scene.pods.as_ref()?;
        for (source, track) in &mut self.tracks {
            let before = track.mark.restarts;
            let Some(wanted) = track.due(now) else { continue };
            if track.mark.restarts != before {
                self.changed.insert(source.app.clone());
            }
            return Some((source.clone(), wanted));
        }
        None
    }

    pub(super) fn next_wake(&self) -> Option<Mono> {
        self.scene.pods.as_ref()?;
        self.tracks.values().filter_map(ContainerTrack::next_wake).min()
    }

    /// New lines among those read; `None` when they are doubted.
    pub(super) fn sift(&mut self, source: &LogSource, lines: Vec<LogLine>) -> Option<Vec<LogLine>> {
        self.tracks.get_mut(source).map_or_else(|| Some(Vec::new()), |track| track.sift(lines))
    }

    /// These lines have been passed on.
    pub(super) fn note_handed_on(&mut self, source: &LogSource, lines: &[LogLine]) {
        if let Some(track) = self.tracks.get_mut(source) {
            for line in lines {
                track.mark.note(line.at);
            }
            self.changed.insert(source.app.clone());
        }
    }

    pub(super) fn ended(&mut self, source: &LogSource, now: Mono, outcome: ReadEnd) {
        if let Some(track) = self.tracks.get_mut(source) {
            let before = track.mark.restarts;
            track.ended(now, outcome);
            if track.mark.restarts != before {
                self.changed.insert(source.app.clone());
            }
        }
        self.tidy();
    }

    /// Applications with changed marks since the last call, and the marks to keep, if any.
    pub(super) fn changed(&mut self) -> Vec<(String, Option<AppLogMarks>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|key| (self.marks(&key), key)).map(|(marks, key)| (key, marks)).collect()
    }

    fn marks(&self, key: &str) -> Option<AppLogMarks> {
        let tracks = self.tracks.iter().map(|(source, track)| (source, &track.mark));
        let mut marks: Vec<_> = tracks.chain(&self.resting).filter(|(source, _)| source.app == key).collect();
        marks.order_by_key(|(source, _)| *source);
        let containers: Vec<AppLogMark> =
            marks.into_iter().map(|(source, mark)| kept(source, mark)).collect();
        (!containers.is_empty()).then_some(AppLogMarks { containers, ..AppLogMarks::default() })
    }
}

fn kept(source: &LogSource, mark: &LogMark) -> AppLogMark {
    let (older, moments) = mark.written();
    AppLogMark {
        pod: source.pod.clone(),
        pod_uid: source.uid.clone(),
        container: source.container.clone(),
        restarts: mark.restarts,
        older,
        moments,
    }
}

#[cfg(test)]
mod tests;
