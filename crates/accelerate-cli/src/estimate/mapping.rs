//! A model on given devices: which part is where, and what each place then holds.

mod lines;

use std::collections::HashMap;

use accelerate_plan::device_map::{
    DeviceMap, ElementType, InferOptions, Inferred, MaxMemory, MemorySize, Mode, ModuleShape,
    Placement, TensorShape,
};
use serde::{Serialize, Serializer};

use super::{
    error::{EstimateError, Result},
    shape::Shape,
};

/// What is to be placed, and how.
#[derive(Debug, Clone)]
pub(crate) struct Wanted<'a> {
    pub(crate) shape: &'a Shape,
    /// The type that the model is loaded in; [`None`] for its own.
    pub(crate) dtype: Option<ElementType>,
    /// Bytes of the whole cache of keys and values.
    pub(crate) cache_bytes: u64,
    pub(crate) limits: &'a MaxMemory,
    pub(crate) mode: Mode,
    /// Whether nobody chose the limits.
    pub(crate) detected: bool,
}

/// A model on its devices. Sizes in bytes.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Mapped {
    pub(crate) device_map: DeviceMap,
    /// Where parts that are kept elsewhere are computed.
    #[serde(serialize_with = "as_text")]
    pub(crate) main_device: Placement,
    pub(crate) places: Vec<PlaceUse>,
    pub(crate) largest_offloaded: Option<Offloaded>,
    /// Why the model does not run within the limits, although every part has a place.
    pub(crate) problem: Option<String>,
    pub(crate) warning: Option<String>,
    /// Why each part is where it is.
    pub(crate) reasons: Vec<String>,
}

/// What a place holds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct PlaceUse {
    #[serde(serialize_with = "as_text")]
    pub(crate) place: Placement,
    pub(crate) weights_bytes: u64,
    pub(crate) cache_bytes: u64,
    /// None for the disk.
    pub(crate) limit_bytes: Option<u64>,
}

/// The largest part that is computed on another place than where it is kept.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Offloaded {
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

fn as_text<S: Serializer>(place: &Placement, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(place)
}

/// The name of the buffer that stands for the cache of a block.
const CACHE: &str = "key_value_cache";

/// Places a model together with its cache, which is where its layer is computed.
///
/// # Errors
/// [`EstimateError::DeviceMap`].
pub(crate) fn mapped(wanted: &Wanted<'_>) -> Result<Mapped> {
    let mut root = wanted.shape.root.clone();
    let caches = add_caches(&mut root, wanted.shape, wanted.cache_bytes);
    let mut limits = wanted.limits.clone();
    let mut set_aside = 0;
    loop {
        let options = InferOptions {
            no_split_module_classes: wanted.shape.no_split.clone(),
            dtype: wanted.dtype,
            special_dtypes: wanted.shape.kept.clone(),
            // The buffers here are caches, and small tables beside them.
            offload_buffers: true,
            ..InferOptions::with_limits(limits.clone())
        };
        let inferred = wanted.mode.infer(&root, &options, wanted.detected);
        let inferred = inferred.map_err(EstimateError::DeviceMap)?;
        // The cache of a layer is where it is computed, wherever its weights are kept.
        let away = caches_away(&inferred, &caches);
        if away <= set_aside {
            return Ok(described(wanted, &inferred, &caches));
        }
        set_aside = away;
        let main = main_of(wanted.limits);
        let limit = wanted.limits.get(main).unwrap_or(0);
        limits.insert(main, limit.saturating_sub(set_aside));
    }
}

/// Where parts from elsewhere are computed: the first accelerator that may hold anything.
fn main_of(limits: &MaxMemory) -> Placement {
    let mut accelerators = limits
        .iter()
        .filter(|(place, bytes)| place.is_accelerator() && *bytes > 0);
    accelerators
        .next()
        .map_or(Placement::Cpu, |(place, _)| place)
}

/// Gives each block that writes its part of the cache, as a buffer; returns the bytes by block.
fn add_caches(root: &mut ModuleShape, shape: &Shape, bytes: u64) -> HashMap<String, u64> {
    let mut blocks = shape.blocks();
    let writes = |name: &String| name.split('.').any(|part| part == "decoder");
    if blocks.iter().any(writes) {
        blocks.retain(writes);
    }
    if blocks.is_empty() {
        blocks.push(String::new());
    }
    let mut caches = HashMap::new();
    if bytes == 0 {
        return caches;
    }
    let each = bytes.div_ceil(blocks.len() as u64);
    for (index, name) in blocks.into_iter().enumerate() {
        let identity = u64::MAX - index as u64;
        // A type of whole numbers keeps its size, whatever the model is loaded in.
        let cache = TensorShape::buffer(CACHE, each, ElementType::UInt8, identity);
        if let Some(block) = find_mut(root, &name) {
            block.buffers.push(TensorShape {
                persistent: false,
                ..cache
            });
            caches.insert(name, each);
        }
    }
    caches
}

