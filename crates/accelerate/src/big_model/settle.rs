//! Weights to where they are kept.

use std::path::Path;
use std::rc::Rc;

use accelerate_torch::{meta, storage};
use tch::{Device, Tensor};

use super::devices::Site;
use super::disk::write_weights;
use super::plan::{HomePlan, Placed, Plan, Rules};
use super::slot::Slot;
use super::source::{Source, Wanted, tensor_bytes};
use super::weights::{OffloadedWeights, fits};
use crate::{Error, Result};

/// Puts weights on disk that are not there yet.
pub(super) fn to_disk(
    plan: &Plan<'_>,
    weights: &mut OffloadedWeights,
    rules: &Rules<'_>,
) -> Result<()> {
    let mut write = Vec::new();
    let mut lacking = Vec::new();
    for placed in plan.tensors.iter().filter(|placed| placed.waits()) {
        let (name, tensor) = (&placed.direct.name, &placed.direct.tensor);
        let source = weights
            .source(name)
            .filter(|source| fits(source, name, tensor));
        let on_disk = placed.home == HomePlan::Disk;
        match source {
            Some(Source::Memory(values)) if on_disk => {
                write.push((name.clone(), values.shallow_clone()))
            }
            Some(_) => {}
            None if meta::is_meta(tensor)? => lacking.push((name.clone(), tensor.shallow_clone())),
            None if on_disk => write.push((name.clone(), tensor.f_detach()?)),
            None => {}
        }
    }
    let folder = rules.options.offload_folder.as_deref();
    find_in_folder(folder, &lacking, weights)?;
    match folder {
        _ if write.is_empty() => Ok(()),
        Some(folder) => {
            weights.add(write_weights(folder, &write)?);
            Ok(())
        }
        None => Err(Error::NoOffloadFolder {
            weights: write.into_iter().map(|(name, _)| name).collect(),
            why: "the model has them in memory only",
        }),
    }
}

/// Weights that the model has no values for, from a folder that was filled before.
fn find_in_folder(
    folder: Option<&Path>,
    lacking: &[(String, Tensor)],
    weights: &mut OffloadedWeights,
) -> Result<()> {
    if lacking.is_empty() {
        return Ok(());
    }
    let mut found = match folder {
        Some(folder) => {
            let is_lacking = |name: &str| lacking.iter().any(|(known, _)| known == name);
            OffloadedWeights::of_folder_where(folder, is_lacking)?
        }
        None => OffloadedWeights::new(),
    };
    let fits = |(name, tensor): &&(String, Tensor)| {
        let source = found.source(name);
        source.is_some_and(|source| fits(source, name, tensor))
    };
    let absent = lacking.iter().filter(|one| !fits(one));
    let absent: Vec<String> = absent.map(|(name, _)| name.clone()).collect();
    if !absent.is_empty() {
        return Err(Error::NothingOffloaded {
            weights: absent,
            why: match folder {
                Some(folder) => format!("`{}` has none of that shape", folder.display()),
                None => "there is no folder of offloaded weights".to_owned(),
            },
        });
    }
    found.keep_only(|name| lacking.iter().any(|(known, _)| known == name));
    weights.add(found);
    Ok(())
}

/// Brings all tensors to where they are kept, and gives the slots of those that are computed with
/// elsewhere. Where that fails, no tensor has lost its values.
pub(super) fn slots(
    plan: &Plan<'_>,
    weights: &OffloadedWeights,
    rules: &Rules<'_>,
) -> Result<Vec<Option<Rc<Slot>>>> {
    let mut sources = Vec::with_capacity(plan.tensors.len());
    for placed in &plan.tensors {
        sources.push(match placed.home {
            HomePlan::There(site) => {
                settle(placed, weights, site, rules)?;
                None
            }
            HomePlan::Disk | HomePlan::Memory => Some(source_of(placed, weights)?),
        });
    }
    let all = plan.tensors.iter().zip(sources).enumerate();
    all.map(|(key, (placed, source))| slot(key, placed, source))
        .collect()
}

/// Where a weight that waits is kept.
fn source_of(placed: &Placed, weights: &OffloadedWeights) -> Result<Source> {
    let (name, tensor) = (&placed.direct.name, &placed.direct.tensor);
    let source = weights
        .source(name)
        .filter(|source| fits(source, name, tensor));
    if let Some(source) = source {
        return Ok(source.share());
    }
    let values = tch::no_grad(|| tensor.f_detach()?.f_to_device(Device::Cpu))?;
    Ok(Source::Memory(values))
}

fn slot(key: usize, placed: &Placed, source: Option<Source>) -> Result<Option<Rc<Slot>>> {
    let (name, tensor) = (&placed.direct.name, &placed.direct.tensor);
    let slot = match (source, placed.home) {
        (Some(source), _) => {
            let is_written = !placed.direct.role.is_parameter();
            Slot::away(key, name, tensor, source)?.written(is_written)
        }
        (None, HomePlan::There(site)) if placed.needs_slot() => {
            Slot::copied(key, name, tensor, site)?
        }
        (None, _) => return Ok(None),
    };
    Ok(Some(Rc::new(slot)))
}

/// Brings a tensor to a site for good.
pub(super) fn settle(
    placed: &Placed,
    weights: &OffloadedWeights,
    site: Site,
    rules: &Rules<'_>,
) -> Result<()> {
    let (name, tensor) = (&placed.direct.name, &placed.direct.tensor);
    let is_empty = meta::is_meta(tensor)?;
    let source = weights
        .source(name)
        .filter(|source| fits(source, name, tensor));
    let (kind, device) = (tensor.f_kind()?, site.device);
    let values = match source {
        Some(source) if is_empty => source.copied(name, Wanted { kind, device })?,
        _ if is_empty => {
            return Err(Error::NothingOffloaded {
                weights: vec![name.clone()],
                why: "nothing was kept for it elsewhere".to_owned(),
            });
        }
        _ => tch::no_grad(|| tensor.f_detach()?.f_to_device(device))?,
    };
    let devices = &rules.options.devices;
    devices.take(site.placement, tensor_bytes(&values), name)?;
    if is_empty || tensor.device() != device {
        storage::replace(tensor, &values)?;
    }
    Ok(())
}
