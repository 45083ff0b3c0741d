//! Files of one crate import each other in one direction only: what two files share is in a lower one.
//!
//! An import is a name of another file in a `use` or in a path, followed through re-exports to the file that defines
//! it. A module that is named on the way is no import, and a method called on a value is none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// From the crate's root, whose name comes first.
type ModulePath = Vec<String>;

#[derive(Default)]
struct Module {
    defines: BTreeSet<String>,
    /// Name and path; `*` for all of a module.
    uses: Vec<(String, Vec<String>)>,
    /// Paths in its code, of two names or more.
    paths: Vec<Vec<String>>,
}

/// Per file, the imported names by file.
type Imports<'a> = BTreeMap<&'a ModulePath, BTreeMap<ModulePath, BTreeSet<String>>>;

struct Crates(BTreeMap<ModulePath, Module>);

enum Target {
    Module(ModulePath),
    Item(ModulePath),
}

fn module_path(file: &Path) -> Option<ModulePath> {
    let mut parts = file.strip_prefix("crates").ok()?.iter().map(|it| it.to_str().unwrap().to_owned());
    let name = parts.next()?;
    (parts.next()? == "src").then_some(())?;
    let mut found: ModulePath = [name].into_iter().chain(parts).collect();
    let last = found.pop()?.strip_suffix(".rs")?.to_owned();
    if !matches!(last.as_str(), "lib" | "mod") {
        found.push(last);
    }
    Some(found)
}

impl Module {
    fn read(text: &str) -> Module {
        let tokens: TokenStream = text.parse().unwrap();
        let mut module = Module::default();
        module.walk(&tokens.into_iter().collect::<Vec<_>>(), true);
        module
    }

    fn walk(&mut self, tokens: &[TokenTree], is_top: bool) {
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' && is_test_mark(tokens.get(at)) => {
                    let ends = |it: &TokenTree| is_mark(it, ';') || is_group(it, Delimiter::Brace);
                    at += 1 + tokens[at..].iter().position(ends).unwrap_or_default();
                }
                TokenTree::Group(group) => {
                    self.walk(&group.stream().into_iter().collect::<Vec<_>>(), false);
                }
                TokenTree::Ident(word) if word == "use" => {
                    let end = tokens[at..].iter().position(|it| is_mark(it, ';'));
                    if let Some(end) = end {
                        self.read_use(&[], &tokens[at..at + end]);
                        at += end;
                    }
                }
                TokenTree::Ident(_) => {
                    let path = path_of(&tokens[at - 1..]);
                    let continues = at > 2 && tokens[at - 3..at - 1].iter().all(|it| is_mark(it, ':'));
                    if path.len() > 1 && !continues {
                        self.paths.push(path.clone());
                    }
                    at += (path.len() - 1) * 3;
                    let keyword = path.len() == 1 && is_top && DEFINING.contains(&path[0].as_str());
                    if keyword && let Some(TokenTree::Ident(name)) = tokens.get(at) {
                        self.defines.insert(name.to_string());
                    }
                    if path == ["macro_rules"]
                        && let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
                    {
                        self.defines.insert(name.to_string());
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    /// One branch of a `use`; `before` is its prefix.
    fn read_use(&mut self, before: &[String], tokens: &[TokenTree]) {
        let (mut path, mut name) = (before.to_vec(), None);
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "as" => name = tokens.get(at + 1).map(ToString::to_string),
                TokenTree::Ident(word) if name.is_none() => path.push(word.to_string()),
                TokenTree::Punct(mark) if mark.as_char() == '*' => name = Some("*".to_owned()),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    inner.split(|it| is_mark(it, ',')).for_each(|branch| self.read_use(&path, branch));
                    return;
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if path.len() > before.len() && path.last().is_some_and(|it| it == "self") && !before.is_empty() {
            path.pop();
        }
        if let Some(last) = path.last().cloned() {
            self.uses.push((name.unwrap_or(last), path));
        }
    }
}

const DEFINING: [&str; 7] = ["struct", "enum", "trait", "fn", "type", "const", "static"];

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(it) if it.as_char() == mark)
}

