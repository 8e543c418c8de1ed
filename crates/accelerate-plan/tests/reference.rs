//! The pages that are made from the tables are those in `docs/reference`.
#![expect(clippy::unwrap_used, reason = "a broken expectation fails the test")]

use std::{env, fs, path::Path};

use accelerate_plan::{env::reference_page as variables, settings::reference_page as settings};

/// Set to rewrite the pages.
const REWRITE: &str = "ACCELERATE_REWRITE_REFERENCE";

fn check(name: &str, head: &str, page: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let path = folder.join(name);
    let expected = format!("{head}\n{page}");
    if env::var_os(REWRITE).is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/reference/{name} is not what the table says: run `{REWRITE}=1 cargo test \
         --package accelerate-plan --test reference`"
    );
}

#[test]
fn the_page_of_settings_is_current() {
    let head = "# Settings of a launch\n\nMade from the table in `accelerate-plan`. A setting is \
                given by flag, by variable or in a config file; `accelerate config show` says \
                which value is in force and where it comes from.\n";
    check("settings.md", head, settings().trim_start());
}

#[test]
fn the_page_of_variables_is_current() {
    let head = "# Environment variables\n\nMade from the table in `accelerate-plan`: what a \
                launcher tells its processes, what it reads, and what users may set.\n";
    check("environment.md", head, &variables());
}
