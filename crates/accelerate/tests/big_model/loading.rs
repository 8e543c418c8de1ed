//! Checkpoints into empty models.

use accelerate::big_model::{
    DispatchOptions, LoadCheckpointOptions, Placement, dispatch_model, load_checkpoint_in_model,
};
use accelerate::checkpoint::LoadOptions;
use accelerate::nn::Module;
use accelerate::{Error, Result};
use accelerate_formats::OffloadFolder;
use accelerate_formats::offload::OffloadEntry;
use tch::Kind;

use crate::model::{Net, ids, map, save_as, saved};

fn options<'a>() -> LoadCheckpointOptions<'a> {
    LoadCheckpointOptions::default()
}

#[test]
fn an_empty_model_is_filled_from_every_form() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let expected = model.logits(&ids())?;
    for (shard, safe) in [("3KB", true), ("1GB", true), ("1GB", false)] {
        let folder = tempfile::tempdir().unwrap();
        save_as(&model, folder.path(), shard, safe);
        for file in [
            None,
            Some("model.safetensors"),
            Some("model.safetensors.index.json"),
        ] {
            let path = file.map_or(folder.path().to_owned(), |file| folder.path().join(file));
            if !path.exists() {
                continue;
            }
            let empty = Net::empty(Kind::Float)?;
            let loaded = load_checkpoint_in_model(&empty, &path, &options())?;
            assert!(loaded.report.fits());
            assert_eq!(empty.logits(&ids())?, expected);
            assert_eq!(empty.head.weight.identity(), empty.wte.weight.identity());
            assert!(empty.h[0].up.weight.requires_grad());
        }
    }
    Ok(())
}

#[test]
fn mapped_weights_can_be_trained_and_the_file_stays() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let folder = tempfile::tempdir().unwrap();
    save_as(&model, folder.path(), "1GB", true);
    let path = folder.path().join("model.safetensors");
    let before = std::fs::read(&path).unwrap();
    let loaded = Net::empty(Kind::Float)?;
    load_checkpoint_in_model(&loaded, folder.path(), &options())?;
    tch::no_grad(|| -> Result<()> {
        for parameter in loaded.parameters() {
            let _changed = parameter.tensor().shallow_clone().f_add_scalar_(1.0)?;
        }
        Ok(())
    })?;
    assert_ne!(
        loaded.h[0].up.weight.tensor(),
        model.h[0].up.weight.tensor()
    );
    assert_eq!(std::fs::read(&path).unwrap(), before);
    Ok(())
}

#[test]
fn types_are_cast_on_the_way() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let folder = saved(&model);
    let half = options().with_dtype(Kind::Half).with_keep_in_fp32("norm");
    let loaded = Net::empty(Kind::Float)?;
    load_checkpoint_in_model(&loaded, folder.path(), &half)?;
    for (name, tensor) in loaded.state_dict()? {
        let expected = match name.as_str() {
            "statistics.num_batches_tracked" => Kind::Int64,
            name if name.contains("norm.") => Kind::Float,
            _ => Kind::Half,
        };
        assert_eq!(tensor.kind(), expected, "{name}");
    }
    // What waits on disk stays in its type there, and becomes the model's when it comes.
    let narrow = Net::empty(Kind::BFloat16)?;
    let places = map(&[("", Placement::Disk)]);
    let disk = options().with_device_map(places);
    let on_disk = load_checkpoint_in_model(&narrow, folder.path(), &disk)?.on_disk;
    assert_eq!(on_disk.get("h.1.up.weight")?.unwrap().kind(), Kind::Float);
    // Buffers do not wait.
    assert!(!narrow.get_buffer("statistics.running_mean")?.is_meta()?);
    assert!(narrow.h[1].up.weight.is_meta()?);
    Ok(())
}

#[test]
fn the_folder_says_where_weights_on_disk_are() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let expected = model.logits(&ids())?;
    let places = map(&[("", Placement::Cpu), ("h.1", Placement::Disk)]);
    for safe in [true, false] {
        let (folder, offload) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        save_as(&model, folder.path(), "1GB", safe);
        let load = options()
            .with_device_map(places.clone())
            .with_offload_folder(offload.path().join("new"));
        let empty = Net::empty(Kind::Float)?;
        load_checkpoint_in_model(&empty, folder.path(), &load)?;
        let index = OffloadFolder::open(offload.path().join("new"))?;
        let all: Vec<_> = index.entries().collect();
        assert_eq!(all.len(), 6);
        for (name, entry) in all {
            assert!(name.starts_with("h.1."), "{name}");
            assert_eq!(matches!(entry, OffloadEntry::InSafetensors { .. }), safe);
        }
        // Another program can go on from there.
        let dispatch = DispatchOptions::default()
            .with_preload_class("Bound")
            .with_offload_folder(offload.path().join("new"));
        dispatch_model(&empty, &places, &dispatch)?;
        assert_eq!(empty.logits(&ids())?, expected);
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_told_at_once_or_reported() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let folder = tempfile::tempdir().unwrap();
    save_as(&model.h[0], folder.path(), "1GB", true);
    let empty = Net::empty(Kind::Float)?;
    let error = load_checkpoint_in_model(&empty, folder.path(), &options()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::WeightsDoNotFit { .. }), "{text}");
    assert!(
        text.contains("`wte.weight`") && text.contains("`up.bias`"),
        "{text}"
    );
    let lenient = options().with_fit(LoadOptions::lenient());
    let report = load_checkpoint_in_model(&empty, folder.path(), &lenient)?.report;
    assert_eq!((report.loaded, report.unexpected.len()), (0, 6));
    Ok(())
}
