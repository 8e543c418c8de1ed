//! The job itself.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::time::Instant;

use accelerate::Accelerator;
use accelerate::nn::Factory;
use accelerate::parallel::Pipelined;
use accelerate_models::PretrainedModel;
use accelerate_models::decoder::{CausalLmInput, CausalLmOutput};
use accelerate_models::generation::GenerativeModel;
use accelerate_models::gpt2::GPT2LMHeadModel;
use accelerate_models::llama::LlamaForCausalLM;
use accelerate_models::pretrained::{ConfigFile, ModelType, pipeline_from_folder};
use serde_json::json;
use tch::Kind;

use crate::arguments::Arguments;
use crate::batch::Batch;

type BoxError = Box<dyn std::error::Error>;

/// Runs the model as the arguments say.
pub(crate) fn run(arguments: &Arguments) -> Result<(), BoxError> {
    start_log();
    let accelerator = Accelerator::new()?;
    let folder = arguments.model.fetch_together(accelerator.state())?;
    match ConfigFile::read(&folder)?.kind()? {
        ModelType::Gpt2 => run_model::<GPT2LMHeadModel>(&accelerator, &folder, arguments),
        ModelType::Llama => run_model::<LlamaForCausalLM>(&accelerator, &folder, arguments),
        other => Err(format!(
            "`{}` holds a model of the kind `{}`: expected `gpt2` or `llama`",
            folder.display(),
            other.as_str()
        )
        .into()),
    }
}

fn run_model<M>(
    accelerator: &Accelerator,
    folder: &Path,
    arguments: &Arguments,
) -> Result<(), BoxError>
where
    M: PretrainedModel
        + GenerativeModel
        + Pipelined<Input = CausalLmInput, Output = CausalLmOutput>,
{
    let factory = Factory::new(accelerator.device(), Kind::Float);
    let model = pipeline_from_folder::<M>(accelerator, folder, &factory, &arguments.options())?;
    let profile = model.model().generation_profile();
    let batch = Batch::new(arguments, folder, &profile)?;

    accelerator.wait_for_everyone()?;
    let start = Instant::now();
    let mut logits = None;
    for _ in 0..arguments.rounds.get() {
        // Only the first rank's input is used, and only the last rank has an output.
        logits = model.call(batch.input()?)?.map(|output| output.logits);
    }
    accelerator.wait_for_everyone()?;
    let seconds = start.elapsed().as_secs_f64();

    let mut next = match logits {
        Some(logits) => Vec::<i64>::try_from(logits.f_argmax(-1, false)?.f_view([-1])?)?,
        None => Vec::new(),
    };
    accelerator.broadcast_object_list(&mut next, accelerator.num_processes() - 1)?;
    let rows = batch.rows() * arguments.rounds.get() as i64;
    if arguments.json {
        accelerator.print(json!({
            "processes": accelerator.num_processes(),
            "seconds": seconds,
            "rows_per_second": rows as f64 / seconds,
            "next_tokens_sum": next.iter().sum::<i64>(),
        }));
        return Ok(());
    }
    for line in batch.lines(&next)? {
        accelerator.print(line);
    }
    let points = model.split_points();
    let cut = if points.is_empty() {
        "nowhere".to_owned()
    } else {
        format!("before {}", points.join(", "))
    };
    accelerator.print(format!(
        "cut {cut}; {rows} rows on {} processes in {seconds:.1} s",
        accelerator.num_processes(),
    ));
    Ok(())
}

/// Warnings of the library go to standard error.
fn start_log() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .without_time()
        .init();
}
