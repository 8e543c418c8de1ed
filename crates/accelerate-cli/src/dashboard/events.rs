//! A stream that says when the folder holds something new.

use std::{
    io::{self, Write},
    thread,
    time::{Duration, Instant},
};

use super::{api::Api, response};

/// How often the folder is looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// How often something is said when nothing has changed, so that a client that has gone is noticed.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// Tells of changes until the client has gone.
///
/// # Errors
/// When it has.
pub(super) fn stream(api: &Api, out: &mut impl Write) -> io::Result<()> {
    response::begin_stream(out)?;
    let mut seen = api.runs().version();
    let mut said = Instant::now();
    say(out, "retry: 1000\n\n")?;
    loop {
        thread::sleep(INTERVAL);
        let now = api.runs().version();
        if now != seen {
            seen = now;
            said = Instant::now();
            say(out, &format!("event: change\ndata: {now}\n\n"))?;
        } else if said.elapsed() >= SIGN_OF_LIFE {
            said = Instant::now();
            say(out, ": nothing new\n\n")?;
        }
    }
}

fn say(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}
