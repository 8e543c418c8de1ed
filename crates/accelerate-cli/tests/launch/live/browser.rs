//! The page in a real browser: what a person sees and does.

use std::{env, fs, path::Path};

use serde_json::json;

use super::{
    devtools::{Browser, installed},
    http::Served,
    written::Written,
};
use crate::launcher::wait_until;

/// Set by `cargo xtask parity`, which runs what takes other programs.
const PARITY: &str = "ACCELERATE_PARITY_PYTHON";

#[test]
fn parity_a_browser_compares_runs_follows_zooms_and_exports() {
    let name = "the test of the page in a browser";
    let Some(program) = installed() else {
        eprintln!("skipped {name}: chromium is not installed on this machine");
        return;
    };
    if env::var_os(PARITY).is_none() {
        eprintln!("skipped {name}: `cargo xtask parity` runs it");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("runs");
    let mut first = Written::new(&root, 2, &[("lr", 0.1), ("batch", 8.0)]);
    first.losses(0..500);
    let first_id = first.id();
    fs::write(first.folder().join("log.txt"), "Traceback: broken\n").unwrap();
    first.finish(Some("out of memory"));
    let mut second = Written::new(&root, 2, &[("lr", 0.2), ("batch", 8.0)]);
    second.losses(0..300);
    for step in 0..20 {
        second.rank(0, step, 0.2);
        second.rank(1, step, 0.45);
    }
    let served = Served::of(&root);
    let mut browser = Browser::start(&program, folder.path());
    browser.open(&format!("http://{}/", served.address));

    // Both runs, one chart for each metric.
    browser
        .wait_for("document.querySelectorAll('figure[data-metric=loss] path.curve').length === 2");
    assert_eq!(
        browser.evaluate("document.querySelectorAll('#charts figure').length"),
        2
    );
    browser.wait_for("document.getElementById('connection').textContent === 'Live'");

    // What comes is shown without a reload.
    second.losses(300..400);
    second.log(400, &[("loss", 0.777), ("lr", 1e-3)]);
    browser.wait_for(
        "document.querySelector('figure[data-metric=loss] .readout').textContent.includes('0.777')",
    );
    let first_step = |browser: &mut Browser| {
        let label = browser.evaluate(
            "document.querySelector('figure[data-metric=loss] svg[role=application]').ariaLabel",
        );
        label.as_str().unwrap_or_default().to_owned()
    };

    // Zoom by mouse, and back by key.
    browser.drag("figure[data-metric=loss] svg[role=application]", 0.4, 0.6);
    browser.wait_for("/from step 1\\d\\d to step 2\\d\\d/.test(document.querySelector('figure[data-metric=loss] svg[role=application]').ariaLabel)");
    browser.evaluate(
        "document.querySelector('figure[data-metric=loss] svg[role=application]').focus()",
    );
    browser.press("0");
    browser.wait_for("!document.querySelector('figure[data-metric=loss] svg[role=application]').ariaLabel.includes('from step')");
    browser.press("ArrowRight");
    browser.wait_for("document.getElementById('announcement').textContent.includes('step 2')");
    assert!(
        first_step(&mut browser).starts_with("loss of 2 runs. Last: "),
        "{}",
        first_step(&mut browser)
    );

    // Smoothing leaves the raw curve faintly behind.
    browser.evaluate("(() => { const range = document.getElementById('smoothing'); range.value = 0.6; range.dispatchEvent(new Event('input')); })()");
    browser.wait_for("document.querySelectorAll('figure[data-metric=loss] path.raw').length === 2");
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR"));
    browser.picture(&pictures.join("dashboard-light.png"));
    let dark = json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.call("Emulation.setEmulatedMedia", dark);
    browser.picture(&pictures.join("dashboard-dark.png"));
    eprintln!("pictures of the page lie in {}", pictures.display());

    exports(&mut browser, folder.path());
    other_panels(&mut browser, &first_id, pictures);
    assert!(browser.complaints.is_empty(), "{:?}", browser.complaints);
}

fn exports(browser: &mut Browser, folder: &Path) {
    browser.evaluate(
        "window.saved = []; const make = URL.createObjectURL; \
         URL.createObjectURL = (blob) => { blob.text().then((text) => saved.push(text)); return make.call(URL, blob); }",
    );
    browser.evaluate(
        "document.querySelector('figure[data-metric=loss] [aria-label^=\"Save as SVG\"]').click()",
    );
    browser.wait_for("saved.length === 1");
    let fault = "new DOMParser().parseFromString(saved[0], 'image/svg+xml').querySelector('parsererror')?.textContent ?? ''";
    assert_eq!(browser.evaluate(fault), "");
    let svg = browser.evaluate("saved[0]");
    let svg = svg.as_str().unwrap();
    assert!(
        svg.matches("<path").count() == 4 && !svg.contains("var("),
        "{svg}"
    );
    browser.evaluate(
        "document.querySelector('figure[data-metric=loss] [aria-label*=\"CSV\"]').click()",
    );
    let path = folder.join("downloads/curves.csv");
    wait_until("the CSV", || {
        fs::read_to_string(&path).is_ok_and(|text| text.lines().count() == 902)
    });
}

fn other_panels(browser: &mut Browser, failed: &str, pictures: &Path) {
    browser.evaluate("document.getElementById('tab-curves').focus()");
    browser.press("ArrowRight");
    browser.wait_for("document.querySelectorAll('#settings tr.differs').length === 1");
    assert_eq!(
        browser
            .evaluate("document.querySelector('#settings tr.differs th').innerText.includes('lr')"),
        true
    );
    browser.press("ArrowRight");
    browser.wait_for("document.querySelectorAll('#ranks tbody tr').length === 2 || document.getElementById('no-ranks').textContent !== ''");
    let choose = "(() => { const select = document.getElementById('ranks-run'); select.selectedIndex = 0; select.dispatchEvent(new Event('change')); })()";
    browser.evaluate(choose);
    browser.wait_for("document.querySelectorAll('#ranks tr.differs').length === 1");
    browser.picture(&pictures.join("dashboard-ranks.png"));
    browser.press("ArrowRight");
    browser.wait_for("document.getElementById('log').textContent.includes('Traceback: broken')");
    assert_eq!(
        browser.evaluate("document.getElementById('log-run').value"),
        failed
    );
    assert_eq!(
        browser.evaluate("document.getElementById('failure').textContent"),
        "Failed: out of memory"
    );
    browser.picture(&pictures.join("dashboard-log.png"));
}
