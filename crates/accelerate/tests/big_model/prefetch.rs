//! Weights that come before they are needed, and the memory that they take.

use accelerate::Result;
use accelerate::big_model::{
    AfterUse, DispatchOptions, LoadAndDispatchOptions, MapChoice, Placement, Prefetch,
    load_checkpoint_and_dispatch,
};
use accelerate::nn::Forward;
use tch::Kind;

use crate::model::{Net, ids, map, saved};

fn spread(kind: Kind, folder: &std::path::Path, prefetch: Prefetch) -> Result<Net> {
    let dispatch = DispatchOptions::default()
        .with_preload_class("Bound")
        .with_prefetch(prefetch);
    let options = LoadAndDispatchOptions::default()
        .with_device_map(MapChoice::Map(map(&[("", Placement::Disk)])))
        .with_dispatch(dispatch);
    let model = Net::empty(kind)?;
    load_checkpoint_and_dispatch(&model, folder, &options)?;
    Ok(model)
}

#[test]
fn with_and_without_it_the_same_comes_out() -> Result<()> {
    // Once used where they lie, once cast on the thread.
    for kind in [Kind::Float, Kind::BFloat16] {
        let model = Net::with_values(Kind::Float)?;
        let folder = saved(&model);
        let expected = spread(kind, folder.path(), Prefetch::off())?.logits(&ids())?;
        for blocks in [1, 2, 100] {
            for after_use in [AfterUse::Keep, AfterUse::Drop, AfterUse::KeepBytes(4000)] {
                let prefetch = Prefetch::default()
                    .with_blocks(blocks)
                    .with_after_use(after_use);
                let model = spread(kind, folder.path(), prefetch)?;
                for _pass in 0..3 {
                    assert_eq!(model.logits(&ids())?, expected, "{prefetch:?}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn an_order_that_changes_is_learned_and_an_error_ends_nothing() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let folder = saved(&model);
    let spread = spread(Kind::BFloat16, folder.path(), Prefetch::default())?;
    let expected = spread.logits(&ids())?;
    for _round in 0..3 {
        // Other ways through the model than that of the tree.
        let hidden = tch::no_grad(|| spread.wte.call(&ids()))?;
        for block in spread.h.iter().rev() {
            tch::no_grad(|| block.call(&hidden))?;
        }
        let too_wide = tch::Tensor::zeros([1, 3], (Kind::BFloat16, tch::Device::Cpu));
        assert!(spread.h[1].call(&too_wide).is_err());
        assert_eq!(spread.logits(&ids())?, expected);
    }
    Ok(())
}
