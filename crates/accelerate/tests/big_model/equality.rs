//! A spread model computes what it computes in one place, to the last bit.

use accelerate::Result;
use accelerate::big_model::{
    AfterUse, DeviceTable, DispatchOptions, LoadAndDispatchOptions, MapChoice, Mode, Placement,
    Prefetch, dispatch_model, load_checkpoint_and_dispatch, module_shape, remove_hooks,
};
use accelerate::nn::Module;
use tch::Kind;

use crate::model::{Net, ids, map, saved};

const PLACES: [Placement; 4] = [
    Placement::Accelerator(0),
    Placement::Accelerator(1),
    Placement::Cpu,
    Placement::Disk,
];

fn devices() -> DeviceTable {
    DeviceTable::pretend("0=1MB,1=1MB,cpu=1MB".parse().unwrap())
}

fn options(prefetch: Prefetch, devices: &DeviceTable) -> DispatchOptions {
    DispatchOptions::default()
        .with_devices(devices.clone())
        .with_preload_class("Bound")
        .with_prefetch(prefetch)
}

/// Every way to put four parts into four places.
fn all_maps() -> impl Iterator<Item = [Placement; 4]> {
    (0..256).map(|number| [0, 2, 4, 6].map(|shift| PLACES[(number >> shift) & 3]))
}

#[test]
fn every_map_gives_the_same_logits() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let expected = model.logits(&ids())?;
    let folder = saved(&model);
    for (number, [wte, first, up, head]) in all_maps().enumerate() {
        let map = map(&[
            ("", Placement::Cpu),
            ("wte", wte),
            ("h.0", first),
            ("h.1.up", up),
            ("h.2", Placement::Disk),
            ("head", head),
        ]);
        let prefetch = Prefetch::default()
            .with_blocks(number % 3)
            .with_after_use([AfterUse::Keep, AfterUse::Drop][number % 2]);
        let devices = devices();
        let options = LoadAndDispatchOptions::default()
            .with_device_map(MapChoice::Map(map.clone()))
            .with_dispatch(options(prefetch, &devices));
        let spread = Net::empty(Kind::Float)?;
        load_checkpoint_and_dispatch(&spread, folder.path(), &options)?;
        for _pass in 0..2 {
            assert_eq!(spread.logits(&ids())?, expected, "{map:?}");
        }
        // Nothing that came stays.
        let resident: u64 = devices.held(PLACES[0]) + devices.held(PLACES[1]);
        let _again = spread.logits(&ids())?;
        assert_eq!(devices.held(PLACES[0]) + devices.held(PLACES[1]), resident);
    }
    Ok(())
}

#[test]
fn a_model_with_values_is_spread_and_brought_back() -> Result<()> {
    for kind in [Kind::Float, Kind::BFloat16] {
        let model = Net::with_values(kind)?;
        let before: Vec<_> = model.state_dict()?.into_iter().collect();
        let before: Vec<_> = before
            .iter()
            .map(|(name, one)| (name, one.copy()))
            .collect();
        let expected = model.logits(&ids())?;
        let folder = tempfile::tempdir().unwrap();
        let options = options(Prefetch::default(), &devices()).with_offload_folder(folder.path());
        // Twice, the second time with weights that are elsewhere already.
        for (wte, h) in [(PLACES[3], PLACES[2]), (PLACES[2], PLACES[3])] {
            let map = map(&[("", PLACES[0]), ("wte", wte), ("h", h)]);
            dispatch_model(&model, &map, &options)?;
            assert_eq!(model.logits(&ids())?, expected);
        }
        remove_hooks(&model, true)?;
        let state = model.state_dict()?;
        for (name, values) in &before {
            assert_eq!(&state[name.as_str()], values, "{name}");
        }
        assert_eq!(model.head.weight.identity(), model.wte.weight.identity());
        assert_eq!(model.logits(&ids())?, expected);
    }
    Ok(())
}

#[test]
fn maps_that_are_found_by_themselves_keep_the_limits() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let expected = model.logits(&ids())?;
    let folder = saved(&model);
    let total: u64 = module_shape(&model)?
        .named_parameters()
        .iter()
        .map(|(_, one)| one.size().bytes())
        .sum();
    let block = total / 4;
    for mode in [Mode::Auto, Mode::BalancedLow0, Mode::Sequential] {
        for (first, second, cpu) in [(2, 2, 2), (3, 1, 0), (2, 0, 1), (8, 8, 8)] {
            let limits = format!(
                "0={},1={},cpu={}",
                first * block,
                second * block,
                cpu * block
            );
            let limits: accelerate::big_model::MaxMemory = limits.parse().unwrap();
            let devices = DeviceTable::pretend(limits.clone());
            let options = LoadAndDispatchOptions::default()
                .with_device_map(MapChoice::Mode(mode))
                .with_max_memory(limits.clone())
                .with_no_split_class("Block")
                .with_dispatch(options(Prefetch::default(), &devices));
            let spread = Net::empty(Kind::Float)?;
            let loaded = load_checkpoint_and_dispatch(&spread, folder.path(), &options)?;
            assert_eq!(spread.logits(&ids())?, expected, "{:?}", loaded.device_map);
            for (place, limit) in limits.iter() {
                assert!(
                    devices.most_held(place) <= limit,
                    "{place}: {:?}",
                    loaded.device_map
                );
            }
        }
    }
    Ok(())
}
