//! The settings file of an image: options of `zedbox run` and of single agents, each under its name on the
//! command line. Arguments and variables of the environment override it.
//!
//! Not here: what the options mean. The command line is their only table: the file has no names, values or
//! rules of its own, and the arguments' parsers judge each value.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, parser::ValueSource};
use pubsub::{FileRule, FileState};
use step::SmallSort as _;
use toml::de::DeTable;
use topics::Secret;

use super::{Args, LogFormat, NAMES, webhook};

/// Below the root it is in `etc/zedbox`.
pub(crate) const NAME: &str = "zedbox.toml";
const FOLDER: &str = "etc/zedbox";
/// A secret.
const NOTIFY: &str = "notify";
/// An order: it names programs and devices that root then uses.
const RULE: FileRule = FileRule { limit_bytes: 64 << 10, order: true };
/// Similarity from which a name is suggested.
const ALIKE: f64 = 0.7;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingsFault {
    /// From 1; 0 for the whole file.
    pub(crate) line: usize,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl SettingsFault {
    fn new(line: usize, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { line, expected: expected.into(), found: found.into() }
    }

    pub(crate) fn place(&self) -> String {
        if self.line == 0 { String::new() } else { format!("line {}", self.line) }
    }
}

#[derive(Debug)]
pub(crate) enum StartRefusal {
    /// Arguments, explained by clap.
    Words(clap::Error),
    /// The settings file.
    File { path: PathBuf, faults: Vec<SettingsFault> },
}

/// Parses the command line, and for agents the settings file below the root. Precedence: arguments, variables
/// of the environment, file. A link runs on `/` unless another root is named.
pub(crate) fn parse(words: Vec<OsString>, link: bool) -> Result<Args, StartRefusal> {
    let refused = |error| StartRefusal::Words(error);
    let given = rootless(command()).try_get_matches_from(words.clone()).map_err(refused)?;
    let mut words = words;
    if let Some((_, given)) = given.subcommand().filter(|(name, _)| is_agent(name)) {
        words.extend(from_file(given)?);
        if link && !is_given(given, "root") && !words.iter().any(is_root) {
            words.push("--root=/".into());
        }
    }
    let matches = command().try_get_matches_from(words).map_err(refused)?;
    Args::from_arg_matches(&matches).map_err(refused)
}

/// An empty variable of the environment counts as unset, as for `kubectl`.
fn command() -> Command {
    without_empty(Args::command())
}

fn without_empty(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|it| it.is_empty());
    let heard = |option: Arg| {
        if option.get_env().is_some_and(is_empty) { option.env(None::<&str>) } else { option }
    };
    command.mut_args(heard).mut_subcommands(without_empty)
}

/// Log format and agent for reporting an invalid command line: what can be read of it.
pub(crate) fn voice(words: &[OsString]) -> (Option<LogFormat>, Option<&'static str>) {
    let read = rootless(command()).ignore_errors(true).try_get_matches_from(words).ok();
    let form = |read: &ArgMatches| read.try_get_one("log_format").ok().flatten().copied();
    let agent = |read: &ArgMatches| NAMES.into_iter().find(|name| read.subcommand_name() == Some(name));
    (read.as_ref().and_then(form), read.as_ref().and_then(agent))
}

fn is_root(word: &OsString) -> bool {
    word.to_str().is_some_and(|word| word.starts_with("--root="))
}

fn is_agent(command: &str) -> bool {
    command == "run" || NAMES.contains(&command)
}

/// The same command without a default root: the file may set it.
fn rootless(command: Command) -> Command {
    let open = |command: Command| command.mut_arg("root", |root| root.required(false));
    ["run"].iter().chain(&NAMES).fold(command, |command, agent| command.mut_subcommand(agent, open))
}

