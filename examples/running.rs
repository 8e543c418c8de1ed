//! What a program is told about its run, beside what it computes.

use std::path::PathBuf;

use accelerate::checkpoint::ProjectConfiguration;
use accelerate::{Accelerator, DataLoaderConfiguration, Result};
use clap::Args;

/// How a program runs that can be ended early and go on later.
#[derive(Debug, Clone, Args)]
pub struct Running {
    /// Folder for checkpoints: there the job saves where it stands when it is asked to end, and goes
    /// on from there when it is started again.
    #[arg(long, value_name = "FOLDER")]
    pub project_dir: Option<PathBuf>,
    /// Take the batch size as that of all processes together: the job can then go on with another
    /// number of them and makes the same steps.
    #[arg(long)]
    pub split_batches: bool,
    /// Compute in float16 on a CPU too, where `--mixed_precision fp16` of the launcher means float32.
    #[arg(long)]
    pub fp16_on_cpu: bool,
    /// Print what the job is, and how its model is spread over the processes.
    #[arg(long)]
    pub show_state: bool,
}

impl Running {
    /// An accelerator that saves, with everything else, where its loaders stand.
    pub fn accelerator(&self) -> Result<Accelerator> {
        let mut builder = Accelerator::builder()
            .fp16_on_cpu(self.fp16_on_cpu)
            .dataloader_config(DataLoaderConfiguration {
                use_stateful_dataloader: true,
                split_batches: self.split_batches,
                ..DataLoaderConfiguration::default()
            });
        if let Some(folder) = &self.project_dir {
            builder = builder.project_config(ProjectConfiguration::automatic(folder));
        }
        let accelerator = builder.build()?;
        if self.show_state {
            accelerator.print(&accelerator);
        }
        Ok(accelerator)
    }

    /// Prints what became of it when things were prepared, where that is asked for.
    pub fn tell(&self, accelerator: &Accelerator) {
        let Some(plan) = accelerator.parallel_plan().filter(|_| self.show_state) else {
            return;
        };
        accelerator.print(plan);
        if let Some(config) = accelerator.deepspeed_config() {
            accelerator.print(format!("settled ds_config: {config}"));
        }
    }
}
