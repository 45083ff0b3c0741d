//! How far the logs of an application have been passed on: after a restart zedkube needs it to pass each line
//! on once.
//!
//! A topic of our own, as in `drain::progress`; the key is the application's UUID.
//! Pure: no clock, no I/O, no task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{GoTime, Kind, Most, Topic};

/// The marks of one application, one for each container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppLogMarks {
    /// In the order of pods and containers.
    pub containers: Vec<AppLogMark>,
    /// Containers beyond those: after a restart their logs begin as those of new ones.
    pub containers_omitted: u32,
}

/// Moments of a container kept where not everything fits.
const MOMENTS: usize = 8;

impl Topic for AppLogMarks {
    const NAME: &'static str = "AppLogMarks";
    const KIND: Kind = Kind::Volatile;

    fn cut(&mut self, most: Most) {
        self.containers_omitted = most.list(&mut self.containers);
        for mark in &mut self.containers {
            most.each([&mut mark.pod, &mut mark.pod_uid, &mut mark.container]);
            // The last moments matter.
            let moments = mark.moments.len().saturating_sub(MOMENTS);
            mark.moments.drain(..moments);
        }
    }
}

/// How far the log of one container has been handed on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppLogMark {
    /// Name of the pod.
    pub pod: String,
    /// Identity of the pod.
    #[serde(rename = "PodUID")]
    pub pod_uid: String,
    /// Name of the container.
    pub container: String,
    /// Which run of it: how often it had been started again.
    pub restarts: u32,
    /// Whether lines older than the first moment have been handed on as well.
    pub older: bool,
    /// The last moments of which lines have been handed on, oldest first.
    pub moments: Vec<AppLogMoment>,
}

/// A moment, and how many lines of it have been handed on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase", default)]
pub struct AppLogMoment {
    /// When the container wrote them, to the nanosecond.
    pub at: GoTime,
    /// How many.
    pub lines: u32,
}