/// Whether arguments or environment set this option.
fn is_given(given: &ArgMatches, id: &str) -> bool {
    matches!(given.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

/// Options set only by the file, as arguments.
fn from_file(given: &ArgMatches) -> Result<Vec<OsString>, StartRefusal> {
    let root = given.get_one::<PathBuf>("root").filter(|_| is_given(given, "root"));
    let path = root.map_or(Path::new("/"), PathBuf::as_path).join(FOLDER).join(NAME);
    let table = options();
    match read(&path, &table) {
        Ok(set) => {
            let is_open = |name: &str| {
                let option = table.get_arguments().find(|it| it.get_long() == Some(name));
                option.is_some_and(|it| !is_given(given, it.get_id().as_str()))
            };
            let word = |(name, value): (String, String)| OsString::from(format!("--{name}={value}"));
            Ok(set.into_iter().filter(|(name, _)| is_open(name)).map(word).collect())
        }
        Err(faults) => Err(StartRefusal::File { path, faults }),
    }
}

/// Faults of the file at `path`; none where there is none.
pub(crate) fn faults(path: &Path) -> Vec<SettingsFault> {
    read(path, &options()).err().unwrap_or_default()
}

/// All of the settings file below `root`.
///
/// Errors: the file is invalid; no agent starts with it.
pub(crate) fn values(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let path = root.join(FOLDER).join(NAME);
    read(&path, &options()).map_err(|faults| {
        let first = faults.first().map(|it| {
            let place = if it.line == 0 { String::new() } else { format!(", {}", it.place()) };
            format!("{place}: expected {}, found {}", it.expected, it.found)
        });
        anyhow::anyhow!(
            "the settings file {path}{}; `zedbox check {path}` shows all of it",
            first.unwrap_or_default(),
            path = path.display()
        )
    })
}

/// From the settings file below `root`; `None` where it names none, or is invalid.
pub(crate) fn notify(root: &Path) -> Option<Secret> {
    value(&root.join(FOLDER).join(NAME), NOTIFY).map(Secret::new)
}

fn value(path: &Path, wanted: &str) -> Option<String> {
    read(path, &options()).ok()?.into_iter().find(|(name, _)| name == wanted).map(|(_, value)| value)
}

/// The limits file named by the settings below `root`.
pub(crate) fn limits_of(root: &Path) -> Option<PathBuf> {
    limits(&root.join(FOLDER).join(NAME))
}

/// The limits file named by the file at `path`: below the same root where it exists.
pub(crate) fn limits(path: &Path) -> Option<PathBuf> {
    let named = value(path, "limits")?;
    let root = path.ancestors().nth(3).filter(|_| path.ends_with(Path::new(FOLDER).join(NAME)));
    let below = root.map(|root| root.join(named.trim_start_matches('/'))).filter(|it| it.exists());
    Some(below.unwrap_or_else(|| named.into()))
}

/// `zedbox run` with its options and the global ones.
fn options() -> Command {
    let mut all = rootless(Args::command());
    all.build();
    let run = all.find_subcommand("run").cloned().unwrap_or_default();
    // The file is judged without the environment.
    run.no_binary_name(true).mut_args(|option| option.env(None::<&str>))
}

fn read(path: &Path, table: &Command) -> Result<Vec<(String, String)>, Vec<SettingsFault>> {
    let whole = |found: String| vec![SettingsFault::new(0, "a file of root's that agents read", found)];
    match FileState::now(path, RULE) {
        Ok(FileState::Absent) => Ok(Vec::new()),
        Ok(FileState::Present(bytes)) => match String::from_utf8(bytes) {
            Ok(text) => judge(&text, table),
            Err(cause) => Err(whole(cause.to_string())),
        },
        Ok(FileState::Bad(finding)) => Err(whole(finding.reason)),
        Err(cause) => Err(whole(step::chain(&cause))),
    }
}

/// What [`crate::settings_trial`] does.
pub(crate) fn trial(bytes: &[u8]) -> Result<usize, String> {
    let text = String::from_utf8_lossy(bytes);
    match judge(&text, &options()) {
        Ok(set) => Ok(set.len()),
        Err(faults) => {
            let is_named =
                |it: &SettingsFault| !it.expected.is_empty() && it.line <= text.lines().count() + 1;
            let named = !faults.is_empty() && faults.iter().all(is_named);
            if named { Ok(0) } else { Err(format!("{faults:?}")) }
        }
    }
}

/// All options of `text`, or all its faults.
fn judge(text: &str, table: &Command) -> Result<Vec<(String, String)>, Vec<SettingsFault>> {
    let line = |at: usize| 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    let (found, broken) = DeTable::parse_recoverable(text);
    let mut set = Vec::new();
    let mut faults: Vec<SettingsFault> = broken
        .iter()
        .map(|error| SettingsFault::new(line(error.span().map_or(0, |it| it.start)), "TOML", error.message()))
        .collect();
    for (name, value) in found.get_ref() {
        let (at, name) = (line(name.span().start), name.get_ref().as_ref());
        match option(table, name, value.get_ref().as_str()) {
            Ok(value) => set.push((name.to_owned(), value)),
            Err((expected, found)) => faults.push(SettingsFault::new(at, expected, found)),
        }
    }
    faults.order_by_key(|it| it.line);
    if faults.is_empty() { Ok(set) } else { Err(faults) }
}

/// An option's value as the command line parses it, or what was expected and found.
fn option(table: &Command, name: &str, value: Option<&str>) -> Result<String, (String, String)> {
    let known: Vec<&str> = table
        .get_arguments()
        .filter_map(|it| it.get_long().filter(|_| it.get_action().takes_values()))
        .collect();
    if !known.contains(&name) {
        let alike = |it: &&str| strsim::jaro_winkler(it, name);
        let nearest = known.iter().max_by(|one, other| alike(one).total_cmp(&alike(other)));
        let expected = match nearest.filter(|it| alike(it) > ALIKE) {
            Some(nearest) => (*nearest).to_owned(),
            None => format!("one of {}", known.join(", ")),
        };
        return Err((expected, name.to_owned()));
    }
    let value = value.ok_or_else(|| (format!("{name} = \"…\""), format!("{name} = without quotes")))?;
    if name == NOTIFY {
        let judged = webhook(&Secret::new(value.to_owned()));
        let fault = |it: anyhow::Error| {
            (format!("a value for {name}: {}", it.root_cause()), "another text".to_owned())
        };
        return judged.map(|_| value.to_owned()).map_err(fault);
    }
    match table.clone().try_get_matches_from([format!("--{name}={value}")]) {
        Ok(_) => Ok(value.to_owned()),
        Err(cause) => {
            let why = cause.source().map_or_else(|| first_lines(&cause), ToString::to_string);
            Err((format!("a value for {name}: {why}"), value.to_owned()))
        }
    }
}

/// clap's message without its usage hints.
fn first_lines(cause: &clap::Error) -> String {
    let text = cause.render().to_string();
    let lines: Vec<&str> = text.lines().take_while(|it| !it.trim().is_empty()).map(str::trim).collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::AgentOptions;
    use agent::{device, partitions};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn s4_any_bytes_as_a_settings_file_are_read_or_each_fault_is_named() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/settings");
        let mut set = 0;
        for file in fs::read_dir(kept).unwrap() {
            let path = file.unwrap().path();
            let tried = trial(&fs::read(&path).unwrap());
            set += tried.unwrap_or_else(|broken| panic!("{}: {broken}", path.display()));
        }
        assert!(set >= 4, "{set}");
    }

    fn tree(text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        pubsub::store::replace(&root.path().join(FOLDER).join(NAME), text.as_bytes()).unwrap();
        root
    }

    fn parsed(words: &str, link: bool) -> Result<Args, StartRefusal> {
        parse(words.split(' ').map(OsString::from).collect(), link)
    }

    fn of(args: &Args) -> &AgentOptions {
        let crate::args::Command::Agents(it) = &args.command else { panic!("no agent") };
        it.agents().1
    }

    #[test]
    fn s2_an_address_for_notices_is_a_secret_also_where_it_makes_no_sense() {
        let path = |root: &tempfile::TempDir| root.path().join(FOLDER).join(NAME);
        let wrong = tree("notify = \"http://10.0.0.1/s3cr3t\"");
        let found = faults(&path(&wrong));
        assert!(found[0].expected.contains("https://host/path"), "{found:?}");
        assert!(!format!("{found:?}").contains("s3cr3t"), "{found:?}");
        let right = tree("notify = \"https://hooks.example/s3cr3t\"");
        assert_eq!(faults(&path(&right)), []);
        assert!(notify(right.path()).unwrap().reveal().ends_with("/s3cr3t"));
        let words = format!("zedbox run --root {}", right.path().display());
        let shown = format!("{:?}", of(&parsed(&words, false).unwrap()));
        assert!(shown.contains("notify: Some(Secret(..))") && !shown.contains("s3cr3t"), "{shown}");
    }

    const ALL: &str = "\
# what every agent of this image is started with
root = \"/elsewhere\"
kubeconfig = \"/k\"
device = \"exec:/d\"
partitions = 'gpt:/dev/sda'
current-partition = \"IMGB\"
limits = \"/l\"
notify = \"https://hooks.example/s3cr3t\"
reboot-required = \"/run/reboot-required\"
log = \"warn\"
log-format = \"journald\"
";

    #[test]
    fn each_option_of_an_agent_can_be_in_the_file_and_is_one_of_the_environment() {
        let table = options();
        let judged = judge(ALL, &table).unwrap();
        let mut named: Vec<&str> = judged.iter().map(|(name, _)| name.as_str()).collect();
        let all = rootless(Args::command());
        let agents = all.get_subcommands().filter(|it| is_agent(it.get_name()));
        let of_agents = agents.flat_map(Command::get_arguments).chain(all.get_arguments());
        let mut options: Vec<&str> = Vec::new();
        for option in of_agents {
            let variable = option.get_env().and_then(|it| it.to_str()).unwrap();
            let name = option.get_long().unwrap();
            let own = format!("ZEDBOX_{}", name.replace('-', "_").to_uppercase());
            assert!(variable == own || (name, variable) == ("kubeconfig", "KUBECONFIG"), "{variable}");
            options.push(name);
        }
        options.sort_unstable();
        options.dedup();
        named.sort_unstable();
        assert_eq!(named, options);
    }

    #[test]
    fn e1_words_go_before_the_file_and_the_file_before_defaults() {
        let root = tree(ALL);
        let root = root.path().display();
        for agent in ["run", "zedagent", "baseosmgr", "nodeagent", "zedkube"] {
            let args = parsed(&format!("zedbox {agent} --root {root} --device record --log debug"), false);
            let args = args.unwrap();
            assert_eq!((args.log.as_deref(), args.log_format), (Some("debug"), Some(LogFormat::Journald)));
            let options = of(&args);
            assert_eq!(options.root.display().to_string(), root.to_string());
            assert_eq!(options.device, device::DeviceChoice::Record);
            assert_eq!(options.partitions, partitions::PartitionsChoice::Gpt("/dev/sda".into()));
            assert_eq!(options.current_partition.unwrap().to_string(), "IMGB");
            assert_eq!(options.limits.as_deref(), Some(Path::new("/l")));
        }
        let before = parsed(&format!("zedbox --log debug run --root {root}"), false).unwrap();
        assert_eq!(before.log.as_deref(), Some("debug"));
        let args = parsed(&format!("zedbox run --root {root}/none"), false).unwrap();
        assert_eq!((&of(&args).device, &of(&args).limits), (&device::DeviceChoice::Record, &None));
    }

    #[test]
    fn e1_a_link_without_arguments_runs_on_the_root_of_the_machine() {
        for agent in NAMES {
            let words = super::super::of_now([OsString::from(format!("/opt/zededa/bin/{agent}"))]).0;
            let args = parse(words, true).unwrap();
            assert_eq!(of(&args).root, Path::new("/"), "{agent}");
        }
        let Err(StartRefusal::Words(refused)) = parsed("zedbox run", false) else {
            panic!("only a link does")
        };
        assert!(refused.to_string().contains("--root"), "{refused}");
        let root = tree("device = \"exec:/d\"");
        let line = format!("zedkube zedkube --root {}", root.path().display());
        assert_eq!(of(&parsed(&line, true).unwrap()).device, device::DeviceChoice::Exec("/d".into()));
    }

    #[test]
    fn a_fault_has_its_line_and_the_nearest_right_name() {
        let rows = [
            ("\n\ndevise = \"record\"", 3, "device", "devise"),
            ("current_partition = \"IMGA\"", 1, "current-partition", "current_partition"),
            ("help = \"x\"", 1, "one of kubeconfig, ", "help"),
            ("xyz = 1", 1, "one of kubeconfig, ", "xyz"),
            ("[zedkube]\nlog = \"info\"", 1, "one of kubeconfig, ", "zedkube"),
            ("device = 1", 1, "device = \"…\"", "without quotes"),
            ("# x\ndevice = \"magic\"", 2, "record, systemd or exec:", "magic"),
            ("partitions = \"sda\"", 1, "use none, gpt:/dev/DISK", "sda"),
            ("log = \"loud\"", 1, "info,zedkube=debug", "loud"),
            ("log-format = \"xml\"", 1, "json, text, journald", "xml"),
            ("current-partition = \"IMGC\"", 1, "IMGA", "IMGC"),
            ("log = \"info\"\ndevice = \"record", 2, "TOML", ""),
            ("log = \"info\"\nlog = \"warn\"", 2, "TOML", "duplicate"),
        ];
        let table = options();
        for (text, line, expected, found) in rows {
            let faults = judge(text, &table).unwrap_err();
            let one = &faults[0];
            assert_eq!(one.line, line, "{text}: {faults:?}");
            assert!(one.expected.contains(expected) && one.found.contains(found), "{text}: {faults:?}");
        }
        let two = judge("devise = \"record\"\n\nlok = \"info\"\ndevice = \"magic\"", &table).unwrap_err();
        assert_eq!(two.iter().map(|it| it.line).collect::<Vec<_>>(), [1, 3, 4]);
    }

    #[test]
    fn a_link_and_a_file_that_others_may_write_are_refused_and_nothing_of_it_counts() {
        let root = tree("device = \"exec:/d\"");
        let path = root.path().join(FOLDER).join(NAME);
        let start = || parsed(&format!("zedbox run --root {}", root.path().display()), false);
        assert!(start().is_ok() && faults(&path).is_empty());
        fs::set_permissions(&path, Permissions::from_mode(0o620)).unwrap();
        assert!(faults(&path)[0].found.contains("others may write it (mode 620)"), "{:?}", faults(&path));
        assert!(matches!(start(), Err(StartRefusal::File { .. })));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(start().is_ok());
        fs::rename(&path, root.path().join("real.toml")).unwrap();
        std::os::unix::fs::symlink(root.path().join("real.toml"), &path).unwrap();
        assert_eq!(faults(&path).len(), 1);
        assert!(matches!(start(), Err(StartRefusal::File { .. })));
    }
}
