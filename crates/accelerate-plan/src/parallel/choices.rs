//! Choices of a plan that have a name and nothing more.

use crate::choice::choices;

choices! {
    /// Whose words a plan was told in.
    Dialect ("dialect") {
        /// Nobody's: every rank holds everything.
        Plain = "data parallel",
        /// FSDP, version 1.
        Fsdp1 = "FSDP 1",
        /// FSDP, version 2.
        Fsdp2 = "FSDP 2",
        /// DeepSpeed.
        DeepSpeed = "DeepSpeed",
        /// Megatron-LM.
        MegatronLm = "Megatron-LM",
    }

    /// A type of numbers that a plan can ask for.
    FloatType ("type of numbers") {
        /// 32 bits.
        Float32 = "float32" | "fp32" | "torch.float32",
        /// 16 bits, of which 5 are for the exponent.
        Float16 = "float16" | "fp16" | "torch.float16",
        /// 16 bits, of which 8 are for the exponent.
        BFloat16 = "bfloat16" | "bf16" | "torch.bfloat16",
    }

    /// Which activations are computed again in the backward pass.
    Recompute ("recomputation") {
        /// None: all are kept.
        Nothing = "nothing",
        /// Those inside of each unit; its inputs are kept.
        Units = "inside of each unit",
        /// The same, and the inputs of units wait in CPU memory.
        UnitsOffloaded = "inside of each unit, whose inputs wait in CPU memory",
    }
}

impl FloatType {
    /// Bytes of one number.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Float32 => 4,
            Self::Float16 | Self::BFloat16 => 2,
        }
    }
}
