//! Tells cargo where tests and examples find libtorch when they run.

use accelerate_libtorch::{Error, Libtorch};

fn main() -> Result<(), Error> {
    Libtorch::locate()?.check()?.emit_link_args();
    Ok(())
}
