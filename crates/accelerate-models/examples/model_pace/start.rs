//! From the start of the program to the first vector of a text.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use accelerate::nn::Factory;
use accelerate_models::sentence::SentenceEncoder;

use super::measures::Measures;

/// When the program was started, in seconds since 1970.
const STARTED: &str = "ACCELERATE_BENCH_T0";

/// MiniLM from its folder.
pub(crate) fn run(measures: &mut Measures) -> Result<(), Box<dyn Error>> {
    let started: f64 = std::env::var(STARTED)
        .map_err(|error| format!("{STARTED}: {error}"))?
        .parse()?;
    let encoder = SentenceEncoder::from_folder(".data/minilm", &Factory::default())?;
    let vector = encoder.encode(&["a warm and funny film"])?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let taken = since.saturating_sub(Duration::from_secs_f64(started));
    measures.time("minilm_start_s", taken.as_secs_f64());
    measures.check("width", vector.size()[1] as f64);
    Ok(())
}
