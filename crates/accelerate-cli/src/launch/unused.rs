//! What was given and changes nothing, as lines for the user.

use accelerate_plan::{
    launch::{Strategy, unused},
    settings::{RDZV_CONF, Settings},
};
use indexmap::IndexMap;

use super::rendezvous::Options;

/// One line for each reason, with every setting and where it was given.
pub(super) fn lines(settings: &Settings, strategy: Strategy, options: &Options) -> Vec<String> {
    let mut by_reason: IndexMap<String, Vec<String>> = IndexMap::new();
    for unused in unused(settings, strategy) {
        let setting = format!("`{}` ({})", unused.name, unused.origin);
        by_reason
            .entry(unused.why.to_string())
            .or_default()
            .push(setting);
    }
    let lines = by_reason
        .into_iter()
        .map(|(why, settings)| format!("{}: {why}", settings.join(", ")));
    let origin = settings.origin(&RDZV_CONF);
    let keys = options.without_effect.iter();
    let keys = keys.map(|key| format!("`{key}` in `rdzv_conf` ({origin}): nothing reads it here"));
    lines.chain(keys).collect()
}
