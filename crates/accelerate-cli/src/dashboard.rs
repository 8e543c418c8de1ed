//! `accelerate dashboard`: a page on this machine that shows runs and compares them.
//!
//! [`server`] answers with the files of [`page`], which are part of the binary, and with what [`api`]
//! reads from the folders of the runs. It only reads, and it listens on this machine alone unless
//! told otherwise.

mod api;
mod curves;
mod error;
mod events;
mod hosts;
mod page;
mod request;
mod response;
mod server;

use std::{
    fs,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;

use self::{
    api::Api,
    error::{DashboardError, Result},
    server::Server,
};
use crate::{report, runs};

/// What was typed after `accelerate dashboard`.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct DashboardArgs {
    /// Folder below which programs write their runs (their `logging_dir`); without it `runs`, or
    /// else this folder
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,

    /// Address to listen at: everybody who can reach it can read the runs
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    host: String,

    /// Port to listen at; 0 is any free one
    #[arg(long, default_value_t = 8686, value_name = "PORT")]
    port: u16,
}

const AFTER_HELP: &str = "\
The address of the page is printed to standard output. Ctrl-C ends it. Nothing is written, and the
page fetches nothing from elsewhere.

From another machine, forward the port: `ssh -L 8686:localhost:8686 MACHINE`.

For programs (GET, JSON):
  /api/runs                            all runs with their settings and metrics
  /api/curves?metric=NAME&run=ID...    points of a metric: &points=N at most, &across=step|time,
                                       &from=X&to=Y
  /api/curves.csv?metric=NAME&run=ID.. every point, as CSV
  /api/ranks?run=ID                    averages of the last steps of each rank
  /api/log?run=ID                      the end of the log, and why the run failed
  /api/events                          server-sent events: `change` when there is something new";

/// Serves the page until the process is ended.
///
/// # Errors
/// If the folder cannot be read or the address cannot be had.
pub(crate) fn run(args: &DashboardArgs) -> Result<ExitCode> {
    let folder = args.folder.clone().unwrap_or_else(runs::usual_root);
    let whole = fs::canonicalize(&folder).and_then(|whole| fs::read_dir(&whole).map(|_| whole));
    let root = whole.map_err(|source| DashboardError::Folder {
        path: folder,
        source,
    })?;
    let refused = |source| DashboardError::Listen {
        host: args.host.clone(),
        port: args.port,
        source,
    };
    let server = Server::bind(&args.host, args.port, Api::new(root)).map_err(refused)?;
    let address = server.address().map_err(refused)?;
    if !address.ip().is_loopback() {
        let whom = "everybody who can reach this address can read the runs, their settings and \
                    logs";
        report::note(whom, &[]);
    }
    tell(address);
    match server.serve() {
        Ok(never) => match never {},
        Err(source) => Err(DashboardError::Serve { source }),
    }
}

/// Says where the page is.
fn tell(address: SocketAddr) {
    let shown = match address.ip().is_unspecified() {
        true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        false => address,
    };
    let mut out = io::stdout().lock();
    // The page is there all the same if nobody reads its address.
    let _ = writeln!(out, "http://{shown}/").and_then(|()| out.flush());
}
