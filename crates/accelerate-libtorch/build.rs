//! With the feature `enforce`, stops the build at once when libtorch does not fit.

#[cfg(feature = "enforce")]
#[path = "src/lib.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "the library's own source, of which this script needs two functions"
)]
mod accelerate_libtorch;

#[cfg(feature = "enforce")]
fn main() -> Result<(), accelerate_libtorch::Error> {
    accelerate_libtorch::emit_rerun();
    accelerate_libtorch::Libtorch::locate()?.check()?;
    Ok(())
}

#[cfg(not(feature = "enforce"))]
fn main() {}
