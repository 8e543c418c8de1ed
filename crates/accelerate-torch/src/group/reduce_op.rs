//! How values of several ranks become one.

use tch::{Kind, Tensor};

use super::{Backend, ProcessGroup, Work};
use crate::{Error, Result};

/// How values of several ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReduceOp {
    /// Their sum.
    Sum,
    /// Their sum, divided by the number of ranks. Floating point only.
    Avg,
    /// Their product.
    Product,
    /// The smallest.
    Min,
    /// The largest.
    Max,
}

impl ReduceOp {
    /// `c10d::ReduceOp::RedOpType`.
    pub(super) fn number(self) -> i32 {
        match self {
            Self::Sum => 0,
            Self::Avg => 1,
            Self::Product => 2,
            Self::Min => 3,
            Self::Max => 4,
        }
    }
}

impl ProcessGroup {
    /// Gloo has no average: sum, then divide what was written.
    pub(super) fn averaged(&self, op: ReduceOp, written: &[&Tensor]) -> Result<Averaged> {
        if op != ReduceOp::Avg || self.backend() == Backend::Nccl {
            return Ok(Averaged {
                op,
                divide: Vec::new(),
                by: 1,
            });
        }
        if let Some(tensor) = written.iter().find(|t| !is_floating(t.kind())) {
            return Err(Error::Argument {
                operation: "average over ranks",
                expected: "floating-point values".to_owned(),
                found: format!("{:?}", tensor.kind()),
            });
        }
        let divide = written
            .iter()
            .map(|tensor| tensor.shallow_clone())
            .collect();
        Ok(Averaged {
            op: ReduceOp::Sum,
            divide,
            by: self.size(),
        })
    }
}

/// An operation that may have to divide when it is done.
pub(super) struct Averaged {
    pub(super) op: ReduceOp,
    divide: Vec<Tensor>,
    by: usize,
}

impl Averaged {
    pub(super) fn finish(self, work: Work) -> Work {
        if self.divide.is_empty() {
            return work;
        }
        work.then(move || {
            let by = i64::try_from(self.by).unwrap_or(i64::MAX);
            tch::no_grad(|| {
                for tensor in &self.divide {
                    let _ = tensor.shallow_clone().f_div_scalar_(by)?;
                }
                Ok(())
            })
        })
    }
}

fn is_floating(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Half | Kind::BFloat16 | Kind::Float | Kind::Double
    )
}
