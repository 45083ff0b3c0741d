//! Cuts what does not fit into one message of `KubeClusterInfo`, and reports that.
//!
//! Not here: how it is cut (`topics::fit`). Pure: no clock, no I/O, no task.

use topics::{KubeClusterInfo, go_json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) member: &'static str,
    pub(super) kept: usize,
    pub(super) of: usize,
}

/// Returns what was cut.
pub(super) fn fit(info: &mut KubeClusterInfo) -> Result<Vec<Cut>, go_json::Error> {
    let before = lengths(info);
    info.fit()?;
    let cuts =
        before.into_iter().zip(lengths(info)).map(|((member, of), (_, kept))| Cut { member, kept, of });
    Ok(cuts.filter(|it| it.kept < it.of).collect())
}

fn lengths(info: &KubeClusterInfo) -> [(&'static str, usize); 5] {
    let KubeClusterInfo { nodes, app_pods, app_vmis, storage, pod_ns_info } = info;
    [
        ("Nodes", nodes.as_ref().map_or(0, Vec::len)),
        ("PodNsInfo", pod_ns_info.as_ref().map_or(0, Vec::len)),
        ("AppPods", app_pods.as_ref().map_or(0, Vec::len)),
        ("AppVMIs", app_vmis.as_ref().map_or(0, Vec::len)),
        ("Storage.Volumes", storage.volumes.as_ref().map_or(0, Vec::len)),
    ]
}

#[cfg(test)]
mod tests {
    use topics::KubePodInfo;

    use super::*;

    #[test]
    fn a_list_that_is_cut_is_told_with_its_numbers() {
        let pod = |at| KubePodInfo { name: format!("app-{at:06}"), ..KubePodInfo::default() };
        let mut info = KubeClusterInfo {
            nodes: Some(Vec::new()),
            app_pods: Some((0..20_000).map(pod).collect()),
            ..KubeClusterInfo::default()
        };
        let cuts = fit(&mut info).unwrap();
        let kept = info.app_pods.unwrap().len();
        assert_eq!(cuts, [Cut { member: "AppPods", kept, of: 20_000 }]);
    }
}
