//! A device map with as few names as possible.

use indexmap::{IndexMap, IndexSet};

use super::{DeviceMap, Placement, shape::joined};

/// Gives a module whose parts are all in one place one name instead of theirs.
///
/// One name alone stays as it is: `{"a": 0}` does not become `{"": 0}`.
///
/// ```
/// use accelerate_plan::device_map::{DeviceMap, clean_device_map};
///
/// let map: DeviceMap = serde_json::from_str(r#"{"a.x": 0, "a.y": 0, "b": "cpu"}"#)?;
/// let cleaned = serde_json::to_string(&clean_device_map(&map))?;
/// assert_eq!(cleaned, r#"{"a":0,"b":"cpu"}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Source
/// `clean_device_map`. Differs: names stay in the order of the model, where the original puts a
/// shortened one last, and several in no certain order.
#[must_use]
pub fn clean_device_map(map: &DeviceMap) -> DeviceMap {
    let mut root = Branch::default();
    for (name, place) in map.iter() {
        root.insert(name, place);
    }
    let mut cleaned = DeviceMap::new();
    root.write("", &mut cleaned);
    cleaned
}

/// The names of a map as a tree.
#[derive(Default)]
struct Branch {
    /// The place that the map gives to exactly this name.
    own: Option<Placement>,
    below: IndexMap<String, Branch>,
}

impl Branch {
    fn insert(&mut self, name: &str, place: Placement) {
        let mut branch = self;
        for part in name.split('.').filter(|_| !name.is_empty()) {
            branch = branch.below.entry(part.to_owned()).or_default();
        }
        branch.own = Some(place);
    }

    fn write(&self, name: &str, map: &mut DeviceMap) {
        if let Some(place) = self.common_place() {
            map.insert(name, place);
            return;
        }
        if let Some(place) = self.own {
            map.insert(name, place);
        }
        for (part, branch) in &self.below {
            branch.write(&joined(name, part), map);
        }
    }

    /// The place of everything here, if there is only one and more than one name for it.
    fn common_place(&self) -> Option<Placement> {
        let mut places = IndexSet::new();
        let names = self.collect(&mut places);
        let place = places.first().copied();
        place.filter(|_| places.len() == 1 && names > 1)
    }

    /// Adds the places of all names from here on, and counts the names.
    fn collect(&self, places: &mut IndexSet<Placement>) -> usize {
        places.extend(self.own);
        let below = self.below.values();
        let below: usize = below.map(|branch| branch.collect(places)).sum();
        below + usize::from(self.own.is_some())
    }
}