fn is_group(token: &TokenTree, of: Delimiter) -> bool {
    matches!(token, TokenTree::Group(it) if it.delimiter() == of)
}

fn is_test_mark(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(it)) if it.stream().to_string().replace(' ', "") == "cfg(test)")
}

/// The leading names joined by `::`.
fn path_of(tokens: &[TokenTree]) -> Vec<String> {
    let mut path = Vec::new();
    for part in tokens.chunks(3) {
        let Some(TokenTree::Ident(name)) = part.first() else { break };
        path.push(name.to_string());
        if !(part.len() == 3 && is_mark(&part[1], ':') && is_mark(&part[2], ':')) {
            break;
        }
    }
    path
}

impl Crates {
    fn read(sources: impl IntoIterator<Item = (PathBuf, String)>) -> Crates {
        let read = |(path, text): (PathBuf, String)| Some((module_path(&path)?, Module::read(&text)));
        Crates(sources.into_iter().filter(|(path, _)| !crate::is_of_tests(path)).filter_map(read).collect())
    }

    /// `None` for names of other crates.
    fn resolve(&self, from: &ModulePath, path: &[String], depth: usize) -> Option<Target> {
        let (first, mut rest) = path.split_first().filter(|_| depth < 9)?;
        let at = match first.as_str() {
            "crate" => from[..1].to_vec(),
            "self" => from.clone(),
            "super" => {
                let ups = rest.iter().take_while(|it| *it == "super").count();
                rest = &rest[ups..];
                from[..from.len().checked_sub(1 + ups)?].to_vec()
            }
            _ => return self.look_up(from, path, depth, false),
        };
        if rest.is_empty() {
            return Some(Target::Module(at));
        }
        self.look_up(&at, rest, depth, true)
    }

    /// Resolves `path` in the module `at`; where that `is_named` as its own, a macro may have made it.
    fn look_up(&self, at: &ModulePath, path: &[String], depth: usize, is_named: bool) -> Option<Target> {
        let module = self.0.get(at)?;
        let (first, rest) = path.split_first()?;
        let child: ModulePath = at.iter().chain([first]).cloned().collect();
        if self.0.contains_key(&child) {
            return if rest.is_empty() {
                Some(Target::Module(child))
            } else {
                self.look_up(&child, rest, depth, true)
            };
        }
        if module.defines.contains(first) {
            return Some(Target::Item(at.clone()));
        }
        let named = module.uses.iter().filter(|(name, _)| name == first);
        let found = named.filter_map(|(_, short_for)| {
            let whole: Vec<String> = short_for.iter().chain(rest).cloned().collect();
            (whole != path).then(|| self.resolve(at, &whole, depth + 1))?
        });
        let globs = module.uses.iter().filter(|(name, _)| name == "*").filter_map(|(_, from)| {
            match self.resolve(at, from, depth + 1)? {
                Target::Module(all) if all != *at => self.look_up(&all, path, depth + 1, false),
                Target::Module(_) | Target::Item(_) => None,
            }
        });
        let is_other = module.uses.iter().any(|(name, _)| name == first);
        found.chain(globs).next().or_else(|| (is_named && !is_other).then(|| Target::Item(at.clone())))
    }

    fn imports(&self) -> Imports<'_> {
        let mut all = Imports::new();
        for (from, module) in &self.0 {
            let paths = module.paths.iter().map(|path| ("", path));
            let uses = module.uses.iter().map(|(name, path)| (name.as_str(), path));
            for (name, path) in uses.chain(paths) {
                let to = match self.resolve(from, path, 0) {
                    Some(Target::Item(to)) => to,
                    Some(Target::Module(to)) if name == "*" => to,
                    _ => continue,
                };
                if to != *from {
                    all.entry(from).or_default().entry(to).or_default().insert(path.last().unwrap().clone());
                }
            }
        }
        all
    }
}

