//! The page in a headless browser: its visible content, in both colour schemes, and the resources that it requests.
//! Tests print a `kiln-skip` line if no browser is installed.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{HOSTILE, page};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// The content security policy of the page. Tests remove it to inject a script that inspects the page.
const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>";

/// A script that adds its observations to the document, as JSON between two marks.
const PROBE: &str = "<script>addEventListener('load', () => {
  const seen = {
    title: document.title,
    resources: performance.getEntriesByType('resource').map(entry => entry.name),
    text: document.body.innerText,
    dark: matchMedia('(prefers-color-scheme: dark)').matches,
    background: getComputedStyle(document.body).backgroundColor,
    curves: getComputedStyle(document.querySelector('.curves rect')).fill,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    heights: [...document.querySelectorAll('section')].map(section => section.offsetHeight),
  };
  const json = encodeURIComponent(JSON.stringify(seen));
  document.body.append('probe[' + json + ']probe');
});</script></body>";

/// Returns the first browser that starts. Prints a skip line if there is none.
fn browser(what: &str) -> Option<&'static str> {
    let starts = |browser: &&&str| {
        let output = Command::new(browser).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = BROWSERS.iter().find(starts).copied();
    if found.is_none() {
        let skip = format!("kiln-skip: browser: {what}: none of {} starts", BROWSERS.join(", "));
        // A direct write bypasses the output capture of the test harness.
        let mut stdout = std::io::stdout();
        writeln!(stdout, "{skip}").unwrap();
    }
    found
}

/// Returns the HTML of the document after loading.
fn loaded(browser: &str, html: &str, flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    std::fs::write(&path, html).unwrap();
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--timeout=60000",
    ]);
    command.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
    let output = command.args(flags).arg("--dump-dom").arg(url(&path)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn url(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// Returns the observations of the probe on this page.
fn probed(browser: &str, html: &str, flags: &[&str]) -> Value {
    assert!(html.contains(POLICY), "{html}");
    let document = loaded(browser, &html.replace(POLICY, "").replace("</body>", PROBE), flags);
    let (_, rest) = document.rsplit_once("probe[").unwrap();
    let (json, _) = rest.split_once("]probe").unwrap();
    serde_json::from_slice(&percent_decoded(json)).unwrap()
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                (u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap(), after)
            }
            _ => (*first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    bytes
}

/// All content is visible, also on a narrow screen, and no resource is requested.
#[test]
fn the_page_shows_its_content_and_requests_no_resources() {
    let Some(browser) = browser("report.html in a browser") else { return };
    let html = page(4, 40).to_html().unwrap();
    let light = probed(browser, &html, &["--window-size=1200,900"]);
    let dark = probed(browser, &html, &["--window-size=500,900", "--force-dark-mode"]);
    for (seen, is_dark) in [(&light, false), (&dark, true)] {
        assert_eq!(seen["resources"], serde_json::json!([]));
        assert_eq!(seen["title"], "node_classification on sbm");
        assert_eq!((&seen["dark"], &seen["overflow"]), (&is_dark.into(), &0.into()));
        let text = seen["text"].as_str().unwrap();
        for said in ["0.8125", "4 epochs trained, stopped early", "backward", "class 39", "10,10,10"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let heights = seen["heights"].as_array().unwrap();
        assert!(heights.len() == 6 && heights.iter().all(|height| 60 < height.as_u64().unwrap()), "{seen}");
    }
    for what in ["background", "curves"] {
        assert_ne!(light[what], dark[what], "{what}");
    }
}

#[test]
fn a_hostile_name_does_not_run_as_a_script() {
    let Some(browser) = browser("hostile names in a browser") else { return };
    let mut page = page(1, 2);
    page.title = format!("a title {HOSTILE}");
    page.class_names = vec![HOSTILE.into(), HOSTILE.into()];
    page.config = [(HOSTILE.to_owned(), HOSTILE.to_owned())].into();
    let seen = probed(browser, &page.to_html().unwrap(), &[]);
    assert!(seen["title"].as_str().unwrap().starts_with("a title \"'><script>"), "{seen}");
    assert_eq!(seen["resources"], serde_json::json!([]));
}

/// The policy is the second line of defence: an injected script does not run.
#[test]
fn the_policy_prevents_injected_scripts_from_running() {
    let Some(browser) = browser("the policy of report.html") else { return };
    let html = page(1, 2).to_html().unwrap();
    let script = "<script>document.title = 'taken'</script></body>";
    let with_script = |html: &str| loaded(browser, &html.replace("</body>", script), &[]);
    assert!(with_script(&html).contains("<title>node_classification on sbm</title>"));
    // Without the policy the script runs, so the test can detect it.
    assert!(with_script(&html.replace(POLICY, "")).contains("<title>taken</title>"));
}
