//! Which partitions are used, from the command line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pubsub::TopicRoot;

use super::{ExecStore, GptStore, Label, PartitionStore, RecordStore, refuse};
use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PartitionsChoice {
    /// `none`: there are none, and OS updates are refused.
    #[default]
    None,
    /// `gpt:DISK`: IMGA and IMGB in the partition table of this disk, or of the image of one.
    Gpt(PathBuf),
    /// `exec:PROGRAM`: an absolute path, called with the words of the reference's `zboot`.
    Exec(PathBuf),
    /// `record`: files under `<root>/persist/zboot` that stand in for partitions.
    Record,
}

impl FromStr for PartitionsChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (door, path) = text.split_once(':').unwrap_or((text, ""));
        match (door, Path::new(path)) {
            ("none", _) if path.is_empty() => Ok(Self::None),
            ("record", _) if path.is_empty() => Ok(Self::Record),
            ("gpt", disk) if disk.is_absolute() => Ok(Self::Gpt(disk.to_owned())),
            ("exec", program) if program.is_absolute() => Ok(Self::Exec(program.to_owned())),
            ("gpt" | "exec", _) => Err(format!("{door}: needs an absolute path, not `{path}`")),
            _ => Err(format!(
                "`{text}` does not name partitions; use none, gpt:/dev/DISK, exec:/path/to/program or record"
            )),
        }
    }
}

impl fmt::Display for PartitionsChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("none"),
            Self::Gpt(disk) => write!(out, "gpt:{}", disk.display()),
            Self::Exec(program) => write!(out, "exec:{}", program.display()),
            Self::Record => out.write_str("record"),
        }
    }
}

impl PartitionsChoice {
    /// The partitions, if any. `running` names the one that this boot runs from where the kernel's command
    /// line does not.
    ///
    /// Errors: the records can neither be read nor made; `running` is given for partitions that know it
    /// themselves.
    pub fn open(
        &self,
        topic_root: &TopicRoot,
        running: Option<Label>,
    ) -> Result<Option<Box<dyn PartitionStore>>, Error> {
        match (self, running) {
            (Self::Gpt(disk), _) => Ok(Some(Box::new(GptStore::new(topic_root, disk, running)))),
            (_, Some(label)) => Err(refuse(format!(
                "--current-partition {label} is only for --partitions gpt:DISK, not for {self}; leave it out"
            ))),
            (Self::None, None) => Ok(None),
            (Self::Exec(program), None) => Ok(Some(Box::new(ExecStore::new(topic_root, program)))),
            (Self::Record, None) => Ok(Some(Box::new(RecordStore::open(topic_root)?))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_chosen_by_words_and_a_wrong_word_names_the_right_ones() {
        for text in ["none", "gpt:/dev/sda", "exec:/usr/bin/zboot", "record"] {
            assert_eq!(text.parse::<PartitionsChoice>().unwrap().to_string(), text);
        }
        for text in ["", "sda", "/dev/sda", "record:x", "none:/dev/sda"] {
            assert!(text.parse::<PartitionsChoice>().unwrap_err().contains("use none, gpt:"), "{text}");
        }
        assert!("gpt:sda".parse::<PartitionsChoice>().unwrap_err().contains("absolute path, not `sda`"));
        assert!("exec:".parse::<PartitionsChoice>().unwrap_err().contains("absolute"));
        assert_eq!(PartitionsChoice::default(), PartitionsChoice::None);
    }

    #[test]
    fn the_running_partition_is_named_to_nobody_who_knows_it() {
        let root = tempfile::tempdir().unwrap();
        let topic_root = TopicRoot::open(root.path()).unwrap();
        for text in ["none", "exec:/zboot", "record"] {
            let refused =
                text.parse::<PartitionsChoice>().unwrap().open(&topic_root, Some(Label::A)).err().unwrap();
            assert!(refused.to_string().contains("only for --partitions gpt:DISK"), "{refused}");
        }
    }
}
