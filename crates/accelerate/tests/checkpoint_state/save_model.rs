//! Weights for other tools: whole, in shards, as a torch file.

use std::path::Path;

use accelerate::checkpoint::{
    LoadOptions, SaveModelOptions, Weights, load_checkpoint_in_model, save_model,
};
use accelerate::nn::{Embedding, Factory, Linear, Module, ModuleState};
use accelerate::{Accelerator, Error, Result};
use accelerate_testkit::{ranks, turn};
use tch::Kind;

use crate::background::names;

#[derive(Debug, Module)]
struct Tied {
    embedding: Embedding,
    inner: Linear,
    head: Linear,
    state: ModuleState,
}

impl Tied {
    fn new() -> Self {
        let factory = Factory::default();
        let embedding = Embedding::new(4, 3, &factory).unwrap();
        let mut head = Linear::without_bias(3, 4, &factory).unwrap();
        head.weight = embedding.weight.clone();
        Self {
            embedding,
            inner: Linear::new(3, 3, &factory).unwrap(),
            head,
            state: ModuleState::default(),
        }
    }

    fn values(&self) -> Vec<f64> {
        let parameters = self.parameters().into_iter();
        parameters
            .flat_map(|one| {
                let flat = one.tensor().flatten(0, -1).to_kind(Kind::Double);
                Vec::<f64>::try_from(flat).unwrap()
            })
            .collect()
    }
}

fn small_shards() -> SaveModelOptions {
    SaveModelOptions::default().max_shard_size("0.05KB".parse().unwrap())
}

fn torch() -> SaveModelOptions {
    SaveModelOptions::default().safe_serialization(false)
}

#[test]
fn every_form_loads_again_and_takes_the_place_of_another() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let index = "model.safetensors.index.json";
    let shards = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        index,
    ];
    let forms: [(SaveModelOptions, &[&str]); 4] = [
        (small_shards(), &shards),
        (SaveModelOptions::default(), &["model.safetensors"]),
        (torch(), &["pytorch_model.bin"]),
        (small_shards(), &shards),
    ];
    for (options, expected) in forms {
        let (saved, loaded) = (Tied::new(), Tied::new());
        let written = save_model(&saved, folder.path(), &options).unwrap();
        let files: Vec<&str> = written
            .iter()
            .map(|path| path.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(files, expected);
        assert_eq!(names(folder.path()), expected);
        let weights = Weights::open(folder.path()).unwrap();
        // The tied weight is stored once, and its other name is known.
        let stored = weights.names().filter(|name| name.contains("inner"));
        assert_eq!(stored.count(), 2);
        assert!(weights.find("head.weight").is_some());
        let is_torch = weights.files()[0].is_torch();
        assert_eq!(weights.len(), if is_torch { 4 } else { 3 });
        let strict = LoadOptions::strict();
        let report = load_checkpoint_in_model(&loaded, folder.path(), &strict).unwrap();
        assert!(report.fits());
        assert_eq!(loaded.values(), saved.values());
        assert_eq!(
            loaded.head.weight.identity(),
            loaded.embedding.weight.identity()
        );
    }
}

#[test]
fn what_does_not_fit_is_told_whatever_the_form() {
    let _turn = turn();
    let strict = LoadOptions::strict();
    for options in [SaveModelOptions::default(), small_shards(), torch()] {
        let folder = tempfile::tempdir().unwrap();
        save_model(&Tied::new(), folder.path(), &options).unwrap();
        let linear = Linear::new(3, 2, &Factory::default()).unwrap();
        let error = load_checkpoint_in_model(&linear, folder.path(), &strict).unwrap_err();
        let Error::WeightsDoNotFit { report, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(report.missing, ["weight", "bias"]);
        assert!(report.unexpected.contains(&"inner.bias".to_owned()));
        let report =
            load_checkpoint_in_model(&linear, folder.path(), &LoadOptions::lenient()).unwrap();
        assert_eq!(report.missing, ["weight", "bias"]);

        let mut wider = Tied::new();
        wider.inner = Linear::new(3, 5, &Factory::default()).unwrap();
        let before = wider.values();
        let error = load_checkpoint_in_model(&wider, folder.path(), &LoadOptions::lenient());
        let text = error.unwrap_err().to_string();
        assert!(text.contains("2 mismatched: `inner."), "{text}");
        assert_eq!(wider.values(), before);
    }
}

#[test]
fn what_cannot_be_a_folder_of_weights_is_told() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "mine").unwrap();
    let error = save_model(&Tied::new(), &file, &torch()).unwrap_err();
    assert!(matches!(&error, Error::Io { path, .. } if *path == file));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let strict = LoadOptions::strict();
    for nothing in [folder.path(), Path::new("/nowhere")] {
        let error = load_checkpoint_in_model(&Tied::new(), nothing, &strict).unwrap_err();
        assert!(matches!(error, Error::Formats(_)), "{error}");
    }
}

#[test]
fn one_rank_writes_and_all_learn_of_its_failure() {
    ranks(&[2], |rank| -> Result<()> {
        let accelerator = Accelerator::new()?;
        let folder = std::env::temp_dir().join(format!("accelerate-model-{}", rank.port()));
        let model = Tied::new();
        let options = SaveModelOptions::default();
        let written = accelerator.save_model(&model, &folder, &options)?;
        assert_eq!(written.len(), 1 - rank.index());
        load_checkpoint_in_model(&model, &folder, &LoadOptions::strict())?;
        let file = folder.join("model.safetensors");
        let error = accelerator.save_model(&model, &file, &options).unwrap_err();
        match rank.index() {
            0 => assert!(matches!(error, Error::Io { .. }), "{error}"),
            _ => assert!(
                matches!(error, Error::OtherRankFailed { rank: 0 }),
                "{error}"
            ),
        }
        accelerator.wait_for_everyone()?;
        if rank.index() == 0 {
            std::fs::remove_dir_all(&folder).unwrap();
        }
        Ok(())
    });
}
