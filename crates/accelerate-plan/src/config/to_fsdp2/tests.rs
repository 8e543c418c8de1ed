use super::*;
use crate::config::yaml;

fn convert(text: &str) -> (Value, Vec<ConversionWarning>) {
    let Conversion { value, warnings } = to_fsdp2(&yaml::parse(text).unwrap().to_value());
    (value, warnings)
}

fn value(text: &str) -> Value {
    yaml::parse(text).unwrap().to_value()
}

#[test]
fn settings_are_renamed_kept_or_left_out() {
    let (converted, warnings) = convert(
        "distributed_type: FSDP\n\
         fsdp_config:\n\
         \x20 fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n\
         \x20 fsdp_backward_prefetch: BACKWARD_PRE\n\
         \x20 fsdp_forward_prefetch: false\n\
         \x20 fsdp_cpu_ram_efficient_loading: true\n\
         \x20 fsdp_offload_params: false\n\
         \x20 fsdp_sharding_strategy: SHARD_GRAD_OP\n\
         \x20 fsdp_sync_module_states: true\n\
         \x20 fsdp_use_orig_params: true\n\
         \x20 fsdp_something_new: [1, null]\n\
         num_processes: 2\n",
    );
    let expected = value(
        "distributed_type: FSDP\n\
         fsdp_config:\n\
         \x20 fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n\
         \x20 fsdp_cpu_ram_efficient_loading: true\n\
         \x20 fsdp_offload_params: false\n\
         \x20 fsdp_reshard_after_forward: false\n\
         \x20 fsdp_something_new: [1, null]\n\
         \x20 fsdp_version: 2\n\
         num_processes: 2\n",
    );
    assert_eq!(converted, expected);
    let named: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        named,
        [
            "`fsdp_backward_prefetch` was left out: FSDP 2 has no such setting",
            "`fsdp_forward_prefetch` was left out: FSDP 2 does not have it yet",
            "`fsdp_sync_module_states` was left out: FSDP 2 has no such setting",
            "`fsdp_use_orig_params` was left out: FSDP 2 has no such setting",
        ]
    );
}

#[test]
fn strategies_become_a_truth_value() {
    for (written, reshard) in [
        ("fsdp_sharding_strategy: FULL_SHARD", "true"),
        ("fsdp_sharding_strategy: SHARD_GRAD_OP", "false"),
        ("fsdp_sharding_strategy: NO_SHARD", "false"),
        ("fsdp_sharding_strategy: HYBRID_SHARD", "true"),
        ("fsdp_sharding_strategy: HYBRID_SHARD_ZERO2", "false"),
        ("fsdp_reshard_after_forward: FULL_SHARD", "true"),
        ("fsdp_reshard_after_forward: NO_SHARD", "false"),
        ("fsdp_reshard_after_forward: true", "true"),
        ("fsdp_reshard_after_forward: 4", "4"),
        ("fsdp_reshard_after_forward: '4'", "'4'"),
        ("fsdp_sharding_strategy: 1", "true"),
        ("fsdp_sharding_strategy: '3'", "false"),
        ("fsdp_sharding_strategy: 5", "false"),
        ("fsdp_sharding_strategy: 0", "0"),
        ("fsdp_sharding_strategy: -1", "-1"),
        ("fsdp_sharding_strategy: 6", "6"),
        ("fsdp_sharding_strategy: MINE", "MINE"),
        ("sharding_strategy: NO_SHARD", "false"),
    ] {
        let (converted, warnings) =
            convert(&format!("fsdp_config: {{{written}, fsdp_version: 1}}"));
        let expected = value(&format!(
            "fsdp_config: {{fsdp_reshard_after_forward: {reshard}, fsdp_version: 2}}"
        ));
        assert_eq!(converted, expected, "{written}");
        assert_eq!(warnings, [], "{written}");
    }
}

#[test]
fn of_two_strategies_the_later_one_counts() {
    let (converted, warnings) = convert(
        "fsdp_config: {fsdp_reshard_after_forward: true, fsdp_sharding_strategy: SHARD_GRAD_OP}",
    );
    let expected = value("fsdp_config: {fsdp_reshard_after_forward: false, fsdp_version: 2}");
    assert_eq!(converted, expected);
    assert!(matches!(
        &warnings[..],
        [ConversionWarning::Overridden { .. }]
    ));
}

#[test]
fn what_cannot_be_converted_is_left_alone() {
    for (text, warning) in [
        ("num_processes: 2", ConversionWarning::NoSection),
        ("fsdp_config: {}", ConversionWarning::NoSection),
        ("fsdp_config:", ConversionWarning::NoSection),
        ("[]", ConversionWarning::NoSection),
        ("fsdp_config: [a]", ConversionWarning::SectionNotAMap),
        (
            "fsdp_config: {fsdp_version: 2, fsdp_use_orig_params: true}",
            ConversionWarning::AlreadyVersion2,
        ),
        (
            "fsdp_config: {fsdp_version: '2'}",
            ConversionWarning::AlreadyVersion2,
        ),
    ] {
        assert_eq!(convert(text), (value(text), vec![warning]), "{text}");
    }
}
