//! The shortest program of several processes: every rank brings a number and gets the sum.
//!
//! ```text
//! accelerate launch --cpu --num_processes 2 first_all_reduce
//! ```

#![forbid(unsafe_code)]

use accelerate::collectives::Reduction;
use accelerate::tch::Tensor;
use accelerate::{Accelerator, Result};

#[expect(clippy::print_stdout, reason = "every rank tells what it got")]
fn main() -> Result<()> {
    let accelerator = Accelerator::new()?;
    let mine = Tensor::from(accelerator.process_index() as i64 + 1);
    let sum = accelerator
        .reduce(&mine, Reduction::Sum)?
        .f_int64_value(&[])?;
    println!(
        "rank {} of {}: {sum}",
        accelerator.process_index(),
        accelerator.num_processes()
    );
    Ok(())
}
