//! The page in every state: its headline and title, the same in JSON, and, where a browser is installed, that it fits a
//! phone and a screen and can be read in light and dark. One that is asked for by name takes the pictures of docs/pages.md.

#[path = "page/states.rs"]
mod states;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pubsub::store;
use serde_json::Value;
use states::State;
use topics::{NodeState, go_json};

use crate::drain_cmd::node::top;
use crate::skipped;

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// All pictures of docs/pages.md together; whoever clones the repository has them.
const MOST_PICTURES_BYTES: u64 = 1_500_000;
/// Least contrast of text against what is behind it. Source: WCAG 2.2, 1.4.3.
const CONTRAST: f64 = 4.5;

#[test]
fn x2_each_state_has_its_headline_in_the_page_its_title_and_the_json_of_the_schema() {
    let schema = include_str!("../../../schemas/served/status.json.schema.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let schema = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
    for state in states::all() {
        let (status, page) = state.shown();
        assert_eq!(status.headline.text, state.headline, "{}", state.name);
        let (words, rest) = state.headline.split_once(": ").unwrap();
        assert!(page.contains(&format!("<h1>{words}</h1><p>{rest}</p>")), "{}: {page}", state.name);
        let title = page.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
        assert!(title.contains(words) && title.contains(rest), "{}: {title}", state.name);
        let json: Value = serde_json::from_slice(&go_json::to_vec(&status).unwrap()).unwrap();
        let wrong: Vec<String> = schema.iter_errors(&json).map(|it| it.to_string()).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", state.name);
        // Words of libraries help nobody who looks at it.
        assert!(!page.contains("os error") && !json.to_string().contains("os error"), "{}", state.name);
        let claims = page.contains("<h1>SAFE");
        assert_eq!(claims, status.next_step.starts_with("work on the node"), "{}", state.name);
        assert_eq!(claims, status.headline.state == NodeState::Safe, "{}", state.name);
    }
    let safe = states::all().filter(|it| it.headline.starts_with("SAFE"));
    assert_eq!(safe.map(|it| it.name).collect::<Vec<_>>(), ["safe"]);
}

#[test]
fn k7_each_tree_says_what_the_table_holds_whatever_is_changed_in_it() {
    let found = states::trees();
    assert_eq!(found, include_str!("page/trees.txt"), "found:\n{found}");
}

#[test]
fn each_first_line_of_the_page_for_the_night_is_one_that_a_node_says() {
    let page = fs::read_to_string(top().join("docs/night.md")).unwrap();
    let lines: Vec<&str> = page.lines().filter_map(|it| it.strip_prefix("| `")?.split('`').next()).collect();
    let of_trees = include_str!("page/trees.txt").lines().filter_map(|it| it.rsplit('\t').next());
    let mut said: Vec<String> =
        of_trees.chain(states::all().map(|it| it.headline)).map(str::to_owned).collect();
    said.extend(states::at_night());
    let is_said = |line: &&str| match line.strip_suffix('…') {
        Some(begins) => said.iter().any(|it| it.starts_with(begins)),
        None => said.iter().any(|it| it == line),
    };
    assert_eq!((lines.len(), lines.iter().find(|it| !is_said(it))), (13, None));
}

#[test]
fn what_blocks_comes_first_each_with_what_to_do_about_it() {
    let state = states::all().find(|it| it.name == "blocked-many").unwrap();
    let (_, page) = state.shown();
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    let order = ["id=\"headline\"", "id=\"first\"", "class=\"bar\"", ">blocked</dt>", ">status</dt>"];
    assert!(order.windows(2).all(|it| place(it[0]) < place(it[1])));
    let blocked = page.split(">volume</dt>").next().unwrap();
    assert_eq!((blocked.matches(">blocked</dt>").count(), blocked.matches("<b>Do: </b>").count()), (6, 5));
    // What is not named is counted.
    assert!(page.contains(">blocked</dt><dd>… and 3 more</dd>"), "{page}");
    assert!(page.contains("<h2 id=\"history\">"), "{page}");
}

#[test]
fn x2_each_state_has_its_section_and_its_pictures_and_no_picture_is_of_none() {
    let docs = top().join("docs");
    let text = fs::read_to_string(docs.join("pages.md")).unwrap();
    let mut pictures: Vec<String> = Vec::new();
    for State { name, .. } in states::all() {
        let section = text.split("\n## ").find(|it| it.contains(&format!("\n`{name}`: ")));
        let section = section.unwrap_or_else(|| panic!("docs/pages.md has no section of {name}"));
        for width in [390, 1366] {
            let picture = format!("{name}-{width}.png");
            assert!(section.contains(&format!("src=\"pictures/{picture}\"")), "{name} shows no {picture}");
            let bytes = fs::read(docs.join("pictures").join(&picture)).unwrap_or_default();
            // The width in the head of a PNG.
            assert_eq!(bytes.get(16..20), Some(&u32::to_be_bytes(width)[..]), "docs/pictures/{picture}");
            pictures.push(picture);
        }
    }
    pictures.sort();
    let entries = fs::read_dir(docs.join("pictures")).unwrap().map(|it| it.unwrap());
    let mut there: Vec<(String, u64)> =
        entries.map(|it| (it.file_name().into_string().unwrap(), it.metadata().unwrap().len())).collect();
    there.sort();
    assert_eq!(there.iter().map(|it| &it.0).collect::<Vec<_>>(), pictures.iter().collect::<Vec<_>>());
    let bytes: u64 = there.iter().map(|it| it.1).sum();
    assert!(bytes < MOST_PICTURES_BYTES, "the pictures have {bytes} bytes");
}

/// All pages in frames of a width; the script of this test, not of the pages, measures them.
fn frames(width: u32) -> String {
    let mut html = String::from("<!DOCTYPE html><body>");
    for state in states::all() {
        write!(html, "<iframe name={0} src={0}.html width={width} height=844></iframe>", state.name).unwrap();
    }
    html + SCRIPT
}

const SCRIPT: &str = r"<pre id=out></pre><script>
const lin=v=>{v/=255;return v<=.04045?v/12.92:((v+.055)/1.055)**2.4};
const lum=c=>{const[r,g,b]=c.match(/[\d.]+/g).map(Number);return .2126*lin(r)+.7152*lin(g)+.0722*lin(b)};
const clear=c=>/^rgba\(.*, 0\)$/.test(c);
addEventListener('load',()=>{const all={};for(const f of document.querySelectorAll('iframe')){
 const d=f.contentDocument,w=f.contentWindow,e=d.documentElement;let least=[99,''];
 for(const n of d.body.querySelectorAll('*')){if(![...n.childNodes].some(t=>t.nodeType===3&&t.data.trim()))continue;
  let b=n;while(b&&clear(w.getComputedStyle(b).backgroundColor))b=b.parentElement;
  const one=lum(w.getComputedStyle(n).color),two=lum(w.getComputedStyle(b||d.body).backgroundColor);
  const ratio=(Math.max(one,two)+.05)/(Math.min(one,two)+.05);if(ratio<least[0])least=[ratio,n.outerHTML]}
 all[f.name]={height:Math.ceil(d.body.getBoundingClientRect().bottom+12),over:e.scrollWidth-w.innerWidth,width:w.innerWidth,h1:d.querySelector('h1').textContent,
  title:d.title,dark:w.matchMedia('(prefers-color-scheme:dark)').matches,least}}
 document.getElementById('out').textContent=JSON.stringify(all)});
</script>";

#[test]
fn x2_in_a_browser_each_state_fits_a_phone_and_a_screen_and_can_be_read_in_light_and_dark() {
    let Some(browser) = browser() else {
        return skipped(&format!("none of {BROWSERS:?} is installed"));
    };
    let dir = tempfile::tempdir().unwrap();
    for state in states::all() {
        store::replace(&dir.path().join(format!("{}.html", state.name)), state.shown().1.as_bytes()).unwrap();
    }
    for (width, dark) in [(390, false), (390, true), (1366, false), (1366, true)] {
        let file = dir.path().join(format!("frames-{width}.html"));
        store::replace(&file, frames(width).as_bytes()).unwrap();
        let all = measured(&browser, &file, dark);
        for state in states::all() {
            let it = &all[state.name];
            let about = format!("{} at {width}, dark {dark}: {it}", state.name);
            let (words, rest) = state.headline.split_once(": ").unwrap();
            assert_eq!(
                (it["width"].as_u64(), it["dark"].as_bool()),
                (Some(width.into()), Some(dark)),
                "{about}"
            );
            assert!(it["over"].as_i64().unwrap() <= 0, "{about}");
            assert_eq!(it["h1"].as_str(), Some(words), "{about}");
            let title = it["title"].as_str().unwrap();
            assert!(title.contains(words) && title.contains(rest), "{about}");
            assert!(it["least"][0].as_f64().unwrap() >= CONTRAST, "{about}");
        }
    }
}

/// What the script has found, by state.
fn measured(browser: &Path, page: &Path, dark: bool) -> Value {
    let profile = tempfile::tempdir().unwrap();
    let page = format!("file://{}", page.display());
    let output = chromium(browser, profile.path(), dark).arg("--dump-dom").arg(page).output().unwrap();
    let dom = String::from_utf8(output.stdout).unwrap();
    let out = dom.split("<pre id=\"out\">").nth(1).and_then(|it| it.split("</pre>").next());
    let out = out.unwrap_or_default().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&out)
        .unwrap_or_else(|cause| panic!("{cause}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn chromium(browser: &Path, profile: &Path, dark: bool) -> Command {
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    command.arg("--allow-file-access-from-files").arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!("--blink-settings=preferredColorScheme={}", i32::from(!dark)));
    command
}

fn browser() -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/local/bin", "/snap/bin"].map(Path::new);
    BROWSERS.iter().flat_map(|name| folders.map(|folder| folder.join(name))).find(|it| it.exists())
}

