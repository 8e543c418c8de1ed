//! What is said to the person at the terminal: on stderr, in one shape.

use std::{
    error::Error as StdError,
    ffi::OsStr,
    fmt::Write as _,
    io::{self, Write as _},
    sync::{Mutex, PoisonError},
};

use accelerate_plan::Hint;

/// Words as a shell reads them back.
pub(crate) fn command<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> String {
    let quoted = words.into_iter().map(|word| {
        let word = word.to_string_lossy();
        match shlex::try_quote(&word) {
            Ok(quoted) => quoted.into_owned(),
            Err(_) => word.into_owned(),
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Shows an error, its causes and its hint.
pub(crate) fn error<E: StdError + Hint>(error: &E) {
    let mut text = format!("error: {error}\n");
    let mut cause = error.source();
    while let Some(source) = cause {
        text += &format!("  caused by: {source}\n");
        cause = source.source();
    }
    if let Some(hint) = error.hint() {
        text += &format!("\nhint: {hint}\n");
    }
    say(&text);
}

/// Shows something worth knowing, with details on lines of their own.
pub(crate) fn note(headline: &str, details: &[String]) {
    let mut text = format!("note: {headline}\n");
    for detail in details {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "\t{detail}");
    }
    say(&text);
}

/// What waits while a view has the terminal that stderr leads to. There is one stderr.
static HELD: Mutex<Option<String>> = Mutex::new(None);

/// Writes text to stderr in one piece. Nobody is left to be told if that fails.
pub(crate) fn say(text: &str) {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    match held.as_mut() {
        Some(held) => held.push_str(text),
        None => {
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
    }
}

/// From here on keeps what is said, until it is released.
pub(crate) fn hold() {
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.get_or_insert_default();
}

/// The last line that is kept, if something is.
pub(crate) fn last_held() -> Option<String> {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    held.as_ref()?.lines().last().map(str::to_owned)
}

/// Says what was kept, and keeps no more.
pub(crate) fn release() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(text) = held {
        say(&text);
    }
}
