//! Which module is computed where, and where each of its weights waits.

use std::collections::HashMap;

use accelerate_plan::device_map::{DeviceMap, Placement};
use accelerate_torch::storage;

use super::devices::{DeviceTable, Site};
use super::options::DispatchOptions;
use super::weights::{Direct, direct_tensors, joined};
use crate::Result;
use crate::nn::Module;

/// What a map and its options mean for one model.
pub(super) struct Plan<'m> {
    /// Where weights in CPU memory or on disk are computed with.
    pub(super) main: Site,
    /// Modules that get hooks, parents before children.
    pub(super) nodes: Vec<Node<'m>>,
    /// Every tensor once, in the order of the tree.
    pub(super) tensors: Vec<Placed>,
    /// The places of tensors in `tensors`, by their identity.
    by_identity: HashMap<usize, usize>,
}

/// A module that gets a hook.
pub(super) struct Node<'m> {
    pub(super) name: String,
    pub(super) module: &'m dyn Module,
    /// Where it is computed.
    pub(super) site: Site,
    /// The places of its tensors among those of the plan, each once.
    pub(super) tensors: Vec<usize>,
}

/// A tensor, tied ones under the first of their names, and where it is kept.
pub(super) struct Placed {
    pub(super) direct: Direct,
    pub(super) home: HomePlan,
    /// The sites of all modules that compute with it.
    pub(super) sites: Vec<Site>,
}

/// Where a tensor is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HomePlan {
    /// In the module, at this site.
    There(Site),
    /// Elsewhere, on disk.
    Disk,
    /// Elsewhere, in CPU memory.
    Memory,
}

/// What decides where a tensor is kept.
pub(super) struct Rules<'o> {
    pub(super) map: &'o DeviceMap,
    pub(super) main: Site,
    /// Whether what is in CPU memory waits there to be computed with elsewhere.
    pub(super) cpu_waits: bool,
    pub(super) options: &'o DispatchOptions,
}

impl<'o> Rules<'o> {
    /// The rules of a map: what is in CPU memory waits where there is an accelerator with memory of
    /// its own.
    pub(super) fn new(map: &'o DeviceMap, options: &'o DispatchOptions) -> Result<Self> {
        let devices = &options.devices;
        let main = match options.main_device {
            Some(place) => devices.site(place)?.unwrap_or(Site::CPU),
            None => devices.main_site(map)?,
        };
        Ok(Self {
            map,
            main,
            cpu_waits: matches!(main.placement, Placement::Accelerator(_)),
            options,
        })
    }

    fn devices(&self) -> &DeviceTable {
        &self.options.devices
    }

    /// Where a module is computed.
    fn site_of(&self, module: &str) -> Result<Site> {
        match self.map.placement_of(module) {
            None | Some(Placement::Disk) => Ok(self.main),
            Some(Placement::Cpu) if self.cpu_waits => Ok(self.main),
            Some(place) => Ok(self.devices().site(place)?.unwrap_or(self.main)),
        }
    }

    /// Where a tensor of a module that is computed at `site` is kept.
    fn home_of(&self, direct: &Direct, site: Site) -> Result<HomePlan> {
        let waits = direct.role.can_wait(self.options.offload_buffers);
        Ok(match self.map.placement_of(&direct.name) {
            Some(Placement::Disk) if waits => HomePlan::Disk,
            Some(Placement::Cpu) if waits && self.cpu_waits => HomePlan::Memory,
            // Buffers that do not wait, and those that the map does not speak of.
            None | Some(Placement::Disk) => HomePlan::There(site),
            Some(Placement::Cpu) if self.cpu_waits => HomePlan::There(site),
            Some(place) => HomePlan::There(self.devices().site(place)?.unwrap_or(site)),
        })
    }
}

impl<'m> Plan<'m> {
    pub(super) fn new(model: &'m dyn Module, rules: &Rules<'_>) -> Result<Self> {
        let mut plan = Self {
            main: rules.main,
            nodes: Vec::new(),
            tensors: Vec::new(),
            by_identity: HashMap::new(),
        };
        let mut preloaded: Option<String> = None;
        for (name, module) in model.named_modules() {
            let is_inside = |outer: &String| name.starts_with(&format!("{outer}."));
            if preloaded.as_ref().is_some_and(is_inside) || module.state().is_none() {
                continue;
            }
            let classes = &rules.options.preload_module_classes;
            let preloads = classes.iter().any(|class| class == module.class_name());
            if preloads {
                preloaded = Some(name.clone());
            }
            plan.add(name, module, preloads, rules)?;
        }
        plan.drop_idle_nodes();
        Ok(plan)
    }

    fn add(
        &mut self,
        name: String,
        module: &'m dyn Module,
        with_all_below: bool,
        rules: &Rules<'_>,
    ) -> Result<()> {
        let site = rules.site_of(&name)?;
        let mut own = direct_tensors(&name, module);
        if with_all_below {
            let below = module.named_modules().into_iter().skip(1);
            own.extend(
                below.flat_map(|(child, module)| direct_tensors(&joined(&name, &child), module)),
            );
        }
        let mut tensors = Vec::with_capacity(own.len());
        for direct in own {
            let place = self.place(direct, site, rules)?;
            if !tensors.contains(&place) {
                tensors.push(place);
            }
        }
        self.nodes.push(Node {
            name,
            module,
            site,
            tensors,
        });
        Ok(())
    }

    fn place(&mut self, direct: Direct, site: Site, rules: &Rules<'_>) -> Result<usize> {
        let next = self.tensors.len();
        let identity = storage::identity(&direct.tensor);
        let place = *self.by_identity.entry(identity).or_insert(next);
        match self.tensors.get_mut(place) {
            Some(placed) if placed.sites.contains(&site) => {}
            Some(placed) => placed.sites.push(site),
            None => self.tensors.push(Placed {
                home: rules.home_of(&direct, site)?,
                direct,
                sites: vec![site],
            }),
        }
        Ok(place)
    }

    /// Where everything is computed in one place, inputs are there already, and only the root and
    /// modules whose weights wait need hooks. Modules without any tensor never do.
    fn drop_idle_nodes(&mut self) {
        let one_site = self.nodes.iter().all(|node| node.site == self.main);
        let tensors = &self.tensors;
        let waits = |place: &usize| tensors.get(*place).is_some_and(Placed::needs_slot);
        self.nodes.retain(|node| {
            let is_root = node.name.is_empty();
            let has_state = !node.tensors.is_empty() || !node.module.named_children().is_empty();
            is_root || node.tensors.iter().any(waits) || (!one_site && has_state)
        });
    }
}

impl Placed {
    /// Whether it has to come to a module that computes with it.
    pub(super) fn needs_slot(&self) -> bool {
        match self.home {
            HomePlan::There(home) => self.sites.iter().any(|site| *site != home),
            HomePlan::Disk | HomePlan::Memory => true,
        }
    }

    /// Whether it is kept outside of the module.
    pub(super) fn waits(&self) -> bool {
        !matches!(self.home, HomePlan::There(_))
    }
}
