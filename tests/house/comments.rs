//! Comments and doc comments use plain words: how many they do not is a number that only falls.

use crate::{UNCLEAR, files, is_of_tests, product};

/// Clear in a message, where a name is beside them; in a comment they hide the owner, the caller or the receiver.
const DIALECT: [&str; 8] =
    ["whose", "nobody", "whoever", "hears", "as far as", "who may", "makes no sense", "in words"];
const UNCLEAR_IN_COMMENTS: usize = 552;
/// A number that is this much below its limit lowers the limit.
const SLACK: usize = 60;

#[test]
fn comments_have_no_more_unclear_words_than_before() {
    let words = UNCLEAR.iter().map(|(word, _)| *word).chain(DIALECT);
    let words: Vec<String> = words.map(|word| format!(" {word} ")).collect();
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
    let limit = UNCLEAR_IN_COMMENTS;
    assert!(found <= limit, "{found} unclear words in comments, at most {limit}: {words:?}");
    assert!(found + SLACK > limit, "{found} unclear words in comments: lower the limit of {limit}");
}