fn reached<'a>(imports: &'a Imports<'a>, from: &'a ModulePath) -> BTreeSet<&'a ModulePath> {
    let (mut found, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(at) = next.pop() {
        let to = imports.get(at).into_iter().flat_map(BTreeMap::keys);
        next.extend(to.filter(|to| found.insert(*to)));
    }
    found
}

/// Imports that lead back to their file, without those that `left_out` accepts.
fn circles(imports: &Imports<'_>, left_out: impl Fn(&ModulePath, &ModulePath) -> bool) -> Vec<String> {
    let mut imports = imports.clone();
    for (from, all) in &mut imports {
        all.retain(|to, _| !left_out(from, to));
    }
    let reached: BTreeMap<_, _> = imports.keys().map(|from| (*from, reached(&imports, from))).collect();
    let leads = |from: &ModulePath, to: &ModulePath| reached.get(from).is_some_and(|it| it.contains(to));
    let arrows = imports.iter().flat_map(|(from, all)| all.iter().map(move |(to, names)| (*from, to, names)));
    let back = arrows.filter(|(from, to, _)| leads(to, from));
    back.map(|(from, to, names)| format!("{} -> {}: {names:?}", from.join("::"), to.join("::"))).collect()
}

/// A folder's own file and the files in it may import each other.
fn all_circles(imports: &Imports<'_>) -> String {
    let mut found = circles(imports, |from, to| from.starts_with(to));
    found.extend(circles(imports, |from, to| to.starts_with(from)));
    found.sort();
    found.dedup();
    found.join("\n")
}

#[test]
fn no_two_files_of_a_crate_import_each_other_by_any_way_round() {
    let crates = Crates::read(crate::sources());
    let imports = crates.imports();
    let counted: usize = imports.values().map(BTreeMap::len).sum();
    assert!(counted > 1000, "found {counted} imports only");
    let found = all_circles(&imports);
    assert!(found.is_empty(), "what two files share goes into the lower one:\n{found}");
}

#[test]
fn a_circle_is_found_however_a_name_is_written() {
    let lower = "mod deep; pub use deep::Deep; words! { Made } pub struct Low;";
    let all = |upper: &str, deep: &str| {
        let files =
            [("lib", "mod upper; mod lower;"), ("upper", upper), ("lower/mod", lower), ("lower/deep", deep)];
        let file = |(name, text): (&str, &str)| (format!("crates/a/src/{name}.rs").into(), text.to_owned());
        all_circles(&Crates::read(files.map(file)).imports())
    };
    let back = "use crate::upper::Up; pub struct Deep(Up);";
    for to_deep in [
        "use crate::lower::Deep; pub struct Up;",
        "use crate::lower::{self, Low}; pub struct Up { it: lower::Deep }",
        "pub struct Up { it: super::lower::deep::Deep }",
        "pub struct Up; mod inner { fn f() { crate::lower::Deep::new() } }",
    ] {
        let found = all(to_deep, back);
        let there = found.contains("a::lower::deep -> a::upper: {\"Up\"}");
        assert!(there && found.contains("a::upper -> a::lower::deep: "), "{to_deep}: {found}");
    }
    // By its folder's file round the corner.
    for to_lower in ["use crate::lower::Low; pub struct Up;", "pub struct Up(crate::lower::Made);"] {
        let calls = "use super::Low; pub struct Deep; impl Deep { fn f() { crate::upper::Up::f() } }";
        assert_eq!(all(to_lower, calls).lines().count(), 3, "{to_lower}: {}", all(to_lower, calls));
    }
    for none in [
        "pub struct Up; impl Up { fn f(it: &str) { it.low() } }",
        "use crate::lower; pub struct Up;",
        "pub struct Up; #[cfg(test)] mod tests { use crate::lower::Deep; }",
        "use other::lower::Deep; pub struct Up;",
    ] {
        assert_eq!(all(none, back), "", "{none}");
    }
    assert_eq!(all("pub struct Up;", "use super::Low; pub struct Deep(Low);"), "");
}
