//! What applications need beside their pods: consoles, networks, and a place for their machines.
//!
//! Not here: how they get it (`consoles`, `networks`, `places`). Unknown is `None`: nothing is removed for
//! lack of an answer. Pure: no clock, no I/O, no task.

use std::collections::BTreeSet;

use step::{Inserted as _, LiteMap};
use topics::Affinity;

use super::app::{App, PodRole};
use super::app_table::AppTable;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppRequirements {
    /// Consoles of machines that run here, by application.
    pub consoles: Option<LiteMap<String, Console>>,
    /// Ethernet ports of native applications with this designated node.
    pub ports: Option<BTreeSet<String>>,
    /// Affinity of machines with this designated node, by replica set.
    pub places: Option<LiteMap<String, Affinity>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Console {
    pub machine: String,
    /// TCP port for its proxy.
    pub port: u16,
}

impl AppRequirements {
    /// From `table`; `before` is the former value.
    pub(super) fn of(table: &AppTable, before: &Self) -> Self {
        if !table.read {
            return Self::default();
        }
        let designated =
            |native: bool| table.apps.values().filter(move |it| it.designated && it.native == native);
        let ports = designated(true).flat_map(|it| it.ports.iter().cloned()).collect();
        let places = designated(false).map(|it| (it.name.clone(), it.affinity)).into_lite();
        Self { consoles: consoles(table, before), ports: Some(ports), places: Some(places) }
    }
}

fn consoles(table: &AppTable, before: &AppRequirements) -> Option<LiteMap<String, Console>> {
    let apps = || table.apps.iter().filter(|(_, app)| app.console && !app.native);
    if apps().next().is_none() {
        return Some(LiteMap::new());
    }
    if !table.is_well() {
        // Without pods nothing is opened, but unwanted ones are closed.
        let mut held = before.consoles.clone()?;
        held.retain(|key, _| apps().any(|(app, _)| app == key));
        return Some(held);
    }
    let console = |(key, app): (&String, &App)| {
        let port = u16::try_from(app.vnc_port).ok().filter(|it| *it > 0)?;
        let here = table
            .pods
            .iter()
            .filter(|it| !it.ending && it.phase == "Running" && Some(&it.node) == table.node.as_ref());
        let machine = here.filter_map(|it| match app.pod(&it.name) {
            Some(PodRole::Launcher(machine)) => Some(machine.to_owned()),
            Some(PodRole::Native) | None => None,
        });
        Some((key.clone(), Console { machine: machine.max()?, port }))
    };
    Some(apps().filter_map(console).into_lite())
}

#[cfg(test)]
mod tests {
    use super::super::samples::{VM, pod};
    use super::*;
    use crate::pods::AppPod;
    use step::Mono;
    use topics::{AppInstanceConfig, IoAdapter, IoType, VmMode};

    /// A machine of the first purge, with its console wanted.
    fn config() -> AppInstanceConfig {
        let mut config = super::super::samples::config("Ubuntu", VM, true);
        (config.purge_cmd.counter, config.remote_console) = (1, true);
        config
    }

    fn launcher(machine: &str, node: &str, phase: &str) -> AppPod {
        pod(&format!("virt-launcher-{machine}-x7k2p"), node, phase)
    }

    fn table(config: &AppInstanceConfig) -> AppTable {
        let mut table = AppTable::new([]);
        table.node("n1".to_owned());
        table.configured(VM.to_owned(), Some(App::of(config)));
        table
    }

    fn machines(table: &AppTable, before: &AppRequirements) -> Option<Vec<String>> {
        let consoles = AppRequirements::of(table, before).consoles?;
        Some(consoles.values().map(|it| format!("{} {}", it.machine, it.port)).collect())
    }

    #[test]
    fn d_v1_the_console_is_of_the_machine_that_runs_here_and_of_no_other_purge() {
        let none = AppRequirements::default();
        let mut table = table(&config());
        table.set_pods(vec![launcher("ubuntu-b3e2f-1ab1cd", "n1", "Running")]);
        assert_eq!(AppRequirements::of(&table, &none), none, "configs were not read yet");
        table.configs_read();
        let ours = Some(vec!["ubuntu-b3e2f-1ab1cd 5901".to_owned()]);
        assert_eq!(machines(&table, &none), ours);
        let other = launcher("ubuntu-b3e2f-10ab1cd", "n1", "Running");
        for (pods, found) in [
            (vec![other.clone(), launcher("ubuntu-b3e2f-1ab1cd", "n1", "Running")], ours.clone()),
            (vec![other, launcher("my-ubuntu-b3e2f-1ab1cd", "n1", "Running")], Some(vec![])),
            (vec![launcher("ubuntu-b3e2f-1ab1cd", "n2", "Running")], Some(vec![])),
            (vec![launcher("ubuntu-b3e2f-1ab1cd", "n1", "Pending")], Some(vec![])),
            (vec![AppPod { ending: true, ..launcher("ubuntu-b3e2f-1ab1cd", "n1", "Running") }], Some(vec![])),
            (vec![], Some(vec![])),
        ] {
            table.set_pods(pods.clone());
            assert_eq!(machines(&table, &none), found, "{pods:?}");
        }
        // Another one after it moved away and back.
        table.set_pods(vec![launcher("ubuntu-b3e2f-1zzzzz", "n1", "Running")]);
        assert_eq!(machines(&table, &none), Some(vec!["ubuntu-b3e2f-1zzzzz 5901".to_owned()]));
    }

    #[test]
    fn while_the_api_is_away_a_console_stays_and_closes_when_it_is_wanted_no_more() {
        let mut table = table(&config());
        table.configs_read();
        assert_eq!(machines(&table, &AppRequirements::default()), None, "nothing is known of pods");
        table.set_pods(vec![launcher("ubuntu-b3e2f-1ab1cd", "n1", "Running")]);
        let before = AppRequirements::of(&table, &AppRequirements::default());
        table.failed(Mono::START);
        assert_eq!(AppRequirements::of(&table, &before), before);
        let off = AppInstanceConfig { remote_console: false, ..config() };
        table.configured(VM.to_owned(), Some(App::of(&off)));
        assert_eq!(machines(&table, &before), Some(vec![]));
        table.configured(VM.to_owned(), None);
        assert_eq!(machines(&table, &before), Some(vec![]));
    }

    #[test]
    fn ports_are_of_native_applications_and_places_of_machines_that_are_designated_here() {
        let adapter = |kind: u8, name: &str| IoAdapter { r#type: IoType::from(kind), name: name.to_owned() };
        let mut config = config();
        config.io_adapter_list = Some(vec![adapter(1, "eth1"), adapter(2, "usb"), adapter(1, "eth2")]);
        for (mode, designated, ports, places) in [
            (VmMode::NoHyper, true, vec!["eth1", "eth2"], vec![]),
            (VmMode::NoHyper, false, vec![], vec![]),
            (VmMode::from(1), true, vec![], vec!["ubuntu-b3e2f-1"]),
            (VmMode::from(1), false, vec![], vec![]),
        ] {
            config.fixed_resources.virtualization_mode = mode;
            config.is_designated_node_id = designated;
            let mut table = table(&config);
            table.configs_read();
            let found = AppRequirements::of(&table, &AppRequirements::default());
            assert_eq!(found.ports.unwrap().iter().map(String::as_str).collect::<Vec<_>>(), ports);
            assert_eq!(found.places.unwrap().keys().map(String::as_str).collect::<Vec<_>>(), places);
        }
    }
}
