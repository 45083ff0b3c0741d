//! Orders that skip a drain need confirmation on a terminal, and nowhere else.

use std::io::Write as _;

use topics::FORCE_FILE;

use crate::drain_cmd::node::Node;
use crate::drain_cmd::terminal::Terminal;

const WORDS: &str = "force complete --for reboot --reason lost";

#[test]
fn x3_on_a_terminal_the_word_has_to_be_typed_behind_what_will_happen() {
    for (typed, code) in [("complete\n", 0), ("yes\n", 1), ("\n", 1)] {
        let node = Node::of("drain-5-cordoned").with_zedkube();
        let mut terminal = Terminal::asking(node.command(WORDS));
        terminal.until("Type complete to continue");
        for part in ["goes ahead WITHOUT", "[budget]", "cut off: 2 pods of the drain"] {
            assert!(
                terminal.read.split_whitespace().collect::<Vec<_>>().join(" ").contains(part),
                "{}",
                terminal.read
            );
        }
        assert!(!node.path(FORCE_FILE).exists(), "before it is typed");
        terminal.screen.write_all(typed.as_bytes()).unwrap();
        assert_eq!(terminal.end(), code, "{typed:?}: {}", terminal.read);
        assert_eq!(node.path(FORCE_FILE).exists(), code == 0, "{typed:?}");
    }
}

#[test]
fn x3_a_script_and_whoever_adds_yes_are_not_asked() {
    let node = Node::of("drain-5-cordoned").with_zedkube();
    assert_eq!(node.drain(WORDS).code, 0);
    let node = Node::of("drain-5-cordoned").with_zedkube();
    let mut terminal = Terminal::asking(node.command(&format!("{WORDS} --yes")));
    assert_eq!(terminal.end(), 0, "{}", terminal.read);
    assert!(!terminal.read.contains("Type complete"), "{}", terminal.read);
    // Nor do orders that release nothing.
    let node = Node::of("drain-5-cordoned").with_zedkube();
    assert_eq!(Terminal::asking(node.command("force cordoned --reason x")).end(), 0);
}
