//! The values that settings choose from.

use crate::choice::choices;

choices! {
    /// Where a job runs.
    ComputeEnvironment ("compute environment") {
        /// On machines that the user has.
        LocalMachine = "LOCAL_MACHINE",
        /// As a job of Amazon SageMaker.
        AmazonSagemaker = "AMAZON_SAGEMAKER",
    }

    /// What kind of job a config file describes.
    DistributedType ("kind of job") {
        /// One process.
        No = "NO",
        /// Processes on CPUs.
        MultiCpu = "MULTI_CPU",
        /// One process per CUDA device.
        MultiGpu = "MULTI_GPU",
        /// One process per Ascend device.
        MultiNpu = "MULTI_NPU",
        /// One process per Cambricon device.
        MultiMlu = "MULTI_MLU",
        /// One process per Moore Threads device.
        MultiMusa = "MULTI_MUSA",
        /// One process per Intel GPU.
        MultiXpu = "MULTI_XPU",
        /// One process per SDAA device.
        MultiSdaa = "MULTI_SDAA",
        /// One process per Gaudi device.
        MultiHpu = "MULTI_HPU",
        /// One process per Neuron core.
        MultiNeuron = "MULTI_NEURON",
        /// Sharded, told in the words of DeepSpeed.
        DeepSpeed = "DEEPSPEED",
        /// Sharded, told in the words of FSDP.
        Fsdp = "FSDP",
        /// TPUs.
        Xla = "XLA" | "TPU",
        /// Sharded, told in the words of Megatron-LM.
        MegatronLm = "MEGATRON_LM",
    }

    /// How a SageMaker job is distributed.
    SageMakerDistribution ("kind of job") {
        /// One machine, one process.
        No = "NO",
        /// Data parallel.
        DataParallel = "DATA_PARALLEL",
        /// Model parallel.
        ModelParallel = "MODEL_PARALLEL",
    }

    /// How launchers on several machines find each other.
    RdzvBackend ("rendezvous") {
        /// Each has a fixed number.
        Static = "static",
        /// They are numbered as they arrive, and may arrive again.
        C10d = "c10d",
    }

    /// Which version of FSDP's words is meant.
    FsdpVersion ("version") {
        /// Wrapped modules with flat parameters.
        One = "1",
        /// Parameters sharded one by one.
        Two = "2",
    }

    /// What FSDP shards over which ranks.
    ShardingStrategy ("sharding strategy") {
        /// Parameters, gradients and optimizer state over all ranks.
        FullShard = "FULL_SHARD" | "1",
        /// Gradients and optimizer state over all ranks.
        ShardGradOp = "SHARD_GRAD_OP" | "2",
        /// Nothing.
        NoShard = "NO_SHARD" | "3",
        /// As `FULL_SHARD` within a machine, copies between machines.
        HybridShard = "HYBRID_SHARD" | "4",
        /// As `SHARD_GRAD_OP` within a machine, copies between machines.
        HybridShardZero2 = "HYBRID_SHARD_ZERO2" | "_HYBRID_SHARD_ZERO2" | "5",
    }

    /// Which modules FSDP makes into units.
    AutoWrapPolicy ("wrap policy") {
        /// Modules of named classes.
        TransformerBasedWrap = "TRANSFORMER_BASED_WRAP",
        /// Modules above a number of parameters.
        SizeBasedWrap = "SIZE_BASED_WRAP",
        /// None: the whole model is one unit.
        NoWrap = "NO_WRAP",
    }

    /// When FSDP gathers the next unit in the backward pass.
    BackwardPrefetch ("prefetch policy") {
        /// Before the gradients of this unit are computed.
        BackwardPre = "BACKWARD_PRE" | "1",
        /// After them.
        BackwardPost = "BACKWARD_POST" | "2",
        /// When it is needed.
        NoPrefetch = "NO_PREFETCH" | "3",
    }

    /// How FSDP saves a model.
    StateDictType ("kind of state dict") {
        /// Whole, by rank 0.
        Full = "FULL_STATE_DICT" | "1",
        /// Each rank its flat parameters.
        Local = "LOCAL_STATE_DICT" | "2",
        /// Each rank its shards.
        Sharded = "SHARDED_STATE_DICT" | "3",
    }

    /// Where DeepSpeed keeps what does not stay on the device.
    OffloadDevice ("device") {
        /// On the device.
        None = "none",
        /// In memory.
        Cpu = "cpu",
        /// On disk.
        Nvme = "nvme",
    }

    /// What starts the processes of a DeepSpeed job on other machines.
    MultinodeLauncher ("launcher") {
        /// The parallel shell.
        Pdsh = "pdsh",
        /// This launcher, started on each machine by the user.
        Standard = "standard",
        /// Open MPI.
        OpenMpi = "openmpi",
        /// MVAPICH.
        Mvapich = "mvapich",
        /// MPICH or Intel MPI.
        Mpich = "mpich",
        /// This launcher, with the machines of the host file.
        NoSsh = "nossh",
        /// SLURM.
        Slurm = "slurm",
    }

    /// Which package computes in FP8.
    Fp8Backend ("backend") {
        /// Transformer Engine.
        Te = "TE",
        /// MS-AMP.
        Msamp = "MSAMP",
        /// torchao.
        Ao = "AO",
    }

    /// Which 8-bit float is used where.
    Fp8Format ("format") {
        /// E4M3 forward, E5M2 backward.
        Hybrid = "HYBRID",
        /// Four exponent bits.
        E4m3 = "E4M3",
        /// Five exponent bits.
        E5m2 = "E5M2",
    }

    /// How the scale follows from earlier maxima.
    AmaxComputeAlgo ("algorithm") {
        /// The last one.
        MostRecent = "most_recent",
        /// The largest one.
        Max = "max",
    }

    /// How much MS-AMP keeps in FP8.
    Fp8OptLevel ("level") {
        /// Weight gradients.
        O1 = "O1",
        /// Optimizer states too.
        O2 = "O2",
    }

    /// Which compiler turns the model into kernels.
    DynamoBackend ("backend") {
        /// None.
        No = "NO",
        /// The graph as it is.
        Eager = "EAGER",
        /// The traced graphs of forward and backward.
        AotEager = "AOT_EAGER",
        /// Fused kernels.
        Inductor = "INDUCTOR",
        /// nvFuser with TorchScript.
        AotTsNvfuser = "AOT_TS_NVFUSER",
        /// nvFuser with primitives.
        NvprimsNvfuser = "NVPRIMS_NVFUSER",
        /// CUDA graphs.
        Cudagraphs = "CUDAGRAPHS",
        /// Optimised for inference.
        Ofi = "OFI",
        /// TensorRT through FX.
        Fx2trt = "FX2TRT",
        /// ONNX Runtime.
        Onnxrt = "ONNXRT",
        /// TensorRT through ONNX.
        Tensorrt = "TENSORRT",
        /// XLA for training.
        AotTorchxlaTraceOnce = "AOT_TORCHXLA_TRACE_ONCE",
        /// XLA for inference.
        TorchxlaTraceOnce = "TORCHXLA_TRACE_ONCE" | "TORHCHXLA_TRACE_ONCE",
        /// TVM.
        Tvm = "TVM",
        /// Gaudi.
        HpuBackend = "HPU_BACKEND",
        /// Neuron.
        Neuron = "NEURON",
        /// Intel's extension, in old files.
        Ipex = "IPEX",
    }

    /// What the compiler optimises for.
    DynamoMode ("mode") {
        /// Speed and memory.
        Default = "default",
        /// Small batches.
        ReduceOverhead = "reduce-overhead",
        /// Speed, at the price of a long compilation.
        MaxAutotune = "max-autotune",
    }

    /// What is computed again in the backward pass.
    RecomputeGranularity ("granularity") {
        /// Whole layers.
        Full = "full",
        /// The core of attention.
        Selective = "selective",
    }

    /// Which layers are computed again.
    RecomputeMethod ("method") {
        /// Evenly spread.
        Uniform = "uniform",
        /// The first of each stage.
        Block = "block",
    }

    /// How context-parallel ranks exchange keys and values.
    CpCommStrategy ("strategy") {
        /// Everyone gathers all.
        AllGather = "allgather",
        /// Each passes its part on.
        AllToAll = "alltoall",
    }

    /// Whose context parallelism.
    CpBackend ("backend") {
        /// PyTorch's.
        Torch = "torch",
    }

    /// Whose sequence parallelism.
    SpBackend ("backend") {
        /// DeepSpeed's.
        DeepSpeed = "deepspeed",
    }
}
