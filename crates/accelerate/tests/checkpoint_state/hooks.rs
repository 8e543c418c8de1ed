//! What a program does itself before its state is saved or loaded.

use std::cell::RefCell;
use std::rc::Rc;

use accelerate::Error;
use accelerate::checkpoint::{LoadOptions, Manifest, Metadata, Verify, save_weights};
use accelerate_testkit::turn;

use crate::background::names;
use crate::job::{Job, Setup};

#[test]
fn a_hook_takes_a_model_out_and_saves_and_loads_it_itself() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::new(folder.path(), Setup::default()).unwrap();
    let saving = job.accelerator.register_save_state_pre_hook(|saving| {
        let model = saving.models.remove(0);
        assert_eq!((model.index, model.weights.len()), (0, 4));
        let own = saving.output_dir.join("own");
        std::fs::create_dir(&own).map_err(Error::data)?;
        save_weights(
            model.module,
            own.join("net.safetensors"),
            &Metadata::default(),
        )
    });
    job.train(2).unwrap();
    let weights = job.weights();
    let saved = job.accelerator.save_state(None).unwrap();
    assert!(!saved.join("model.safetensors").exists());
    let manifest = Manifest::verify(&saved, Verify::Hashes).unwrap();
    assert!(
        manifest
            .files
            .iter()
            .any(|file| file.name == "own/net.safetensors"),
        "{manifest:?}"
    );

    let error = job.accelerator.load_state(None).unwrap_err();
    assert!(error.to_string().contains("0 models saved"), "{error}");
    let loading = job.accelerator.register_load_state_pre_hook(|loading| {
        let model = loading.models.remove(0);
        accelerate::checkpoint::load_checkpoint_in_model(
            model.module,
            loading.input_dir.join("own/net.safetensors"),
            &LoadOptions::strict(),
        )
        .map(drop)
    });
    job.train(2).unwrap();
    job.accelerator.load_state(None).unwrap();
    assert_eq!(job.weights(), weights);

    saving.remove();
    loading.remove();
    let saved = job.accelerator.save_state(None).unwrap();
    assert!(saved.join("model.safetensors").exists() && !saved.join("own").exists());
    job.accelerator.load_state(None).unwrap();
}

#[test]
fn what_a_hook_changes_is_what_is_saved_and_its_failure_is_the_saves() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new(folder.path(), Setup::default()).unwrap();
    let calls = Rc::new(RefCell::new(Vec::new()));
    for name in ["first", "second"] {
        let calls = Rc::clone(&calls);
        job.accelerator.register_save_state_pre_hook(move |saving| {
            calls.borrow_mut().push(name);
            let weights = &mut saving.models[0].weights;
            let halved = weights["first.bias"].f_mul_scalar(0.5)?;
            weights.insert("first.bias".to_owned(), halved);
            Ok(())
        });
    }
    let before = job.weights();
    job.accelerator.save_state(None).unwrap();
    assert_eq!(*calls.borrow(), ["first", "second"]);
    assert_eq!(job.weights(), before);
    job.accelerator.load_state(None).unwrap();
    assert_ne!(job.weights(), before);

    job.accelerator
        .register_save_state_pre_hook(|_| Err(Error::data("not now")));
    let error = job.accelerator.save_state(None).unwrap_err();
    assert!(matches!(error, Error::Data(_)), "{error}");
    assert_eq!(
        names(&folder.path().join("checkpoints")),
        ["checkpoint_0", "latest"]
    );
}
