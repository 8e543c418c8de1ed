//! Answers for machines of many kinds, and the files that they give.

use crate::command::Home;

/// What one user answers.
pub(crate) struct Interview {
    pub(crate) name: &'static str,
    /// One line per question.
    pub(crate) answers: &'static [&'static str],
    /// The same for the original, where it asks more.
    pub(crate) original_answers: Option<&'static [&'static str]>,
    /// The file that is written.
    pub(crate) file: &'static str,
}

pub(crate) const ALL: &[Interview] = &[
    Interview {
        name: "no distributed training",
        answers: &["", "", "", "", "", "", "", ""],
        original_answers: None,
        file: "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: 'NO'
downcast_bf16: 'no'
enable_cpu_affinity: false
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 1
num_processes: 1
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
",
    },
    Interview {
        name: "several CPU machines with mpirun",
        answers: &[
            "0",
            "1",
            "4",
            "1",
            "36.112.23.24",
            "29500",
            "no",
            "c10d",
            "yes",
            "yes",
            "/etc/hostfile",
            "",
            "16",
            "2",
        ],
        original_answers: None,
        file: "\
compute_environment: LOCAL_MACHINE
debug: true
distributed_type: MULTI_CPU
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 1
main_process_ip: 36.112.23.24
main_process_port: 29500
main_training_function: main
mixed_precision: bf16
mpirun_config:
  mpirun_hostfile: /etc/hostfile
num_machines: 4
num_processes: 16
rdzv_backend: c10d
same_network: false
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: true
",
    },
    Interview {
        name: "several GPUs",
        answers: &["", "4", "", "", "", "", "", "", "2", "0,1", "yes", "fp16"],
        original_answers: Some(&["", "4", "", "", "", "", "", "", "2", "0,1", "yes", "1"]),
        file: "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_GPU
downcast_bf16: 'no'
enable_cpu_affinity: true
gpu_ids: 0,1
machine_rank: 0
main_training_function: main
mixed_precision: fp16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
",
    },
    Interview {
        name: "FSDP 1",
        answers: &[
            "",
            "4",
            "1",
            "",
            "",
            "",
            "yes",
            "0",
            "1",
            "yes",
            "0",
            "no",
            "BertLayer,T5Block",
            "1",
            "2",
            "",
            "",
            "no",
            "",
            "",
            "4",
            "1",
        ],
        original_answers: None,
        file: "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_activation_checkpointing: false
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_POST
  fsdp_cpu_ram_efficient_loading: false
  fsdp_forward_prefetch: false
  fsdp_offload_params: true
  fsdp_reshard_after_forward: SHARD_GRAD_OP
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: BertLayer,T5Block
  fsdp_use_orig_params: true
  fsdp_version: 1
machine_rank: 0
main_training_function: main
mixed_precision: fp16
num_machines: 1
num_processes: 4
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
",
    },
    Interview {
        name: "FSDP 2 with other kinds of parallelism",
        answers: &[
            "", "4", "", "", "", "", "yes", "", "no", "", "1", "5000", "", "", "yes", "yes", "2",
            "2", "", "2", "1", "8", "2",
        ],
        original_answers: None,
        file: "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: SIZE_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_min_num_params: 5000
  fsdp_offload_params: false
  fsdp_reshard_after_forward: false
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_version: 2
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
parallelism_config:
  parallelism_config_cp_comm_strategy: alltoall
  parallelism_config_cp_size: 2
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 1
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
",
    },
    Interview {
        name: "DeepSpeed on two machines",
        answers: &[
            "",
            "4",
            "2",
            "0",
            "10.0.0.1",
            "29500",
            "",
            "",
            "",
            "yes",
            "",
            "3",
            "2",
            "2",
            "/disk/p",
            "/disk/o",
            "4",
            "yes",
            "0.5",
            "yes",
            "yes",
            "yes",
            "MixtralSparseMoeBlock",
            "0",
            "/job/hostfile",
            "yes",
            "worker-1:0",
            "no",
            "16",
            "0",
        ],
        original_answers: None,
        file: "\
compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_exclusion_filter: worker-1:0
  deepspeed_hostfile: /job/hostfile
  deepspeed_moe_layer_cls_names: MixtralSparseMoeBlock
  deepspeed_multinode_launcher: pdsh
  gradient_accumulation_steps: 4
  gradient_clipping: 0.5
  offload_optimizer_device: nvme
  offload_optimizer_nvme_path: /disk/o
  offload_param_device: nvme
  offload_param_nvme_path: /disk/p
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_process_ip: 10.0.0.1
main_process_port: 29500
main_training_function: main
mixed_precision: 'no'
num_machines: 2
num_processes: 16
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
",
    },
    Interview {
        name: "DeepSpeed with its own file",
        answers: &["", "0", "", "", "yes", "yes", "zero.json", "", "", "4"],
        original_answers: None,
        file: "\
compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_config_file: zero.json
  zero3_init_flag: false
distributed_type: DEEPSPEED
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
num_machines: 1
num_processes: 4
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
",
    },
    Interview {
        name: "Megatron-LM",
        answers: &[
            "", "4", "", "", "", "", "", "yes", "2", "", "2", "2", "", "no", "0.25", "4", "2",
        ],
        original_answers: None,
        file: "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MEGATRON_LM
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
megatron_lm_config:
  megatron_lm_gradient_clipping: 0.25
  megatron_lm_num_micro_batches: 2
  megatron_lm_pp_degree: 2
  megatron_lm_recompute_activations: true
  megatron_lm_sequence_parallelism: true
  megatron_lm_tp_degree: 2
  megatron_lm_use_distributed_optimizer: false
mixed_precision: bf16
num_machines: 1
num_processes: 4
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
",
    },
    Interview {
        name: "a pod of TPUs",
        answers: &[
            "",
            "10",
            "",
            "8",
            "train",
            "yes",
            "big",
            "us-central1-a",
            "",
            "yes",
            "",
            "echo a",
            "yes",
            "echo b",
            "no",
            "vm-1,vm-2",
            "A=1",
        ],
        original_answers: None,
        file: "\
commands:
- echo a
- echo b
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: XLA
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: train
mixed_precision: 'no'
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env:
- A=1
tpu_name: big
tpu_use_cluster: true
tpu_use_sudo: false
tpu_vm:
- vm-1
- vm-2
tpu_zone: us-central1-a
use_cpu: false
",
    },
    Interview {
        name: "SageMaker",
        answers: &[
            "1",
            "",
            "trainer",
            "eu-west-1",
            "role",
            "",
            "yes",
            "inputs.tsv",
            "",
            "1",
            "",
            "2",
            "yes",
            "3",
            "1",
        ],
        // It also asks whether the role exists.
        original_answers: Some(&[
            "1",
            "",
            "trainer",
            "eu-west-1",
            "0",
            "role",
            "",
            "yes",
            "inputs.tsv",
            "",
            "1",
            "",
            "2",
            "yes",
            "3",
            "1",
        ]),
        file: "\
base_job_name: accelerate-sagemaker-1
compute_environment: AMAZON_SAGEMAKER
debug: true
distributed_type: DATA_PARALLEL
ec2_instance_type: ml.p4dn.24xlarge
enable_cpu_affinity: false
gpu_ids: all
iam_role_name: role
mixed_precision: fp16
num_machines: 3
profile: trainer
py_version: py38
pytorch_version: 1.10.2
region: eu-west-1
sagemaker_inputs_file: inputs.tsv
transformers_version: 4.17.0
use_cpu: false
",
    },
    Interview {
        name: "compiled, in fp8 with Transformer Engine",
        answers: &[
            "", "", "", "yes", "", "yes", "1", "yes", "", "yes", "", "", "", "3", "1", "yes", "2",
            "", "1", "", "1", "yes", "", "yes", "",
        ],
        original_answers: None,
        file: "\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: 'NO'
downcast_bf16: 'no'
dynamo_config:
  dynamo_backend: INDUCTOR
  dynamo_mode: reduce-overhead
  dynamo_use_dynamic: false
  dynamo_use_fullgraph: true
  dynamo_use_regional_compilation: true
enable_cpu_affinity: false
fp8_config:
  amax_compute_algorithm: most_recent
  amax_history_length: 1024
  backend: TE
  fp8_format: E4M3
  interval: 1
  margin: 2
  override_linear_precision:
  - false
  - true
  - false
  use_autocast_during_eval: true
gpu_ids: all
machine_rank: 0
main_training_function: main
mixed_precision: fp8
num_machines: 1
num_processes: 1
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
",
    },
];

#[test]
fn answers_on_standard_input_become_a_file() {
    for interview in ALL {
        let home = Home::new();
        let arguments = ["config", "--config_file", "c.yaml"];
        let ended = home.answer(&arguments, interview.answers);
        let name = interview.name;
        assert_eq!(
            ended.stdout(),
            "configuration saved at c.yaml\n",
            "{name}: {}",
            ended.stderr()
        );
        assert_eq!(home.read("c.yaml"), interview.file, "{name}");
        // Every line was an answer: without the last one, there is no file.
        let home = Home::new();
        let (_, fewer) = interview.answers.split_last().unwrap();
        home.answer(&arguments, fewer).assert_code(1);
        assert!(!home.path("c.yaml").exists(), "{name}");
    }
}
