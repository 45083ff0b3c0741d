//! An application's name in the cluster, and its pods.
//!
//! Source: lf-edge/eve pkg/pillar/base. One replica set with its name makes its pods, so the suffixes of their names
//! are known, and no name is mistaken for the prefix of another (docs/decisions.md). Pure: no clock, no I/O, no task.

use topics::{Affinity, AppInstanceConfig, GoUuid, IoType, VmMode};

/// Prefix of the launcher pods of virtual machines.
const LAUNCHER: &str = "virt-launcher-";
/// Used length of a display name.
const NAME_CHARS: usize = 26;
/// Used length of the UUID.
const UUID_CHARS: usize = 5;
/// Length of Kubernetes' random suffix.
const RANDOM_CHARS: usize = 5;
/// TCP port of the console of display 0.
const VNC_PORT: u32 = 5900;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct App {
    pub(super) uuid: GoUuid,
    /// Name of its replica set.
    pub(super) name: String,
    /// This node is its designated node.
    pub(super) designated: bool,
    /// Containers, and no virtual machine.
    pub(super) native: bool,
    /// TCP port of its console, if it is a virtual machine.
    pub(super) vnc_port: u32,
    /// The console is wanted.
    pub(super) console: bool,
    /// How firmly it belongs to its designated node.
    pub(super) affinity: Affinity,
    pub(super) ports: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodRole<'a> {
    /// A pod of the application itself.
    Native,
    /// The launcher of its virtual machine, with that one's name.
    Launcher(&'a str),
}

impl App {
    pub(super) fn of(config: &AppInstanceConfig) -> Self {
        let purges = config.purge_cmd.counter.wrapping_add(config.local_purge_cmd.counter);
        let uuid = config.uuid_and_version.uuid;
        Self {
            uuid,
            name: format!("{}-{purges}", kube_name(&config.display_name, uuid)),
            designated: config.is_designated_node_id,
            native: config.fixed_resources.virtualization_mode == VmMode::NoHyper,
            vnc_port: config.fixed_resources.vnc_display.wrapping_add(VNC_PORT),
            console: config.remote_console,
            affinity: config.affinity_type,
            ports: config
                .io_adapter_list
                .iter()
                .flatten()
                .filter(|it| it.r#type == IoType::Ethernet)
                .map(|it| it.name.clone())
                .collect(),
        }
    }

    /// Whether and how this pod belongs to it.
    pub(super) fn pod<'a>(&self, pod: &'a str) -> Option<PodRole<'a>> {
        if let Some(rest) = pod.strip_prefix(&self.name) {
            return (rest.is_empty() || rest.strip_prefix('-').is_some_and(is_random))
                .then_some(PodRole::Native);
        }
        let rest = pod.strip_prefix(LAUNCHER)?.strip_prefix(&self.name)?;
        // A machine has the name of its set and five characters, with a dash or without; its launcher another
        // dash and five characters.
        let (machine, launcher) = rest.split_once('-')?;
        let whole = (machine.is_empty() || is_random(machine)) && is_random(launcher);
        let name = pod.get(LAUNCHER.len()..pod.len() - RANDOM_CHARS - 1)?;
        whole.then_some(PodRole::Launcher(name))
    }
}

