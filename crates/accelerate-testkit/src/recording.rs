/// Whether this processor computes matrix products and sums as the one of a recording did, to the
/// last bit.
///
/// Takes what the recording says under `made_with`: the `processor`'s name and its vector
/// `kernels`. Elsewhere numbers are equal but for the order of sums.
#[must_use]
pub fn recorded_here(processor: &str, kernels: &str) -> bool {
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let wide = processors.contains(" avx512f");
    name.is_some_and(|(_, name)| name == processor) && wide == (kernels == "AVX512")
}
