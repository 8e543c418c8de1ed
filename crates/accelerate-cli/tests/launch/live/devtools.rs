//! A real browser without a window, driven through a pair of pipes.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustix::fs::{FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::launcher::DEADLINE;

const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A browser with one page.
pub(super) struct Browser {
    child: Child,
    orders: File,
    answers: BufReader<File>,
    next: u64,
    session: String,
    /// What went wrong on the page.
    pub(super) complaints: Vec<String>,
}

/// The browser of this machine, if it has one.
pub(super) fn installed() -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut places =
        env::split_paths(&folders).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    places.find(|path| path.is_file())
}

impl Browser {
    /// Starts the browser `program`, which keeps its own files in `folder`.
    pub(super) fn start(program: &Path, folder: &Path) -> Self {
        let [orders, answers] = ["orders", "answers"].map(|name| folder.join(name));
        for pipe in [&orders, &answers] {
            mknodat(
                rustix::fs::CWD,
                pipe,
                FileType::Fifo,
                Mode::RUSR | Mode::WUSR,
                0,
            )
            .unwrap();
        }
        // The browser takes orders on descriptor 3 and answers on 4.
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<\"$ORDERS\" 4>\"$ANSWERS\""])
            .arg(program)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
            ])
            .args([
                "--no-first-run",
                "--disable-extensions",
                "--remote-debugging-pipe",
            ])
            .arg(format!(
                "--user-data-dir={}",
                folder.join("profile").display()
            ))
            .arg("--window-size=1400,1000")
            .arg("about:blank")
            .env("ORDERS", &orders)
            .env("ANSWERS", &answers)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let orders = OpenOptions::new().write(true).open(orders).unwrap();
        let answers = BufReader::new(File::open(answers).unwrap());
        let mut browser = Self {
            child,
            orders,
            answers,
            next: 0,
            session: String::new(),
            complaints: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        let size = json!({"width": 1400, "height": 1000, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", size);
        let downloads = json!({"behavior": "allow", "downloadPath": folder.join("downloads")});
        browser.call("Browser.setDownloadBehavior", downloads);
        browser
    }

    /// Gives an order and waits for its answer.
    pub(super) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut order = json!({"id": self.next, "method": method});
        order["params"] = parameters;
        let is_of_page = !method.starts_with("Target.") && !method.starts_with("Browser.");
        if !self.session.is_empty() && is_of_page {
            order["sessionId"] = json!(self.session);
        }
        self.orders
            .write_all(format!("{order}\0").as_bytes())
            .unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == self.next {
                assert_eq!(answer["error"], Value::Null, "{method}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn receive(&mut self) -> Value {
        let mut text = Vec::new();
        self.answers.read_until(0, &mut text).unwrap();
        assert_eq!(text.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&text).unwrap()
    }

    fn note(&mut self, event: &Value) {
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => &event["params"]["exceptionDetails"],
            Some("Log.entryAdded") if event["params"]["entry"]["level"] == "error" => {
                &event["params"]["entry"]
            }
            _ => return,
        };
        self.complaints.push(complaint.to_string());
    }

    pub(super) fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({"url": address}));
    }

    /// The value of an expression on the page; of a promise, what it comes to.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let order = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", order);
        assert_eq!(answer["exceptionDetails"], Value::Null, "{expression}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub(super) fn wait_for(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.evaluate(expression) != true {
            let is_late = begin.elapsed() > DEADLINE;
            let page = match is_late {
                true => self.evaluate("document.body.innerText"),
                false => Value::Null,
            };
            let complaints = &self.complaints;
            assert!(
                !is_late,
                "waited in vain for {expression}; {complaints:?}\n{page}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses the mouse at one place of an element and lets go at another; both are shares of its
    /// width.
    pub(super) fn drag(&mut self, selector: &str, from: f64, to: f64) {
        let place = format!(
            "(() => {{ const node = document.querySelector('{selector}'); \
             node.scrollIntoView({{block: 'center'}}); const box = node.getBoundingClientRect(); \
             return [box.left, box.width, box.top + box.height / 2]; }})()"
        );
        let place = self.evaluate(&place);
        let number = |at: usize| place[at].as_f64().unwrap();
        let at = |share: f64| number(0) + share * number(1);
        let y = number(2);
        for (kind, x, buttons) in [
            ("mouseMoved", at(from), 0),
            ("mousePressed", at(from), 1),
            ("mouseMoved", at((from + to) / 2.0), 1),
            ("mouseMoved", at(to), 1),
            ("mouseReleased", at(to), 0),
        ] {
            let order = json!({
                "type": kind, "x": x, "y": y, "button": if kind == "mouseMoved" { "none" } else { "left" },
                "buttons": buttons, "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", order);
        }
    }

    pub(super) fn press(&mut self, key: &str) {
        for kind in ["rawKeyDown", "keyUp"] {
            self.call(
                "Input.dispatchKeyEvent",
                json!({"type": kind, "key": key, "code": key}),
            );
        }
    }

    /// Writes what is on the page into a PNG.
    pub(super) fn picture(&mut self, path: &Path) {
        let answer = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let bytes = STANDARD.decode(answer["data"].as_str().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
