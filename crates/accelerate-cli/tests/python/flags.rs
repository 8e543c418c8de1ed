//! Every option of the original's `accelerate launch` is one of ours.

use accelerate_testkit::parity_python;
use serde_json::Value;

use crate::{original::ask, ours::Home};

/// How an option that exists is recognised without starting anything.
fn what_is_wrong(home: &Home, name: &str, takes_value: bool) -> Option<String> {
    let (arguments, expected) = match (takes_value, name.starts_with("--")) {
        (true, _) => (vec!["launch", name], "a value is required for"),
        (false, true) => {
            let with_value = format!("{name}=x");
            let done = home.run(&["launch", &with_value]);
            let found = done.stderr.contains("unexpected value 'x'");
            return (!found).then_some(done.stderr);
        }
        (false, false) => (
            vec!["launch", name, "--nothing"],
            "unexpected argument '--nothing'",
        ),
    };
    // Help is an answer too.
    let done = home.run(&arguments);
    let found = done.stderr.contains(expected) || done.stdout.contains("Usage:");
    (!found).then_some(done.stderr)
}

#[test]
fn parity_every_option_is_ours() {
    let Some(python) = parity_python("parity_every_option_is_ours") else {
        return;
    };
    let home = Home::new();
    let mut wrong = Vec::new();
    let options = ask(&python, "flags", &Value::Null);
    let options = options.as_array().unwrap();
    assert!(options.len() > 100, "{}", options.len());
    for option in options {
        let names: Vec<_> = option["names"].as_array().unwrap().iter().collect();
        let names: Vec<_> = names
            .into_iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        let takes_value = option["takes_value"].as_bool().unwrap();
        for name in &names {
            if let Some(error) = what_is_wrong(&home, name, takes_value) {
                wrong.push(format!("{name} (takes a value: {takes_value}): {error}"));
            }
        }
        for choice in option["choices"].as_array().into_iter().flatten() {
            let choice = choice.as_str().unwrap();
            let long = names.iter().find(|name| name.starts_with("--")).unwrap();
            let done = home.run(&["launch", "--cpu", "--dry_run", long, choice, "true"]);
            if done.code != Some(0) {
                wrong.push(format!("{long} {choice}: {}", done.stderr));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
