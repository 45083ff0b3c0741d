//! Comments and doc comments use plain words: how many they do not is a number that only falls.

use crate::{UNCLEAR, files, is_of_tests, product, sources};

/// Clear in a message, where a name is beside them; in a comment they hide the owner, the caller or the receiver.
const DIALECT: [&str; 8] =
    ["whose", "nobody", "whoever", "hears", "as far as", "who may", "makes no sense", "in words"];
const UNCLEAR_IN_COMMENTS: usize = 552;
/// A number that is this much below its limit lowers the limit.
const SLACK: usize = 60;

#[test]
fn comments_have_no_more_unclear_words_than_before() {
    let words = UNCLEAR.iter().map(|(word, _)| *word).chain(DIALECT).map(|word| format!(" {word} "));
    let words: Vec<String> = words.collect();
    let count = |text: &str| {
        let comments = product(text).lines().map(str::trim_start).filter(|line| line.starts_with("//"));
        // Without code spans, which may hold names. Joined, as a line may end within two words that belong together.
        let prose: Vec<String> = comments.map(|line| line.split('`').step_by(2).collect()).collect();
        let plain = prose.join(" ").to_lowercase();
        let plain: Vec<&str> =
            plain.split(|it: char| !it.is_alphabetic() && it != '-').filter(|it| !it.is_empty()).collect();
        let plain = format!(" {} ", plain.join(" "));
        words.iter().map(|word| plain.matches(word.as_str()).count()).sum::<usize>()
    };
    let sources = files(&["crates"], "rs").into_iter().filter(|(path, _)| !is_of_tests(path));
    let found: usize = sources.map(|(_, text)| count(&text)).sum();
    assert!(found <= UNCLEAR_IN_COMMENTS, "{found} unclear words in comments: {words:?}");
    assert!(found + SLACK > UNCLEAR_IN_COMMENTS, "{found} unclear words in comments: lower the limit");
}

/// What a reader of this repository cannot open is no source: acceptance sentences and sheets by short names.
#[test]
fn comments_name_no_document_that_is_not_here() {
    for (path, text) in sources() {
        let comments = text.lines().map(str::trim_start).filter(|it| it.starts_with("//"));
        for line in comments.filter(|it| !it.contains("lf-edge/eve")) {
            let mut words = line.split(' ').map(|it| it.trim_matches(|it: char| !it.is_alphanumeric()));
            let is_away = |it: &str| it.rsplit('.').next() == Some("md") && !crate::top().join(it).exists();
            let named = words.find(|it| ["goal", "goals"].contains(it) || is_away(it));
            assert_eq!(named, None, "{}: {line}", path.display());
        }
    }
}