fn find_mut<'a>(root: &'a mut ModuleShape, name: &str) -> Option<&'a mut ModuleShape> {
    let mut module = root;
    for part in name.split('.').filter(|part| !part.is_empty()) {
        let mut children = module.children.iter_mut();
        module = children.find(|child| child.name == part)?;
    }
    Some(module)
}

/// The place of a block's cache by the map.
fn place_of(map: &DeviceMap, block: &str) -> Placement {
    let cache = match block {
        "" => CACHE.to_owned(),
        _ => format!("{block}.{CACHE}"),
    };
    map.placement_of(&cache).unwrap_or(Placement::Disk)
}

/// The bytes of caches whose layers are kept elsewhere than where they are computed.
fn caches_away(inferred: &Inferred, caches: &HashMap<String, u64>) -> u64 {
    let main = inferred.main_device();
    let away = caches.iter().filter(|(block, _)| {
        let place = place_of(&inferred.device_map, block);
        place != main && !place.is_accelerator()
    });
    away.map(|(_, bytes)| bytes).sum()
}

fn described(wanted: &Wanted<'_>, inferred: &Inferred, caches: &HashMap<String, u64>) -> Mapped {
    let main = inferred.main_device();
    let mut places = inferred.device_map.placements();
    if !places.contains(&main) {
        places.push(main);
    }
    places.sort_unstable();
    let uses = places.into_iter().map(|place| {
        let held = |counted: &dyn Fn(Placement) -> bool| -> u64 {
            let held = caches
                .iter()
                .filter(|(block, _)| counted(place_of(&inferred.device_map, block)));
            held.map(|(_, bytes)| bytes).sum()
        };
        let kept = held(&|found| found == place);
        let computed = held(&|found| {
            let at = if found.is_accelerator() { found } else { main };
            at == place
        });
        PlaceUse {
            place,
            weights_bytes: inferred.used_on(place).bytes().saturating_sub(kept),
            cache_bytes: computed,
            limit_bytes: match place {
                Placement::Disk => None,
                _ => Some(wanted.limits.get(place).unwrap_or(0)),
            },
        }
    });
    let places: Vec<_> = uses.collect();
    let largest = inferred.largest_offloaded.as_ref();
    let largest = largest.map(|(name, size)| Offloaded {
        name: name.clone(),
        bytes: without_cache(*size, caches.get(name)),
    });
    Mapped {
        device_map: inferred.device_map.clone(),
        main_device: main,
        problem: problem(wanted, main, &places, largest.as_ref()),
        places,
        largest_offloaded: largest,
        warning: inferred.buffer_warning.map(|warning| warning.to_string()),
        reasons: inferred
            .explanation
            .to_string()
            .lines()
            .map(str::to_owned)
            .collect(),
    }
}

fn without_cache(size: MemorySize, cache: Option<&u64>) -> u64 {
    size.bytes().saturating_sub(cache.copied().unwrap_or(0))
}

/// Whether what computes has room for the largest part that comes to it.
fn problem(
    wanted: &Wanted<'_>,
    main: Placement,
    places: &[PlaceUse],
    largest: Option<&Offloaded>,
) -> Option<String> {
    let limit = wanted.limits.get(main)?;
    let held = places.iter().find(|used| used.place == main)?;
    let held = held.weights_bytes.saturating_add(held.cache_bytes);
    let (name, needed) = match largest {
        Some(largest) => (largest.name.as_str(), largest.bytes),
        None => ("", 0),
    };
    let all = held.saturating_add(needed);
    if all <= limit {
        return None;
    }
    let exact = |bytes| MemorySize::from_bytes(bytes).exact();
    Some(match needed {
        0 => format!(
            "`{main}` needs {}, and its limit is {}",
            exact(held),
            exact(limit)
        ),
        _ => format!(
            "`{name}` must be whole on `{main}` to be computed and takes {}, besides {} that are \
             there: the limit of {} is too small by {}",
            exact(needed),
            exact(held),
            exact(limit),
            exact(all - limit)
        ),
    })
}

impl Mapped {
    /// Whether a part is kept in this place.
    pub(crate) fn uses(&self, place: Placement) -> bool {
        self.places
            .iter()
            .any(|used| used.place == place && (used.weights_bytes > 0 || used.cache_bytes > 0))
    }

    /// Whether an accelerator holds a part.
    pub(crate) fn uses_accelerator(&self) -> bool {
        self.places
            .iter()
            .any(|used| used.place.is_accelerator() && used.weights_bytes > 0)
    }
}
