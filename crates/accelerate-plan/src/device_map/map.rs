//! Which part of a model is where.

use std::fmt;

use indexmap::IndexMap;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, MapAccess, Visitor},
};

use super::{DeviceMapError, ModuleShape, Placement, error::UnknownName};
use crate::config::nearest;

/// Which part of a model is where: dotted names of modules, parameters and buffers in the order of
/// the model, each with its place.
///
/// A name stands for everything below it, `""` for the whole model, and the most specific name wins.
/// As JSON it is the map that the original takes, such as `{"transformer.wte": 0, "lm_head": "cpu"}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceMap {
    places: IndexMap<String, Placement>,
}

impl DeviceMap {
    /// A map that says nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The map of a model that is in one place.
    pub fn whole(place: Placement) -> Self {
        Self::from_iter([(String::new(), place)])
    }

    /// Places a name, and gives the place that it had before.
    pub fn insert(&mut self, name: impl Into<String>, place: Placement) -> Option<Placement> {
        self.places.insert(name.into(), place)
    }

    /// The place that the map gives to exactly this name.
    pub fn get(&self, name: &str) -> Option<Placement> {
        self.places.get(name).copied()
    }

    /// The place of a module or tensor: that of the most specific name that covers it.
    ///
    /// ```
    /// use accelerate_plan::device_map::{DeviceMap, Placement};
    ///
    /// let map: DeviceMap = serde_json::from_str(r#"{"h.1": 0, "h": "disk"}"#)?;
    /// assert_eq!(map.placement_of("h.1.weight"), Some(Placement::Accelerator(0)));
    /// assert_eq!(map.placement_of("h.10.weight"), Some(Placement::Disk));
    /// assert_eq!(map.placement_of("lm_head.weight"), None);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn placement_of(&self, name: &str) -> Option<Placement> {
        let mut covering = name;
        loop {
            if let Some(place) = self.get(covering) {
                return Some(place);
            }
            covering = match covering.rfind('.') {
                Some(dot) => covering.get(..dot)?,
                None if covering.is_empty() => return None,
                None => "",
            };
        }
    }

    /// The names and their places, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, Placement)> {
        let places = self.places.iter();
        places.map(|(name, place)| (name.as_str(), *place))
    }

    /// How many names the map has.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the map says nothing.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The places that are used, in the order in which names mention them.
    pub fn placements(&self) -> Vec<Placement> {
        let mut places = Vec::new();
        for (_, place) in self.iter() {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// Where parts that are in CPU memory or on disk are computed: the first accelerator of the map,
    /// or the CPU if there is none.
    pub fn main_device(&self) -> Placement {
        let places = self.iter().map(|(_, place)| place);
        let mut accelerators = places.filter(|place| place.is_accelerator());
        accelerators.next().unwrap_or(Placement::Cpu)
    }

    /// Checks that the map places the whole state of a model, and nothing that the model lacks.
    ///
    /// Buffers that are no part of the state need no place of their own.
    ///
    /// # Errors
    /// [`DeviceMapError::Mismatch`] lists every name that is missing and every one that is too much.
    ///
    /// # Source
    /// `check_device_map`. Differs: names that the model lacks are an error and no warning, since
    /// most often a name is misspelled; names of parameters and buffers are no mistake.
    pub fn check_device_map(&self, model: &ModuleShape) -> Result<(), DeviceMapError> {
        let state = model.state_dict_names();
        let is_placed = |name: &&String| self.placement_of(name).is_some();
        let uncovered: Vec<_> = state.iter().filter(|name| !is_placed(name)).collect();
        let known = known_names(model);
        let unknown = self.iter().filter(|(name, _)| !known.contains(*name));
        let unknown: Vec<_> = unknown
            .map(|(name, _)| UnknownName {
                name: name.to_owned(),
                nearest: nearest(name, known.iter().map(String::as_str)).map(str::to_owned),
            })
            .collect();
        if uncovered.is_empty() && unknown.is_empty() {
            return Ok(());
        }
        Err(DeviceMapError::Mismatch {
            uncovered: uncovered.into_iter().cloned().collect(),
            unknown,
        })
    }
}

/// The names of all modules, parameters and buffers.
fn known_names(model: &ModuleShape) -> indexmap::IndexSet<String> {
    let tensors = model.named_parameters().into_iter();
    let tensors = tensors.chain(model.named_buffers()).map(|(name, _)| name);
    model.module_names().into_iter().chain(tensors).collect()
}

impl<S: Into<String>> FromIterator<(S, Placement)> for DeviceMap {
    fn from_iter<I: IntoIterator<Item = (S, Placement)>>(places: I) -> Self {
        let places = places.into_iter();
        Self {
            places: places.map(|(name, place)| (name.into(), place)).collect(),
        }
    }
}

impl Serialize for DeviceMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.places.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DeviceMap {
    /// Reads a map, and refuses one that has a name twice.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MapVisitor)
    }
}

struct MapVisitor;

impl<'de> Visitor<'de> for MapVisitor {
    type Value = DeviceMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from names of modules to places")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<DeviceMap, A::Error> {
        let mut map = DeviceMap::new();
        while let Some((name, place)) = entries.next_entry::<String, Placement>()? {
            if let Some(earlier) = map.get(&name) {
                return Err(de::Error::custom(format_args!(
                    "`{name}` has two places: `{earlier}` and `{place}`"
                )));
            }
            map.insert(name, place);
        }
        Ok(map)
    }
}
