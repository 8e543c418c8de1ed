//! Trains a ResNet to tell images apart, with every feature as a flag. `cv` is the short form.
//!
//! ```text
//! accelerate launch --cpu --num_processes 2 complete_cv --crop 0.6 --clip-norm 1 --curves curves.svg
//! complete_cv --data FOLDER --flip --crop 0.3 --pretrained WEIGHTS --freeze    # a folder of images
//! complete_cv --mixed-precision bf16 --gradient-accumulation-steps 4           # 1 process
//! ```

#![forbid(unsafe_code)]

mod arguments;
mod history;
mod training;

use std::process::ExitCode;

use accelerate_examples::failure::exit_code;
use clap::Parser;

fn main() -> ExitCode {
    exit_code(training::run(&arguments::Arguments::parse()))
}
