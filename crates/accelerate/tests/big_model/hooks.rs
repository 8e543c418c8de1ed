//! What hooks move, and what they leave alone.

use std::cell::RefCell;
use std::rc::Rc;

use accelerate::big_model::{
    AlignDevicesHook, DispatchOptions, Placement, align_module_device, cpu_offload,
    cpu_offload_with_hook, device_map_of, disk_offload, dispatch_model, has_offloaded_params,
    remove_hooks,
};
use accelerate::nn::{Factory, Forward, Hook, Linear, Module};
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::{Device, Kind, Tensor};

use crate::model::{Net, ids, map};

fn preloading() -> DispatchOptions {
    DispatchOptions::default().with_preload_class("Bound")
}

/// Notes for each call whether the weights of the module are there.
struct Look(Rc<RefCell<Vec<bool>>>);

impl Hook for Look {
    fn before_forward(&self, module: &dyn Module, _input: &mut dyn Tree) -> Result<()> {
        let there = module
            .parameters()
            .iter()
            .all(|one| !one.is_meta().unwrap());
        self.0.borrow_mut().push(there);
        Ok(())
    }

    fn after_forward(&self, module: &dyn Module, output: &mut dyn Tree) -> Result<()> {
        self.before_forward(module, output)
    }
}

#[test]
fn weights_are_there_during_a_call_and_only_then() -> Result<()> {
    let layer = Linear::new(3, 2, &Factory::default())?;
    let batch = Tensor::f_ones([4, 3], (Kind::Float, Device::Cpu))?;
    let expected = tch::no_grad(|| layer.call(&batch))?;
    cpu_offload(&layer, &DispatchOptions::default())?;
    assert!(has_offloaded_params(&layer));
    assert!(layer.weight.is_meta()? && layer.bias.as_ref().unwrap().is_meta()?);
    let seen = Rc::new(RefCell::new(Vec::new()));
    layer.add_hook(Rc::new(Look(Rc::clone(&seen))))?;
    assert_eq!(tch::no_grad(|| layer.call(&batch))?, expected);
    // Hooks run in the order they were added, afterwards too: the weights are gone by then.
    assert_eq!(*seen.borrow(), [true, false]);
    assert!(layer.weight.is_meta()?);
    // A call that fails leaves no weight behind.
    let error = layer.call(Tensor::f_ones([4, 5], (Kind::Float, Device::Cpu))?);
    assert!(error.is_err());
    assert!(layer.weight.is_meta()?);
    remove_hooks(&layer, false)?;
    assert!(!has_offloaded_params(&layer) && device_map_of(&layer).is_none());
    assert_eq!(tch::no_grad(|| layer.call(&batch))?, expected);
    Ok(())
}

#[test]
fn without_the_class_a_weight_that_is_used_uncalled_is_missed_by_name() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let expected = model.logits(&ids())?;
    cpu_offload(&model, &DispatchOptions::default())?;
    assert!(matches!(model.logits(&ids()), Err(Error::OnMeta { .. })));
    remove_hooks(&model, false)?;
    cpu_offload(&model, &preloading())?;
    assert_eq!(model.logits(&ids())?, expected);
    assert!(has_offloaded_params(model.get_submodule("h.0.bound")?));
    assert!(!has_offloaded_params(
        model.get_submodule("h.0.bound.inner")?
    ));
    Ok(())
}

