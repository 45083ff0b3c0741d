//! Lines of `zedbox`: each is one that its command line takes, in the documents, in what the program itself says, and in
//! the scripts beside the documents.

use clap::error::ErrorKind;

use super::{Shown, is_placeholder, shown, words};

/// What a line says in place of something that is no plain text.
const FOR: [(&str, &str); 5] =
    [("N", "2"), ("F", "7"), ("S", "1"), ("PHASE", "stopping"), ("TIME", "2026-03-14T09:41:00Z")];

/// Whether the command line takes it, and if not, why. What is not `whole` may lack what the command needs.
fn refused(text: &str, whole: bool) -> Option<String> {
    let mut words = words(text);
    // A link named as the agent.
    "zedbox".clone_into(&mut words[0]);
    // `…` says that more may follow.
    let open = words.last().is_some_and(|it| it == "…");
    words.retain(|it| it != "…");
    for word in &mut words {
        let value = FOR.iter().find(|(placeholder, _)| word == placeholder && is_placeholder(word));
        *word = value.map_or_else(|| word.trim_end_matches('…').to_owned(), |(_, value)| (*value).to_owned());
    }
    let cause = zedbox::command().try_get_matches_from(words).err()?;
    let kind = cause.kind();
    let lacks = matches!(
        kind,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
    );
    let fine =
        matches!(kind, ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) || lacks && (!whole || open);
    (!fine).then(|| cause.render().to_string())
}

fn is_ours(it: &Shown) -> bool {
    (it.is_of("zedbox") || it.is_of("zedkube")) && it.not_run().is_none()
}

#[test]
fn every_zedbox_line_of_the_documents_is_one_that_the_program_takes() {
    let lines: Vec<Shown> = shown().into_iter().filter(is_ours).collect();
    assert!(lines.len() > 200, "the documents show {} lines of zedbox", lines.len());
    let wrong = lines.iter().filter_map(|it| Some(format!("{it}: {}", refused(&it.text, it.whole)?)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_word_flag_or_value_is_refused_and_a_name_alone_is_none() {
    for wrong in [
        "zedbox drian status",
        "zedbox drain status --as-off NOW",
        "zedbox lock limit many",
        "zedbox drain watch --timeout soon",
        "zedbox pause --reason TEXT and more",
    ] {
        assert!(refused(wrong, false).is_some(), "{wrong}");
    }
    for name in ["zedbox drain", "zedbox drain force", "zedbox lock release", "zedbox zedkube …"] {
        assert!(refused(name, false).is_none(), "{name}");
    }
    assert!(refused("zedbox drain force", true).is_some());
    assert!(refused("zedbox lock limit N", true).is_none());
}
