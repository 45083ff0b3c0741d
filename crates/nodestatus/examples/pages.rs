//! Writes the page of every state as a file, to be looked at in a browser, and with a second folder the pictures of
//! docs/pages.md: `cargo run -p nodestatus --example pages -- DIR [PICTURES]`. Pictures need `chromium` and `pngquant`.

#![expect(clippy::unwrap_used, reason = "a tool for a person: a panic is its way to fail")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../tests/states/mod.rs"]
#[expect(dead_code, reason = "the table of trees is for the test")]
mod states;

/// A phone in light colours, and a screen in dark ones.
const SIZES: [(u32, bool); 2] = [(390, false), (1366, true)];
/// Says how high each page is.
const SCRIPT: &str = r"<pre id=out></pre><script>addEventListener('load',()=>{let all='';
for(const f of document.querySelectorAll('iframe'))all+=f.name+' '+Math.ceil(f.contentDocument.body.getBoundingClientRect().bottom+12)+'\n';
document.getElementById('out').textContent=all});</script>";

fn main() {
    let mut folders = std::env::args().skip(1).map(PathBuf::from);
    let dir = folders.next().unwrap_or_else(|| PathBuf::from("target/pages"));
    std::fs::create_dir_all(&dir).unwrap();
    let dir = dir.canonicalize().unwrap();
    for state in states::STATES {
        let (status, page) = state.shown();
        assert_eq!(status.headline.text, state.headline, "{}", state.name);
        pubsub::store::replace(&dir.join(format!("{}.html", state.name)), page.as_bytes()).unwrap();
    }
    let Some(pictures) = folders.next() else { return };
    std::fs::create_dir_all(&pictures).unwrap();
    for (width, dark) in SIZES {
        for (name, height) in heights(&dir, width) {
            let picture = pictures.join(format!("{name}-{width}.png"));
            browser(&dir, dark)
                .arg(format!("--window-size={width},{height}"))
                .arg(format!("--screenshot={}", picture.display()))
                .arg(format!("file://{}/{name}.html", dir.display()))
                .output()
                .unwrap();
            let mut small = Command::new("pngquant");
            small
                .args(["--force", "--nofs", "--speed", "1", "--strip", "16", "--output"])
                .arg(&picture)
                .arg(&picture);
            assert!(small.status().unwrap().success(), "{}", picture.display());
        }
    }
}

fn browser(dir: &Path, dark: bool) -> Command {
    let mut browser = Command::new("chromium");
    browser.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--allow-file-access-from-files",
    ]);
    browser.arg(format!("--user-data-dir={}", dir.join("profile").display()));
    browser.arg(format!("--blink-settings=preferredColorScheme={}", i32::from(!dark)));
    browser
}

fn heights(dir: &Path, width: u32) -> Vec<(String, u32)> {
    let mut html = String::from("<!DOCTYPE html><body>");
    for state in states::STATES {
        write!(
            html,
            "<iframe name={0} src={0}.html width={width} height=844 style='border:0'></iframe>",
            state.name
        )
        .unwrap();
    }
    let file = dir.join("frames.html");
    pubsub::store::replace(&file, (html + SCRIPT).as_bytes()).unwrap();
    let page = format!("file://{}", file.display());
    let output = browser(dir, false).arg("--dump-dom").arg(page).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let text = text.split("<pre id=\"out\">").nth(1).unwrap().split("</pre>").next().unwrap().to_owned();
    let row =
        |line: &str| line.split_once(' ').map(|(name, height)| (name.to_owned(), height.parse().unwrap()));
    text.lines().filter_map(row).collect()
}
