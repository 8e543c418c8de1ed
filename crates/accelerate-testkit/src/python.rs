use std::env;
use std::path::PathBuf;

/// The Python interpreter with PyTorch to compare with, where `cargo xtask parity` gives one.
///
/// Without it the test says so on standard error and is to return at once.
#[must_use]
pub fn parity_python(test: &str) -> Option<PathBuf> {
    let python = env::var_os("ACCELERATE_PARITY_PYTHON").map(PathBuf::from);
    if python.is_none() {
        #[expect(clippy::print_stderr, reason = "a skipped test says why")]
        {
            eprintln!("skipped {test}: it needs Python's torch; `cargo xtask parity` runs it");
        }
    }
    python
}
