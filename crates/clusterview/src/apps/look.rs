//! The status of one application on this node, from its pods.
//!
//! Pure: no clock, no I/O, no task.

use crate::pods::AppPod;
use topics::{AppKubeStatus, ENClusterAppStatus};

use super::app::{App, PodRole};

/// The status of `app` on this node, from all pods in any order.
pub(super) fn status<'a>(
    app: &App,
    node: &str,
    pods: impl IntoIterator<Item = &'a AppPod>,
) -> ENClusterAppStatus {
    let mut status = ENClusterAppStatus {
        app_uuid: app.uuid,
        is_dnid_node: app.designated,
        app_kube_status: AppKubeStatus::NotInCluster,
        ..ENClusterAppStatus::default()
    };
    // Of several machines a running one is named, and of several running ones the last: a stable choice.
    let mut machine: Option<(bool, &str)> = None;
    for pod in pods.into_iter().filter(|pod| !pod.ending) {
        let Some(kind) = app.pod(&pod.name) else { continue };
        let runs = pod.phase == "Running";
        status.scheduled_on_this_node |= pod.node == node;
        if runs || status.app_kube_status == AppKubeStatus::NotInCluster {
            status.app_kube_status = if runs { AppKubeStatus::Running } else { AppKubeStatus::NotRunning };
        }
        if let PodRole::Launcher(name) = kind {
            machine = machine.max(Some((runs, name)));
        }
    }
    if let Some((_, name)) = machine {
        status.app_is_vmi = true;
        name.clone_into(&mut status.vmi_name);
        status.vnc_port = app.vnc_port;
    }
    status
}

/// The status after a long silence of the cluster: its other pods may run elsewhere.
pub(super) fn unreachable(app: &App, said: &ENClusterAppStatus) -> ENClusterAppStatus {
    ENClusterAppStatus {
        is_dnid_node: app.designated,
        scheduled_on_this_node: false,
        app_kube_status: AppKubeStatus::ApiUnreachable,
        ..said.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{VM, WEB, config, pod};
    use super::*;

    #[test]
    fn a_pod_that_runs_is_not_lowered_by_one_that_does_not_and_one_that_ends_counts_for_nothing() {
        let pods = [
            pod("web-d4f3a-0-aaaaa", "", "Pending"),
            pod("web-d4f3a-0-bbbbb", "n2", "Running"),
            pod("web-d4f3a-0-ccccc", "n2", "Failed"),
            AppPod { ending: true, ..pod("web-d4f3a-0-ddddd", "n1", "Running") },
            pod("web-d4f3a-00-eeeee", "n1", "Running"),
            pod("other-d4f3a-0-fffff", "n1", "Running"),
        ];
        let kube = |pods: &[AppPod]| {
            let told = status(&App::of(&config("web", WEB, false)), "n1", pods);
            assert!(!told.scheduled_on_this_node);
            told.app_kube_status.number()
        };
        assert_eq!((kube(&pods), kube(&pods[..1]), kube(&pods[2..]), kube(&pods[3..])), (4, 3, 3, 2));
    }

    #[test]
    fn the_machine_that_runs_is_named_in_whatever_order_pods_come() {
        let old = pod("virt-launcher-ubuntu-b3e2f-0zzzzz-x7k2p", "n2", "Failed");
        let new = pod("virt-launcher-ubuntu-b3e2f-0ab1cd-x7k2p", "n1", "Running");
        let machine = App::of(&config("Ubuntu", VM, true));
        for pods in [[&old, &new], [&new, &old]] {
            let told = status(&machine, "n1", pods);
            assert_eq!((told.vmi_name.as_str(), told.vnc_port), ("ubuntu-b3e2f-0ab1cd", 5901));
        }
        assert_eq!(status(&machine, "n1", [&old]).vmi_name, "ubuntu-b3e2f-0zzzzz");
    }
}