#[test]
#[ignore = "writes docs/pictures with chromium and pngquant, and the pages for a browser: CONTRIBUTING.md"]
fn pictures_of_each_state_are_taken_again() {
    let browser = browser().expect("chromium is installed");
    let (dir, pictures) = (top().join("target/pages"), top().join("docs/pictures"));
    fs::create_dir_all(&dir).unwrap();
    let (dir, profile) = (dir.canonicalize().unwrap(), tempfile::tempdir().unwrap());
    for state in states::all() {
        store::replace(&dir.join(format!("{}.html", state.name)), state.shown().1.as_bytes()).unwrap();
    }
    // A phone in light colours, and a screen in dark ones.
    for (width, dark) in [(390, false), (1366, true)] {
        let file = dir.join("frames.html");
        store::replace(&file, frames(width).as_bytes()).unwrap();
        let all = measured(&browser, &file, dark);
        for State { name, .. } in states::all() {
            let picture = pictures.join(format!("{name}-{width}.png"));
            let taken = chromium(&browser, profile.path(), dark)
                .arg(format!("--window-size={width},{}", all[name]["height"]))
                .arg(format!("--screenshot={}", picture.display()))
                .arg(format!("file://{}/{name}.html", dir.display()))
                .output();
            taken.unwrap();
            let mut small = Command::new("pngquant");
            small.args(["--force", "--nofs", "--speed", "1", "--strip", "11", "--output"]);
            assert!(small.arg(&picture).arg(&picture).status().unwrap().success(), "{}", picture.display());
        }
    }
}