#[test]
fn a_dispatched_model_is_not_moved_as_a_whole() -> Result<()> {
    let model = Net::with_values(Kind::Float)?;
    let folder = tempfile::tempdir().unwrap();
    disk_offload(&model, folder.path(), &preloading())?;
    let error = model.to_device(Device::Cpu).unwrap_err();
    assert!(matches!(error, Error::MovesDispatched { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("`h.0.norm.bias`") && text.contains("remove_hooks"),
        "{text}"
    );
    remove_hooks(&model, true)?;
    model.to_device(Device::Cpu)
}

#[test]
fn the_type_of_a_model_can_change_while_its_weights_are_elsewhere() -> Result<()> {
    let layer = Linear::new(3, 2, &Factory::default())?;
    let weight = layer.weight.tensor().copy();
    cpu_offload(&layer, &DispatchOptions::default())?;
    layer.bfloat16()?;
    let batch = Tensor::f_ones([1, 3], (Kind::BFloat16, Device::Cpu))?;
    assert_eq!(tch::no_grad(|| layer.call(&batch))?.kind(), Kind::BFloat16);
    remove_hooks(&layer, false)?;
    assert_eq!(*layer.weight.tensor(), weight.to_kind(Kind::BFloat16));
    Ok(())
}

#[test]
fn one_place_needs_no_hooks_unless_they_are_wanted() -> Result<()> {
    let layer = Linear::new(1, 1, &Factory::default())?;
    let whole = map(&[("", Placement::Cpu)]);
    dispatch_model(&layer, &whole, &DispatchOptions::default())?;
    assert_eq!(*device_map_of(&layer).unwrap(), whole);
    assert!(format!("{layer:?}").contains("hooks: 1"));
    layer.to_device(Device::Cpu)?;
    let forced = DispatchOptions::default().with_force_hooks(true);
    dispatch_model(&layer, &whole, &forced)?;
    assert!(format!("{layer:?}").contains("hooks: 2"));
    assert!(!has_offloaded_params(&layer));
    Ok(())
}

#[test]
fn weights_are_at_hand_for_a_while() -> Result<()> {
    let layer = Linear::new(3, 2, &Factory::default())?;
    let sum = layer.weight.tensor().sum(Kind::Float);
    let summed = || -> Result<Tensor> {
        let values = layer.weight.dense()?;
        let sum = values.f_sum(Kind::Float)?;
        // What is written here is lost, and harms nobody.
        let _zeros = tch::no_grad(|| values.shallow_clone().f_zero_())?;
        Ok(sum)
    };
    let folder = tempfile::tempdir().unwrap();
    disk_offload(&layer, folder.path(), &DispatchOptions::default())?;
    for device in [None, Some(Device::Cpu)] {
        assert_eq!(align_module_device(&layer, device, summed)?, sum);
        assert!(layer.weight.is_meta()?);
    }
    let failed: Result<()> = align_module_device(&layer, None, || Err(Error::EmptyDataset));
    assert!(failed.is_err() && layer.weight.is_meta()?);
    remove_hooks(&layer, true)?;
    assert_eq!(
        align_module_device(&layer, None, || layer.weight.dense())?.sum(Kind::Float),
        sum
    );
    Ok(())
}

#[test]
fn models_take_turns_and_stay_until_the_next() -> Result<()> {
    let factory = Factory::default();
    let (first, second) = (Linear::new(2, 2, &factory)?, Linear::new(2, 2, &factory)?);
    let batch = Tensor::f_ones([1, 2], (Kind::Float, Device::Cpu))?;
    let expected = second.call(first.call(&batch)?)?;
    let hook = cpu_offload_with_hook(&first, Some(Device::Cpu), None)?;
    let next = cpu_offload_with_hook(&second, Some(Device::Cpu), Some(&hook))?;
    assert_eq!(second.call(first.call(&batch)?)?, expected);
    hook.offload()?;
    next.remove();
    hook.remove();
    assert!(format!("{first:?}{second:?}").matches("hooks: 0").count() == 2);
    Ok(())
}

#[test]
fn a_hook_says_what_it_does() -> Result<()> {
    let layer = Linear::new(1, 1, &Factory::default())?;
    cpu_offload(&layer, &DispatchOptions::default())?;
    let hook: Option<AlignDevicesHook> = AlignDevicesHook::of(&layer);
    let hook = hook.unwrap();
    assert!(hook.offloads() && hook.io_same_device());
    assert_eq!(hook.execution_device(), Some(Device::Cpu));
    Ok(())
}
