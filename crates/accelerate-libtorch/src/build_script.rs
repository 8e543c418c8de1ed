//! What a build script tells cargo.

use std::env;
use std::io::{self, Write};

use super::locate::Libtorch;
use super::settings::VARIABLES;

impl Libtorch {
    /// Prints what the build script of a crate with binaries, tests or examples has to tell cargo:
    /// the folder in which they look for libtorch when they run, and when to ask again.
    ///
    /// Where libtorch has CUDA its CUDA library is linked although no symbol of it is used: its
    /// kernels register themselves when it is loaded.
    ///
    /// Cargo no longer watches the crate's own files once a script prints such a line; a script
    /// that compiles some of them names them itself.
    pub fn emit_link_args(&self) {
        emit_rerun();
        let lib = self.lib_dir.display();
        instruct(&format!("rustc-link-arg=-Wl,-rpath,{lib}"));
        if self.cuda && self.settings.target.has_elf() {
            instruct(&format!("rustc-link-arg=-L{lib}"));
            for arg in ["-Wl,--no-as-needed", "-ltorch_cuda", "-Wl,--as-needed"] {
                instruct(&format!("rustc-link-arg={arg}"));
            }
        }
    }
}

/// Prints the lines that make cargo run the build script again when libtorch may have moved.
pub fn emit_rerun() {
    for variable in VARIABLES {
        instruct(&format!("rerun-if-env-changed={variable}"));
    }
    // Changes with every activated environment, and decides only then.
    if env::var_os("LIBTORCH_USE_PYTORCH").is_some() {
        instruct("rerun-if-env-changed=VIRTUAL_ENV");
    }
}

/// Gives cargo one instruction. Where nobody reads them there is nobody to tell.
fn instruct(instruction: &str) {
    let _ = writeln!(io::stdout(), "cargo:{instruction}");
}
