//! Errors that say what is wrong, where, and what to do.

use accelerate::big_model::{
    DeviceTable, DispatchOptions, LoadAndDispatchOptions, LoadCheckpointOptions, MapChoice, Mode,
    Placement, disk_offload, dispatch_model, load_checkpoint_and_dispatch,
    load_checkpoint_in_model,
};
use accelerate::{Error, Result};
use tch::Kind;

use crate::model::{Net, map, save_as, saved, text};

#[test]
fn a_map_that_does_not_fit_is_refused_with_all_names() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let places = map(&[
        ("wte", Placement::Cpu),
        ("h.0", Placement::Cpu),
        ("hed", Placement::Cpu),
    ]);
    let error = dispatch_model(&model, &places, &DispatchOptions::default()).unwrap_err();
    let shown = text(&error);
    assert!(matches!(error, Error::DeviceMap(_)), "{shown}");
    for name in [
        "`h.1.up.weight`",
        "`statistics.running_var`",
        "`hed`",
        "`head`",
    ] {
        assert!(shown.contains(name), "{name}: {shown}");
    }
    Ok(())
}

#[test]
fn places_that_are_not_there_are_refused() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let places = map(&[("", Placement::Accelerator(7)), ("h", Placement::Cpu)]);
    let pretend = DeviceTable::pretend("0=1GB".parse().unwrap());
    let options = DispatchOptions::default().with_devices(pretend);
    let error = dispatch_model(&model, &places, &options).unwrap_err();
    assert!(text(&error).contains("`7`"), "{error}");
    Ok(())
}

#[test]
fn weights_on_disk_need_a_folder_with_an_index_or_values() -> Result<()> {
    let places = map(&[("", Placement::Cpu), ("h.2", Placement::Disk)]);
    let model = Net::with_values(Kind::Float)?;
    let error = dispatch_model(&model, &places, &DispatchOptions::default()).unwrap_err();
    let shown = text(&error);
    assert!(matches!(error, Error::NoOffloadFolder { .. }), "{shown}");
    assert!(
        shown.contains("`h.2.up.weight`") && shown.contains("offload_folder"),
        "{shown}"
    );
    // It computes as before.
    assert!(!model.h[2].up.weight.is_meta()?);

    let empty = Net::empty(Kind::Float)?;
    let folder = tempfile::tempdir().unwrap();
    let options = DispatchOptions::default().with_offload_folder(folder.path());
    let error = dispatch_model(&empty, &places, &options).unwrap_err();
    assert!(text(&error).contains("index.json"), "{error}");
    Ok(())
}

#[test]
fn an_index_of_another_model_is_refused() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let model = Net::with_values(Kind::Float)?;
    disk_offload(&model.h[0], folder.path(), &DispatchOptions::default())?;
    let empty = Net::empty(Kind::Float)?;
    let error = disk_offload(&empty, folder.path(), &DispatchOptions::default()).unwrap_err();
    let shown = text(&error);
    assert!(matches!(error, Error::NothingOffloaded { .. }), "{shown}");
    assert!(shown.contains("`h.0.up.weight`"), "{shown}");
    Ok(())
}

#[test]
fn a_folder_that_cannot_be_written_is_told() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let model = Net::with_values(Kind::Float)?;
    let error = disk_offload(&model, file.join("below"), &DispatchOptions::default()).unwrap_err();
    assert!(text(&error).contains("below"), "{error}");
    assert!(!model.wte.weight.is_meta()?);
    Ok(())
}

#[test]
fn a_limit_that_is_too_small_for_a_block_says_which_and_how_much() -> Result<()> {
    let folder = saved(&Net::with_values(Kind::Float)?);
    let limits: accelerate::big_model::MaxMemory = "0=1000,cpu=0".parse().unwrap();
    let options = LoadAndDispatchOptions::default()
        .with_device_map(MapChoice::Mode(Mode::Sequential))
        .with_max_memory(limits.clone())
        .with_no_split_class("Block")
        .with_dispatch(DispatchOptions::default().with_devices(DeviceTable::pretend(limits)));
    let empty = Net::empty(Kind::Float)?;
    match load_checkpoint_and_dispatch(&empty, folder.path(), &options) {
        // Nothing fits, so that all is computed on the CPU, from disk.
        Ok(loaded) => assert_eq!(loaded.device_map.placements(), [Placement::Disk]),
        Err(error) => assert!(text(&error).contains("bytes"), "{error}"),
    }
    // Room for something small, but not for the blocks that come to it.
    let places = map(&[
        ("", Placement::Disk),
        ("h.0.norm", Placement::Accelerator(0)),
    ]);
    let small = DeviceTable::pretend("0=1000".parse().unwrap());
    let options = LoadAndDispatchOptions::default()
        .with_device_map(MapChoice::Map(places))
        .with_dispatch(DispatchOptions::default().with_devices(small));
    load_checkpoint_and_dispatch(&empty, folder.path(), &options)?;
    let error = empty.logits(&crate::model::ids()).unwrap_err();
    let shown = text(&error);
    assert!(matches!(error, Error::PlaceFull { .. }), "{shown}");
    assert!(
        shown.contains("`wte.weight`") && shown.contains("2048"),
        "{shown}"
    );
    Ok(())
}

#[test]
fn checkpoints_that_are_none_are_refused() -> Result<()> {
    let empty = Net::empty(Kind::Float)?;
    let folder = tempfile::tempdir().unwrap();
    let load = |path: &std::path::Path| {
        let options = LoadCheckpointOptions::default();
        load_checkpoint_in_model(&empty, path, &options).map(|_| ())
    };
    let error = load(folder.path()).unwrap_err();
    assert!(text(&error).contains("index.json"), "{error}");
    assert!(load(&folder.path().join("absent")).is_err());
    // Two families of files in one index.
    let model = Net::with_values(Kind::Float)?;
    save_as(&model.h[0], folder.path(), "1GB", false);
    let bin = folder.path().join("pytorch_model.bin");
    std::fs::rename(&bin, folder.path().join("b.bin")).unwrap();
    save_as(&model.h[0], folder.path(), "1GB", true);
    let single = folder.path().join("model.safetensors");
    std::fs::rename(&single, folder.path().join("a.safetensors")).unwrap();
    let index = r#"{"weight_map": {"up.weight": "a.safetensors", "up.bias": "b.bin"}}"#;
    std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    let error = load(folder.path()).unwrap_err();
    let shown = text(&error);
    assert!(
        shown.contains("a.safetensors") && shown.contains("b.bin"),
        "{shown}"
    );
    Ok(())
}
