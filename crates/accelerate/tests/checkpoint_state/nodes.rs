//! Machines without a common file system.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use accelerate::checkpoint::{
    LoadOptions, Manifest, ProjectConfiguration, SaveModelOptions, SaveStateOptions,
    load_checkpoint_in_model,
};
use accelerate_testkit::start_ranks;

use crate::background::names;
use crate::job::{Job, Setup};

const FOLDER: &str = "ACCELERATE_NODE_FOLDER";

/// The part that runs as a rank that is alone on its machine.
#[test]
fn rank_on_its_own_node() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let mut project = ProjectConfiguration::automatic(&folder);
    project.save_on_each_node = true;
    let mut job = Job::with_project(project, Setup::default()).unwrap();
    let rank = job.accelerator.process_index();
    assert!(job.accelerator.is_local_main_process());
    job.train(1).unwrap();
    let weights = job.weights();
    let saved = job.accelerator.save_state(None).unwrap();
    let manifest = Manifest::read(&saved).unwrap();
    let files: Vec<&str> = manifest.files.iter().map(|one| one.name.as_str()).collect();
    let random = format!("random_states_{rank}.pkl");
    assert!(files.contains(&"model.safetensors") && files.contains(&random.as_str()));
    assert_eq!(manifest.num_processes, 2);
    let other = format!("random_states_{}.pkl", 1 - rank);
    assert!(!files.contains(&other.as_str()), "{files:?}");

    job.train(1).unwrap();
    let second = job
        .accelerator
        .save_state_in_background(None, SaveStateOptions::default())
        .unwrap();
    let second = second.wait().unwrap();
    // The newest is whole on one machine only: both take the one before.
    if rank == 1 {
        std::fs::write(second.join("model.safetensors"), "junk").unwrap();
    }
    let loaded = job.accelerator.load_state(None).unwrap();
    assert_eq!(loaded.path, saved);
    assert_eq!(loaded.skipped.len(), rank);
    assert_eq!(job.weights(), weights);

    let model = folder.join("model");
    let options = SaveModelOptions::default();
    let written = job
        .accelerator
        .save_model(&*job.model, &model, &options)
        .unwrap();
    assert_eq!(written, [model.join("model.safetensors")]);
    load_checkpoint_in_model(&*job.model, &model, &LoadOptions::strict()).unwrap();
    job.accelerator.end_training().unwrap();
}

#[test]
fn each_machine_has_what_its_ranks_need() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = start_ranks(2, Duration::from_secs(60), |rank| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "nodes::rank_on_its_own_node", "--nocapture"])
            .envs(rank.environment())
            .env("LOCAL_RANK", "0")
            .env("LOCAL_WORLD_SIZE", "1")
            .env(FOLDER, folder.path().join(rank.index().to_string()));
        command
    });
    for output in outputs.unwrap() {
        let fine = output.status.is_some_and(|status| status.success());
        assert!(fine, "{}", output.text);
    }
    assert_eq!(names(folder.path()), ["0", "1"]);
}
