//! Where the first values of a model come from.

/// Where first values come from and who holds them when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Loading {
    /// Who reads weights.
    pub weights: WeightSource,
    /// Whether rank 0's parameters and buffers are sent to all ranks when the model is prepared.
    pub sync_module_states: bool,
    /// How a model is built.
    pub construction: Construction,
}

/// Who reads the weights of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightSource {
    /// Every rank.
    EveryRank,
    /// One rank; the others build the model without values and get them tensor by tensor.
    RankZero,
}

/// How a model is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Construction {
    /// Whole, then cut.
    Whole,
    /// Cut as each parameter is made, so that no rank ever holds the model (`zero3_init_flag`).
    InShards,
}
