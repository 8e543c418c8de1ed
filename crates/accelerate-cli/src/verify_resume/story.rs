//! How a comparison is told: on standard output, a line for each thing.

use std::io::{self, Write as _};

use super::compare::{Difference, Tolerance};

/// What is compared on one number of processes.
pub(super) const BIT_FOR_BIT: &str =
    "samples, random draws, losses, weights and optimizers, bit for bit";

/// How many steps that differ are told one by one.
const TOLD: usize = 8;

/// What is compared on two numbers of processes.
pub(super) fn of_other_processes(losses: Tolerance) -> String {
    match losses {
        Tolerance::NotCompared => "the order of the samples (losses were not compared)".to_owned(),
        Tolerance::Relative(share) => {
            format!("the order of the samples, and the losses within {share:e} of their size")
        }
    }
}

/// Nobody is left to be told if printing fails.
pub(super) fn tell(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

pub(super) fn processes(count: usize) -> String {
    match count {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    }
}

/// The first difference, and a line for each of the steps that follow.
pub(super) fn differences(found: &[Difference], compared: usize) -> String {
    let mut text = String::new();
    for difference in found.iter().take(TOLD) {
        text += &format!("{difference}\n");
    }
    if found.len() > TOLD {
        text += &format!("and {} more steps\n", found.len() - TOLD);
    }
    match found.len() {
        0 => {}
        count => text += &format!("{count} of {compared} steps differ\n"),
    }
    text
}
