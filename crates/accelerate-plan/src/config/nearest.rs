//! The name that somebody may have meant.

/// Names that are less alike than this have nothing to do with each other.
const ALIKE: f64 = 0.85;

/// The candidate that is most like `name`, or `None` if none is like it.
///
/// Capitals do not count, and `-` counts as `_`. Of equally good candidates the first is taken.
///
/// ```
/// use accelerate_plan::config::nearest;
///
/// let keys = ["num_machines", "num_processes"];
/// assert_eq!(nearest("num_proceses", keys), Some("num_processes"));
/// assert_eq!(nearest("batch_size", keys), None);
/// ```
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = spelled_alike(name);
    let mut best = None;
    for candidate in candidates {
        // Counts letters in common, and those at the front twice.
        let score = strsim::jaro_winkler(&name, &spelled_alike(candidate));
        if score >= best.map_or(ALIKE, |(_, least)| least)
            && best.is_none_or(|(_, top)| score > top)
        {
            best = Some((candidate, score));
        }
    }
    best.map(|(candidate, _)| candidate)
}

fn spelled_alike(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 9] = [
        "compute_environment",
        "distributed_type",
        "fsdp_config",
        "gpu_ids",
        "main_process_ip",
        "main_process_port",
        "mixed_precision",
        "num_machines",
        "num_processes",
    ];

    #[test]
    fn slips_and_shortened_names_are_found() {
        for (name, meant) in [
            ("num_process", "num_processes"),
            ("num-processes", "num_processes"),
            ("NUM_PROCS", "num_processes"),
            ("mixed_precison", "mixed_precision"),
            ("gpu_id", "gpu_ids"),
            ("distrbuted_tpye", "distributed_type"),
            ("main_process_prot", "main_process_port"),
            ("fsdp", "fsdp_config"),
        ] {
            assert_eq!(nearest(name, KEYS), Some(meant), "{name}");
        }
    }

    #[test]
    fn unlike_names_are_not_guessed() {
        for name in ["", "x", "batch_size", "invalid_key", "learning_rate"] {
            assert_eq!(nearest(name, KEYS), None, "{name}");
        }
        assert_eq!(nearest("gpu_ids", []), None);
    }
}
