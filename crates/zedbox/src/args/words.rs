//! Words of the command line as they are typed: a link's name in place of an agent's, and former words of commands in
//! place of those of now.

use std::ffi::OsString;
use std::path::Path;

use super::NAMES;

/// Former words behind `drain`, and those of now. Without the third they stay names that say nothing of it.
const FORMER: [(&str, &[&str], &str); 9] = [
    ("status", &["status"], ""),
    ("watch", &["watch"], ""),
    ("plan", &["plan"], ""),
    ("history", &["history"], ""),
    ("request", &["drain"], "zedbox drain --reason TEXT"),
    ("cancel", &["undrain"], "zedbox undrain"),
    ("done", &["undrain", "--wait"], "zedbox undrain --wait"),
    ("start-now", &["go", "--past=window"], "zedbox go --past window --reason TEXT"),
    ("refuse", &["pause", "--only-controller"], "zedbox pause --only-controller --reason TEXT"),
];
/// Similarity from which a word is taken for a mistyped one.
pub(crate) const ALIKE: f64 = 0.85;
const PASS: (&str, &str) = ("pass", "zedbox go --past preflight:CODE --reason TEXT");

/// The agent in the program's name.
pub(crate) fn called_as(args: &[OsString]) -> Option<&'static str> {
    let called = args.first().and_then(|first| Path::new(first).file_name());
    NAMES.into_iter().find(|name| called.is_some_and(|called| called == *name))
}

/// The command line in the words of now, with the agent's name in front when the program was called by it; and
/// what to say of a former word.
pub(crate) fn of_now(args: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Option<&'static str>) {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if let Some(agent) = called_as(&args) {
        args.insert(1, OsString::from(agent));
    }
    let is = |at: usize, word: &str| args.get(at).is_some_and(|it| it == word);
    // The kube container calls a command of zedkube.
    if is(1, "zedkube") && is(2, zedkube::update_status::COMMAND) {
        args.remove(1);
    }
    let said = renew(&mut args).or_else(|| held(&mut args));
    (args, said.filter(|it| !it.is_empty()))
}

/// The former option of a shutdown or reboot of the site.
fn held(args: &mut [OsString]) -> Option<&'static str> {
    let former = args.iter_mut().find(|it| *it == "--although-held")?;
    *former = "--pass=turn".into();
    Some("zedbox site … --pass turn")
}

fn renew(args: &mut Vec<OsString>) -> Option<&'static str> {
    let drain = word_from(args, 1).filter(|at| args[*at] == "drain")?;
    let at = word_from(args, drain + 1)?;
    let typed = args[at].to_str()?.to_owned();
    let forced = |args: &[OsString]| {
        let status = word_from(args, at + 1).and_then(|at| args[at].to_str());
        matches!(status, Some("9" | "complete")).then_some("zedbox go --past drain --reason TEXT")
    };
    if typed == "force" {
        return forced(args);
    }
    let (new, said) = if typed == PASS.0 {
        let mut from = at + 1;
        while let Some(code) = word_from(args, from) {
            let named = format!("--past=preflight:{}", args[code].to_string_lossy());
            args[code] = named.into();
            from = code + 1;
        }
        (&["go"][..], PASS.1)
    } else {
        let Some((_, new, said)) = FORMER.into_iter().find(|(word, ..)| *word == typed) else {
            // clap knows what was meant.
            if FORMER.iter().any(|(word, ..)| strsim::jaro_winkler(word, &typed) > ALIKE) {
                args.remove(drain);
            }
            return None;
        };
        (new, said)
    };
    args.splice(at..=at, new[1..].iter().map(OsString::from));
    args[drain] = new[0].into();
    let Some(ends) = args.iter().position(|it| it == "--withdraw" || it == "--remove") else {
        return Some(said);
    };
    args.remove(ends);
    if typed == PASS.0 {
        let all = checks::DRAIN_CODES.map(|code| format!("--past=preflight:{code}").into());
        args.splice(ends..ends, all.into_iter().chain([OsString::from("--undo")]));
        return Some("zedbox go --past preflight:CODE --undo");
    }
    args.retain(|it| it != "--only-controller");
    args[drain] = "resume".into();
    Some("zedbox resume")
}

/// The first word from `at` on that is neither an option nor its value.
fn word_from(args: &[OsString], mut at: usize) -> Option<usize> {
    loop {
        let word = args.get(at)?.to_string_lossy();
        if !word.starts_with('-') {
            return Some(at);
        }
        let alone = word.contains('=')
            || !word.starts_with("--") && word.len() > 2
            || ["-h", "--help", "--wait", "--remove", "--withdraw"].contains(&word.as_ref());
        at += if alone { 1 } else { 2 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn former_words_are_those_of_now_and_all_but_names_say_so() {
        for (typed, now, said) in [
            ("drain status", "status", ""),
            ("drain --root /r -o json status --as-of T", "status --root /r -o json --as-of T", ""),
            ("--log debug drain watch", "--log debug watch", ""),
            (
                "drain --root /r request --reason fan",
                "drain --root /r --reason fan",
                "zedbox drain --reason TEXT",
            ),
            ("drain cancel", "undrain", "zedbox undrain"),
            ("drain -ojson done --timeout 5m", "undrain -ojson --wait --timeout 5m", "zedbox undrain --wait"),
            ("drain refuse --reason x", "pause --only-controller --reason x", "pause --only-controller"),
            ("drain refuse --withdraw", "resume", "zedbox resume"),
            ("drain start-now --reason x", "go --past=window --reason x", "go --past window"),
            (
                "drain pass --reason backups backups etcd",
                "go --reason backups --past=preflight:backups --past=preflight:etcd",
                "go --past preflight:CODE",
            ),
            ("drain force 9 --for reboot", "drain force 9 --for reboot", "go --past drain"),
            ("drain force 5 --reason x", "drain force 5 --reason x", ""),
            // What is no former word stays as it is.
            ("drain --reason status", "drain --reason status", ""),
            ("drain --wait --reason x", "drain --wait --reason x", ""),
            ("drain stauts", "stauts", ""),
            ("drain fan", "drain fan", ""),
            (
                "site shutdown --although-held --reason x",
                "site shutdown --pass=turn --reason x",
                "--pass turn",
            ),
            ("lock status", "lock status", ""),
        ] {
            let typed = std::iter::once("zedbox").chain(typed.split(' ')).map(OsString::from);
            let (words, told) = of_now(typed);
            let words: Vec<_> = words[1..].iter().map(|it| it.to_str().unwrap()).collect();
            assert_eq!(words.join(" "), now);
            assert!(told.is_some() != said.is_empty() && told.unwrap_or_default().contains(said), "{told:?}");
        }
        let (words, _) = of_now(["zedbox", "drain", "pass", "--remove"].map(OsString::from));
        assert!(
            words.iter().any(|it| it == "--past=preflight:backups") && words.iter().any(|it| it == "--undo")
        );
    }
}
