use super::*;
use crate::{Hint, MixedPrecision, config::yaml, settings::*};

fn read(text: &str) -> Result<ConfigFile, ConfigError> {
    ConfigFile::of(RawFile::parse("job.yaml", text)?)
}

fn settings(text: &str) -> Settings {
    Settings::resolve([read(text).unwrap().layer])
}

#[test]
fn every_value_knows_its_line() {
    let settings = settings("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n");
    assert_eq!(settings.get(&FSDP_VERSION), Some(FsdpVersion::Two));
    assert_eq!(settings.origin(&FSDP_VERSION).to_string(), "job.yaml:3");
}

#[test]
fn keys_of_sections_may_leave_out_their_prefix() {
    let settings = settings(
        "distributed_type: FSDP\n\
         mixed_precision: fp8\n\
         fsdp_config: {version: 2, offload_params: true}\n\
         fp8_config:\n  backend: te\n  amax_history_length: 32\n  amax_compute_algorithm: max\n  \
         override_linear_precision: (false, true, false)\n\
         dynamo_config: {backend: inductor, dynamo_mode: default}\n",
    );
    assert_eq!(settings.get(&FSDP_VERSION), Some(FsdpVersion::Two));
    assert!(settings.is_on(&FSDP_OFFLOAD_PARAMS));
    assert_eq!(settings.get(&FP8_BACKEND), Some(Fp8Backend::Te));
    assert_eq!(settings.get(&FP8_AMAX_HISTORY_LEN), Some(32));
    assert_eq!(
        settings.get(&FP8_AMAX_COMPUTE_ALGO),
        Some(AmaxComputeAlgo::Max)
    );
    assert_eq!(settings.get(&DYNAMO_BACKEND), Some(DynamoBackend::Inductor));
    assert!(settings.get(&FP8_OVERRIDE_LINEAR_PRECISION).unwrap().dgrad);
}

#[test]
fn unquoted_no_and_numbers_as_text_are_understood() {
    let settings = settings(
        "distributed_type: NO\nmixed_precision: no\ndowncast_bf16: 'no'\nnum_processes: '2'\n\
         gpu_ids: 0\nnum_machines: 1\nfsdp_config: {fsdp_min_num_params: 1e8}\n",
    );
    assert_eq!(settings.get(&DISTRIBUTED_TYPE), Some(DistributedType::No));
    assert_eq!(settings.get(&MIXED_PRECISION), Some(MixedPrecision::No));
    assert_eq!(
        settings.get(&NUM_PROCESSES).map(|count| count.get()),
        Some(2)
    );
    assert_eq!(settings.get(&GPU_IDS).as_deref(), Some("0"));
    assert_eq!(settings.get(&FSDP_MIN_NUM_PARAMS), Some(100_000_000));
}

#[test]
fn what_older_versions_wrote_is_understood_with_a_notice() {
    let file = read("distributed_type: TPU\nfp16: true\ndynamo_backend: 'NO'\nnum_processes: -1\n");
    let file = file.unwrap();
    let lines: Vec<_> = file.notices.iter().map(|notice| notice.line).collect();
    assert_eq!(lines, [2, 3, 1]);
    let settings = Settings::resolve([file.layer]);
    assert_eq!(settings.get(&MIXED_PRECISION), Some(MixedPrecision::Fp16));
    assert_eq!(settings.get(&DISTRIBUTED_TYPE), Some(DistributedType::Xla));
    assert_eq!(settings.get(&DYNAMO_BACKEND), Some(DynamoBackend::No));
    assert_eq!(settings.get(&NUM_PROCESSES), None);
}

#[test]
fn unknown_keys_are_refused_with_line_and_nearest_name() {
    let error = read(
        "distributed_type: FSDP\nnum_proceses: 2\ninvalid_key: 1\nfsdp_config:\n  fsdp_verson: 2\n",
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "config file `job.yaml` has unknown keys: `fsdp_config.fsdp_verson` (line 5), \
         `invalid_key` (line 3), `num_proceses` (line 2)"
    );
    let hint = error.hint().unwrap();
    assert!(
        hint.contains("`fsdp_version` instead of `fsdp_config.fsdp_verson`"),
        "{hint}"
    );
    assert!(
        hint.contains("`num_processes` instead of `num_proceses`"),
        "{hint}"
    );
}

#[test]
fn wrong_values_name_line_key_and_what_is_allowed() {
    let error = |text: &str| read(text).unwrap_err().to_string();
    assert_eq!(
        error("distributed_type: MULTI_GPU\nnum_machines: two\n"),
        "`job.yaml:2`: `num_machines`: expected a whole number, at least 1, found the text `two`"
    );
    assert!(error("distributed_type: MULTI_GPUS\n").contains("`MULTI_GPU`"));
    assert!(error("distributed_type: 'NO'\nnum_processes: [1]\n").contains("`job.yaml:2`"));
    assert!(error("distributed_type: 'NO'\nfsdp_config: 5\n").contains("`job.yaml:2`"));
    assert!(error("compute_environment: MARS\n").contains("`AMAZON_SAGEMAKER`"));
    assert!(error("compute_environment: AMAZON_SAGEMAKER\n").contains("`DATA_PARALLEL`"));
}

#[test]
fn a_file_may_leave_the_kind_of_job_open() {
    let settings = settings("mixed_precision: fp8\nfp8_config: {backend: TE}\n");
    assert_eq!(settings.get(&DISTRIBUTED_TYPE), None);
    assert_eq!(settings.get(&FP8_BACKEND), Some(Fp8Backend::Te));
}

#[test]
fn a_record_for_sagemaker_has_other_keys() {
    let text = "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: DATA_PARALLEL\n\
                ec2_instance_type: ml.p3.2xlarge\niam_role_name: trainer\nnum_machines: 2\n\
                additional_args: {max_run: 3600}\n";
    let file = read(text).unwrap();
    assert_eq!(file.record, Record::SageMaker);
    let settings = Settings::resolve([file.layer]);
    assert_eq!(settings.get(&REGION).as_deref(), Some("us-east-1"));
    assert_eq!(
        settings.get(&SAGEMAKER_DISTRIBUTED_TYPE),
        Some(SageMakerDistribution::DataParallel)
    );
    let error = read(&format!("{text}fsdp_config: {{}}\n")).unwrap_err();
    assert!(
        error.to_string().contains("`fsdp_config` (line 7)"),
        "{error}"
    );
}

#[test]
fn an_updated_record_has_the_defaults_of_its_top_level() {
    let file = read("distributed_type: 'NO'\nfp16: true\nfsdp_config: {}\n").unwrap();
    assert_eq!(
        yaml::write(&file.updated()),
        "compute_environment: LOCAL_MACHINE\n\
         debug: false\n\
         distributed_type: 'NO'\n\
         downcast_bf16: false\n\
         enable_cpu_affinity: false\n\
         machine_rank: 0\n\
         main_training_function: main\n\
         mixed_precision: fp16\n\
         num_machines: 1\n\
         num_processes: 1\n\
         rdzv_backend: static\n\
         same_network: false\n\
         tpu_use_cluster: false\n\
         tpu_use_sudo: false\n\
         use_cpu: false\n"
    );
}
