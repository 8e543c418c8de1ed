//! `accelerate verify-resume` on the examples, and on programs that forget something.

use std::path::PathBuf;

use accelerate::checkpoint::ProjectConfiguration;
use accelerate::data::DataLoader;
use accelerate::nn::{Dropout, Factory, Forward as _, Linear, Module as _};
use accelerate::optim::{Optimizer as _, Sgd, SgdConfig};
use accelerate::tch::{self, Kind, Tensor};
use accelerate::{Accelerator, DataLoaderConfiguration};

use crate::process::Done;
use crate::workplace::{Workplace, nlp};

/// Which part of its state the program of [`small_program`] forgets.
const FORGETS: &str = "VERIFIED_PROGRAM_FORGETS";

/// The words after `accelerate verify-resume`.
fn verify(place: &Workplace, forgets: &str, words: &[&str]) -> Done {
    place
        .verify_resume()
        .env(FORGETS, forgets)
        .args(words)
        .run()
}

fn said(words: &str) -> Vec<&str> {
    words.split_whitespace().collect()
}

#[test]
fn nlp_goes_on_bit_for_bit_in_half_precision_with_accumulation_on_two_processes() {
    let place = Workplace::new();
    let job = place.small_job();
    let mut words =
        said("--cpu --num_processes 2 --mixed_precision fp16 --gradient_accumulation_steps 2 --");
    words.push(nlp().to_str().unwrap());
    words.extend(job.iter().map(String::as_str));
    words.extend(said(
        "--epochs 2 --held-out 40 --fp16-on-cpu --project-dir {project_dir}",
    ));
    let done = verify(&place, "", &words);
    done.assert_code(0);
    // 20 samples: 3 batches of each rank in an epoch, of which the first two and the last are steps.
    assert!(
        done.stdout.contains("left behind step 3 of 4, in epoch 2"),
        "{done:#?}"
    );
    assert!(
        done.stdout.contains("the same in 1 of 1 steps: samples"),
        "{done:#?}"
    );
}

#[test]
fn a_job_whose_launcher_is_asked_to_end_saves_and_leaves() {
    let place = Workplace::new();
    let running = place
        .launch_nlp(2, &[])
        .args(["--epochs", "100000", "--project-dir"])
        .args([place.path("project")])
        .start();
    running.wait_for_stdout("epoch 2:");
    running.ask_to_end();
    let done = running.wait();
    done.assert_code(75);
    done.assert_told(&["note: `nlp` was asked to end: it saved where it stands"]);
    let saved = Workplace::files(&place.path("project/checkpoints"));
    assert_eq!(saved, ["checkpoint_0", "latest"]);
}

/// The words of a small program, a test of this binary that trains where it is told to.
fn small_program() -> Vec<String> {
    let this = std::env::current_exe().unwrap();
    let mut words = vec!["--".to_owned(), this.to_str().unwrap().to_owned()];
    // The test runner takes the last word for names of tests to leave out.
    let rest = "--exact verify_resume::program --test-threads=1 --skip {project_dir}";
    words.extend(said(rest).into_iter().map(str::to_owned));
    words
}

/// A program with dropout, a shuffled loader and an evaluation.
#[test]
fn program() {
    let Ok(forgets) = std::env::var(FORGETS) else {
        return;
    };
    if std::env::var_os("ACCELERATE_RECORD_STEPS").is_none() {
        return;
    }
    let folder = PathBuf::from(std::env::args().next_back().unwrap());
    let accelerator = Accelerator::builder()
        .project_config(ProjectConfiguration::automatic(folder))
        .dataloader_config(DataLoaderConfiguration {
            use_stateful_dataloader: forgets != "position",
            ..DataLoaderConfiguration::default()
        })
        .build()
        .unwrap();
    tch::manual_seed(3);
    train(&accelerator, &forgets).unwrap();
}

fn train(accelerator: &Accelerator, forgets: &str) -> accelerate::Result<()> {
    let model = Linear::new(4, 1, &Factory::default())?;
    let dropout = Dropout::new(if forgets == "dropout" { 0.0 } else { 0.5 })?;
    let weights: Vec<Tensor> = model
        .parameters()
        .iter()
        .map(|parameter| parameter.tensor().shallow_clone())
        .collect();
    let optimizer = Sgd::new(weights, SgdConfig::new(0.05))?;
    let batch_size = 6 / accelerator.num_processes();
    let batches = DataLoader::builder((0..24i64).collect::<Vec<_>>())
        .batch_size(batch_size)
        .shuffle(true)
        .build()?;
    let (model, mut optimizer, batches) = accelerator.prepare((model, optimizer, batches))?;
    let resumed = accelerator.resume()?.is_some();
    if resumed && forgets == "generators" {
        tch::manual_seed(4);
    }
    for _epoch in batches.iteration()..3 {
        for batch in &batches {
            let x = batch?
                .f_to_kind(Kind::Float)?
                .f_div_scalar(24.0)?
                .f_unsqueeze(1)?;
            let powers = Tensor::f_cat(
                &[
                    x.f_ones_like()?,
                    x.shallow_clone(),
                    x.f_square()?,
                    x.f_sin()?,
                ],
                1,
            )?;
            let loss = model
                .call(dropout.call(powers)?)?
                .f_sub(&x)?
                .f_square()?
                .f_mean(Kind::Float)?;
            accelerator.backward(&loss)?;
            optimizer.step()?;
            optimizer.zero_grad()?;
            accelerator.leave_when_asked()?;
        }
    }
    accelerator.end_training()
}

fn verify_small(options: &str, forgets: &str) -> Done {
    let place = Workplace::new();
    let program = small_program();
    let mut words = said(options);
    words.extend(program.iter().map(String::as_str));
    verify(&place, forgets, &words)
}

#[test]
fn three_processes_go_on_as_two_would_have() {
    let done = verify_small(
        "--resume_num_processes 3 --cpu --num_processes 2",
        "dropout",
    );
    done.assert_code(0);
    assert!(
        done.stdout.contains("resumed: 6 steps on 3 processes"),
        "{done:#?}"
    );
    assert!(
        done.stdout
            .contains("the order of the samples, and the losses"),
        "{done:#?}"
    );
}

#[test]
fn a_program_that_does_not_restore_its_generators_is_found_out() {
    let done = verify_small("--stop_at_step 5 --cpu", "generators");
    done.assert_code(1);
    let first = done.stdout.lines().find(|line| line.starts_with("step "));
    let expected = "step 6: random generators before the step: `cpu`; then losses: expected ";
    assert!(first.unwrap().starts_with(expected), "{done:#?}");
    assert!(done.stdout.contains("7 of 7 steps differ"), "{done:#?}");
}

#[test]
fn a_program_that_does_not_restore_its_sampler_is_found_out() {
    let done = verify_small("--stop_at_step 5 --cpu", "position");
    done.assert_code(1);
    let first = done.stdout.lines().find(|line| line.starts_with("step "));
    assert!(
        first.unwrap().starts_with("step 6: samples: expected "),
        "{done:#?}"
    );
}
