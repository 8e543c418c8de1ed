use tch::Kind;

/// Every kind of tensor that can travel between ranks, as a name or as its place in this list.
pub(crate) const KINDS: [Kind; 17] = [
    Kind::Uint8,
    Kind::Int8,
    Kind::Int16,
    Kind::Int,
    Kind::Int64,
    Kind::Half,
    Kind::Float,
    Kind::Double,
    Kind::ComplexHalf,
    Kind::ComplexFloat,
    Kind::ComplexDouble,
    Kind::Bool,
    Kind::BFloat16,
    Kind::Float8e5m2,
    Kind::Float8e4m3fn,
    Kind::Float8e5m2fnuz,
    Kind::Float8e4m3fnuz,
];
