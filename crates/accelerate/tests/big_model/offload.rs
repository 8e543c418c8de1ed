//! Saving what waits elsewhere.

use accelerate::Result;
use accelerate::big_model::{
    DispatchOptions, LoadAndDispatchOptions, MapChoice, Placement, cpu_offload,
    get_state_dict_offloaded_model, load_checkpoint_and_dispatch,
};
use accelerate::checkpoint::{LoadOptions, load_checkpoint_in_model};
use accelerate::nn::Module;
use tch::Kind;

use crate::model::{Net, ids, map, save_as, saved};

#[test]
fn a_spread_model_is_saved_whole() -> Result<()> {
    for kind in [Kind::Float, Kind::BFloat16] {
        let model = Net::with_values(kind)?;
        let expected = model.logits(&ids())?;
        let folder = saved(&model);
        let places = map(&[("", Placement::Disk), ("h.0", Placement::Cpu)]);
        let options = LoadAndDispatchOptions::default()
            .with_device_map(MapChoice::Map(places))
            .with_dispatch(DispatchOptions::default().with_preload_class("Bound"));
        let spread = Net::empty(kind)?;
        load_checkpoint_and_dispatch(&spread, folder.path(), &options)?;
        let state = get_state_dict_offloaded_model(&spread)?;
        let names: Vec<&String> = state.keys().collect();
        let original = model.state_dict()?;
        assert_eq!(names, original.keys().collect::<Vec<_>>());
        // Into another folder, and over the very files that the weights come from.
        let other = tempfile::tempdir().unwrap();
        for (target, shard, safe) in [
            (other.path(), "2KB", true),
            (other.path(), "1GB", false),
            (folder.path(), "1GB", true),
        ] {
            save_as(&spread, target, shard, safe);
            let again = Net::new(kind)?;
            load_checkpoint_in_model(&again, target, &LoadOptions::strict())?;
            assert_eq!(again.logits(&ids())?, expected);
            assert_eq!(spread.logits(&ids())?, expected);
        }
    }
    Ok(())
}

#[test]
fn weights_that_are_nowhere_are_told_by_name() -> Result<()> {
    let empty = Net::empty(Kind::Float)?;
    let error = get_state_dict_offloaded_model(&empty)
        .unwrap_err()
        .to_string();
    assert!(error.contains("`wte.weight`"), "{error}");
    let error = cpu_offload(&empty, &DispatchOptions::default()).unwrap_err();
    assert!(error.to_string().contains("`wte.weight`"), "{error}");
    Ok(())
}
