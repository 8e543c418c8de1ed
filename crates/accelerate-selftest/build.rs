//! Tells cargo where the program finds libtorch when it runs, and the program which one that is.

use std::io::{self, Write as _};

use accelerate_libtorch::{Error, Libtorch};

fn main() -> Result<(), Error> {
    let libtorch = Libtorch::locate()?.check()?;
    let version = libtorch
        .version
        .as_ref()
        .map_or_else(|| "of an unknown version".to_owned(), ToString::to_string);
    // Nobody is left to be told if cargo does not listen.
    let _ = writeln!(
        io::stdout(),
        "cargo:rustc-env=SELFTEST_LIBTORCH_VERSION={version}"
    );
    libtorch.emit_link_args();
    Ok(())
}
