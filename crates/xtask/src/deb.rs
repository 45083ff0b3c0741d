//! The Debian package. Source: deb(5), and the Debian policy manual.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use ar::{Builder, Header};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use jiff::tz::TimeZone;

use crate::archive::{Entry, gzip, tar};
use crate::facts::{BuildTarget, Workspace};

const POSTINST: &str = include_str!("../package/postinst");
const PRERM: &str = include_str!("../package/prerm");
const POSTRM: &str = include_str!("../package/postrm");
const TMPFILES: &str = include_str!("../package/zedbox.conf");
const SETTINGS: &str = include_str!("../package/zedbox.toml");
/// What lintian says all the same, and why.
const OVERRIDES: &str = include_str!("../package/overrides");
/// Nobody in person: reports go where SECURITY.md and CONTRIBUTING.md say.
const MAINTAINER: &str = "pillar-rs maintainers <maintainers@pillar-rs.invalid>";

pub(crate) struct Package<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) target: &'a BuildTarget,
    pub(crate) version: &'a str,
    pub(crate) program: &'a [u8],
    pub(crate) notices: &'a [u8],
    pub(crate) texts: Vec<Entry>,
}

pub(crate) fn make(package: &Package<'_>) -> anyhow::Result<Vec<u8>> {
    let version = package.version;
    let is_version = version.starts_with(|it: char| it.is_ascii_digit())
        && version.chars().all(|it| it.is_ascii_alphanumeric() || ".+~-".contains(it));
    ensure!(is_version, "use the version {version:?}: letters, digits and . + ~ - only, a digit first");
    let epoch = package.workspace.epoch;
    let files = files(package)?;
    let kib: usize = files.iter().map(|it| it.bytes.len().div_ceil(1024)).sum();
    let control = format!(
        "Package: zedbox\n\
         Version: {version}\n\
         Architecture: {}\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {kib}\n\
         Recommends: systemd, tzdata\n\
         Section: admin\n\
         Priority: optional\n\
         Description: drains a node of an edge Kubernetes cluster before it goes down\n \
         Reboots, shutdowns and OS updates of this node wait until its pods and volume\n \
         copies have left it. Without a change of /etc/zedbox/zedbox.toml nothing takes\n \
         this machine down.\n",
        package.target.debian
    );
    let control = [
        // Kept when a person has changed them.
        Entry::file("conffiles", 0o644, "/etc/zedbox/zedbox.toml\n"),
        Entry::file("control", 0o644, control),
        Entry::file("postinst", 0o755, POSTINST),
        Entry::file("postrm", 0o755, POSTRM),
        Entry::file("prerm", 0o755, PRERM),
    ];
    let mut archive = Builder::new(Vec::new());
    for (name, bytes) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&tar(&control, &[], epoch)?)?),
        // Hooks are read only from a folder of root's.
        ("data.tar.gz", gzip(&tar(&files, &["etc/zedbox/hooks"], epoch)?)?),
    ] {
        let mut header = Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
        header.set_mtime(epoch);
        header.set_mode(0o100_644);
        archive.append(&header, bytes.as_slice())?;
    }
    Ok(archive.into_inner()?)
}

fn files(package: &Package<'_>) -> anyhow::Result<Vec<Entry>> {
    let root = &package.workspace.root;
    let read = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
    let date = Timestamp::from_second(package.workspace.epoch.try_into()?)?.to_zoned(TimeZone::UTC);
    let changelog = format!(
        "zedbox ({}) unstable; urgency=medium\n\n  * What has changed: CHANGELOG.md.gz beside this file.\n\n -- {MAINTAINER}  {}\n",
        package.version,
        rfc2822::to_string(&date)?
    );
    let copyright = with_reference(std::str::from_utf8(package.notices)?);
    let mut files = vec![
        Entry::file("usr/bin/zedbox", 0o755, package.program),
        Entry::file("usr/lib/tmpfiles.d/zedbox.conf", 0o644, TMPFILES),
        Entry::file("etc/zedbox/zedbox.toml", 0o644, SETTINGS),
        Entry::file("usr/share/doc/zedbox/copyright", 0o644, copyright),
        Entry::file("usr/share/doc/zedbox/changelog.gz", 0o644, gzip(changelog.as_bytes())?),
        Entry::file("usr/share/doc/zedbox/CHANGELOG.md.gz", 0o644, gzip(&read(&root.join("CHANGELOG.md"))?)?),
        Entry::file("usr/share/lintian/overrides/zedbox", 0o644, OVERRIDES),
    ];
    // Without pictures; units and manifests at the places of their kind.
    for folder in ["", "examples", "operate", "reference", "units"] {
        for entry in fs::read_dir(root.join("docs").join(folder)).context("read docs")? {
            let path = entry?.path();
            let place = match path.extension().and_then(|it| it.to_str()) {
                Some("service") => "usr/lib/systemd/system".into(),
                Some("yaml") => "usr/share/zedbox".into(),
                _ => Path::new("usr/share/doc/zedbox").join(folder),
            };
            let (Some(name), true) = (path.file_name(), path.is_file()) else { continue };
            files.push(Entry::file(&place.join(name).display().to_string(), 0o644, read(&path)?));
        }
    }
    files.extend(package.texts.iter().cloned());
    Ok(files)
}

/// With Debian's own copy of the Apache License in place of each copy of its terms, the first of which is ours.
fn with_reference(notices: &str) -> String {
    let (begin, end) = ("TERMS AND CONDITIONS FOR USE", "END OF TERMS AND CONDITIONS");
    let mut pieces = notices.split(begin);
    let first = pieces.next().unwrap_or_default().to_owned();
    let mut ours = None;
    pieces.fold(first, |text, piece| match piece.split_once(end) {
        Some((terms, after))
            if ours.get_or_insert(terms.split_whitespace()).clone().eq(terms.split_whitespace()) =>
        {
            text + "The terms are in /usr/share/common-licenses/Apache-2.0." + after
        }
        _ => text + begin + piece,
    })
}