/// Kubernetes' random suffix.
fn is_random(text: &str) -> bool {
    text.len() == RANDOM_CHARS && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Without the number of its purges.
fn kube_name(display: &str, uuid: GoUuid) -> String {
    let mut name = String::new();
    for each in display.chars().map(|it| if it == '_' { '-' } else { it }) {
        match each {
            'a'..='z' | 'A'..='Z' | '0'..='9' => name.push(each.to_ascii_lowercase()),
            '-' | '.' if !name.ends_with('-') => name.push('-'),
            _ => {}
        }
    }
    name.truncate(NAME_CHARS);
    name.push('-');
    name.extend(uuid.to_string().chars().take(UUID_CHARS));
    name
}

#[cfg(test)]
mod tests {
    use super::super::samples::{WEB, config};
    use super::*;

    fn app(display: &str, purges: u32) -> App {
        let mut config = config(display, WEB, false);
        config.purge_cmd.counter = purges;
        App::of(&config)
    }

    #[test]
    fn d_k23_names_are_made_of_whatever_the_controller_calls_an_application() {
        for (display, name) in [
            ("web", "web-d4f3a-0"),
            ("Web_Server", "web-server-d4f3a-0"),
            ("a__b--c..d-.e", "a-b-c-d-e-d4f3a-0"),
            ("_x_", "-x--d4f3a-0"),
            ("Größe 7%", "gre7-d4f3a-0"),
            ("日本", "-d4f3a-0"),
            ("", "-d4f3a-0"),
            ("abcdefghijklmnopqrstuvwxyz0123", "abcdefghijklmnopqrstuvwxyz-d4f3a-0"),
            // Cut at the end, so it may end in a dash.
            ("abcdefghijklmnopqrstuvwxy-z", "abcdefghijklmnopqrstuvwxy--d4f3a-0"),
        ] {
            assert_eq!(app(display, 0).name, name, "{display}");
        }
        assert_eq!(app("web", 17).name, "web-d4f3a-17");
    }

    #[test]
    fn purges_of_the_controller_and_of_the_operator_count_together_as_go_counts_them() {
        let mut config = AppInstanceConfig { display_name: "web".to_owned(), ..AppInstanceConfig::default() };
        config.purge_cmd.counter = 3;
        config.local_purge_cmd.counter = 2;
        assert_eq!(App::of(&config).name, "web-00000-5");
        config.local_purge_cmd.counter = u32::MAX;
        assert_eq!(App::of(&config).name, "web-00000-2");
    }

    #[test]
    fn a_pod_belongs_to_one_purge_of_one_application() {
        let one = app("web", 1);
        for (pod, how) in [
            ("web-d4f3a-1-x7k2p", Some(PodRole::Native)),
            ("web-d4f3a-1", Some(PodRole::Native)),
            // The tenth purge, and the eleventh.
            ("web-d4f3a-10-x7k2p", None),
            ("web-d4f3a-11", None),
            // Another application, whose display name is the name of this one.
            ("web-d4f3a-1-b3e2f-0-x7k2p", None),
            ("web-d4f3a-1-x7k2", None),
            ("web-d4f3a-1-X7K2P", None),
            ("web-d4f3a-1x7k2p", None),
            ("my-web-d4f3a-1-x7k2p", None),
            ("virt-launcher-web-d4f3a-1ab1cd-x7k2p", Some(PodRole::Launcher("web-d4f3a-1ab1cd"))),
            ("virt-launcher-web-d4f3a-1-x7k2p", Some(PodRole::Launcher("web-d4f3a-1"))),
            // The machine of the tenth purge begins with a digit more.
            ("virt-launcher-web-d4f3a-10ab1cd-x7k2p", None),
            ("virt-launcher-web-d4f3a-10-x7k2p", None),
            ("virt-launcher-web-d4f3a-1ab1cd-x7k2", None),
            ("virt-launcher-web-d4f3a-1ab1cd", None),
            ("virt-launcher-web-d4f3a-1-b3e2f-0ab1cd-x7k2p", None),
            ("virt-launcher-", None),
            ("", None),
        ] {
            assert_eq!(one.pod(pod), how, "{pod}");
        }
    }

    #[test]
    fn the_consoles_port_is_counted_as_go_counts() {
        let mut config = AppInstanceConfig::default();
        config.fixed_resources.vnc_display = 1;
        assert_eq!(App::of(&config).vnc_port, 5901);
        config.fixed_resources.vnc_display = u32::MAX;
        assert_eq!(App::of(&config).vnc_port, 5899);
    }
}
