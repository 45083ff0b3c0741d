//! What fits into one message of the topic: longer lists are cut, and that is told.
//!
//! Source: spec/pubsub.md 8 and the buffer of its readers. A value that is too long would not be published at all, and
//! in the reference ends the publisher. Pure: no clock, no I/O, no task.

use serde::Serialize;
use topics::{KubeClusterInfo, go_json};

/// `Nodes` and `PodNsInfo` travel in the message itself: 65534 bytes of base64, less its head and three paths.
const INLINE_BYTES: usize = 48_000;
/// `AppPods`, `AppVMIs` and `Storage` each travel in a file of less than 1 MiB.
const LARGE_BYTES: usize = (1 << 20) - 1024;

/// A list that was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// The member of the topic.
    pub(super) member: &'static str,
    /// Items that were left in it.
    pub(super) kept: usize,
    /// Items that there are.
    pub(super) of: usize,
}

/// Cuts what does not fit. Nodes go before namespaces; of a list its last names are left out.
pub(super) fn fit(info: &mut KubeClusterInfo) -> Vec<Cut> {
    let mut inline = INLINE_BYTES;
    let mut files = [LARGE_BYTES; 3];
    let [pods, machines, volumes] = &mut files;
    [
        cut("Nodes", &mut info.nodes, &mut inline),
        cut("PodNsInfo", &mut info.pod_ns_info, &mut inline),
        cut("AppPods", &mut info.app_pods, pods),
        cut("AppVMIs", &mut info.app_vmis, machines),
        cut("Storage.Volumes", &mut info.storage.volumes, volumes),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn cut<T: Serialize>(member: &'static str, list: &mut Option<Vec<T>>, room: &mut usize) -> Option<Cut> {
    let items = list.as_mut()?;
    let of = items.len();
    // With its comma. What has no form takes no room: the publication says why.
    let bytes = |item: &T| go_json::to_vec(item).map_or(0, |text| text.len() + 1);
    let fits = |item: &&T| {
        let left = room.checked_sub(bytes(item));
        *room = left.unwrap_or_default();
        left.is_some()
    };
    let kept = items.iter().take_while(fits_once(fits)).count();
    items.truncate(kept);
    (kept < of).then_some(Cut { member, kept, of })
}

/// A `FnMut` as `take_while` wants it.
fn fits_once<T>(mut fits: impl FnMut(&&T) -> bool) -> impl FnMut(&&T) -> bool {
    move |item| fits(item)
}

#[cfg(test)]
mod tests {
    use topics::{KubeNodeInfo, KubePodInfo, KubePodNameSpaceInfo};

    use super::*;

    fn node(at: usize) -> KubeNodeInfo {
        KubeNodeInfo {
            name: format!("node-{at:04}"),
            kubelet_version: "v1.32.1+k3s1".to_owned(),
            internal_ip: "10.244.244.102".to_owned(),
            node_id: "11111111-1111-4111-8111-111111111111".to_owned(),
            ..KubeNodeInfo::default()
        }
    }

    fn namespace(at: usize) -> KubePodNameSpaceInfo {
        KubePodNameSpaceInfo { name: format!("namespace-{at:04}"), pod_count: 1000, ..Default::default() }
    }

    #[test]
    fn l6_a_hundred_nodes_and_as_many_namespaces_fit_whole() {
        let mut info = KubeClusterInfo {
            nodes: Some((0..100).map(node).collect()),
            pod_ns_info: Some((0..100).map(namespace).collect()),
            ..KubeClusterInfo::default()
        };
        assert_eq!(fit(&mut info), []);
    }

    #[test]
    fn what_is_too_long_is_cut_at_its_end_and_told() {
        let pod = |at| KubePodInfo { name: format!("app-{at:06}"), ..KubePodInfo::default() };
        let mut info = KubeClusterInfo {
            nodes: Some((0..1000).map(node).collect()),
            pod_ns_info: Some((0..3).map(namespace).collect()),
            app_pods: Some((0..20_000).map(pod).collect()),
            ..KubeClusterInfo::default()
        };
        let cuts = fit(&mut info);
        let nodes = info.nodes.unwrap();
        let pods = info.app_pods.unwrap();
        assert_eq!(
            cuts,
            [
                Cut { member: "Nodes", kept: nodes.len(), of: 1000 },
                Cut { member: "PodNsInfo", kept: 0, of: 3 },
                Cut { member: "AppPods", kept: pods.len(), of: 20_000 },
            ]
        );
        assert!(nodes.len() > 120 && nodes[0].name == "node-0000", "{}", nodes.len());
        let bytes = go_json::to_vec(&pods).unwrap().len();
        assert!(bytes <= LARGE_BYTES && bytes > LARGE_BYTES - 1000, "{bytes}");
    }
}
