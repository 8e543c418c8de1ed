//! What ranks tell each other when a backward pass begins.

use accelerate_torch::{ProcessGroup, ReduceOp, Work};
use tch::{Device, Tensor};

use crate::Result;

/// What a rank tells of one backward pass.
pub(super) struct Report<'r> {
    /// Whether its gradients go through the model.
    pub(super) goes_back: bool,
    /// The units that it used, in their order.
    pub(super) ran: &'r [usize],
    /// Of every unit, whether it keeps whole gradients of passes before, and was not used since.
    pub(super) left: &'r [bool],
}

/// Reports on their way.
///
/// One small message for each backward pass, which goes beside its first computations. Without it a
/// rank whose loss has nothing to do with the model would leave the others waiting, and one that used
/// other units would give them numbers that belong to something else.
pub(super) struct Agreement {
    values: Tensor,
    work: Work,
}

/// What all ranks told together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Whether gradients of any rank go through the model.
    pub(super) goes_back: bool,
    /// Whether all used the same units in the same order.
    pub(super) same_units: bool,
    /// Of every unit, whether any rank has whole gradients left.
    pub(super) left: Vec<bool>,
}

impl Agreement {
    /// # Collective
    /// Every rank of `group` calls this once for each backward pass.
    pub(super) fn start(group: &ProcessGroup, device: Device, own: &Report<'_>) -> Result<Self> {
        let values = Tensor::from_slice(&encoded(own)).f_to_device(device)?;
        let work = group.all_reduce_async(&values, ReduceOp::Max)?;
        Ok(Self { values, work })
    }

    /// Whether everybody has told.
    pub(super) fn is_complete(&self) -> Result<bool> {
        Ok(self.work.is_completed()?)
    }

    /// Waits for everybody.
    pub(super) fn finish(self) -> Result<Agreed> {
        self.work.wait()?;
        Ok(decoded(&Vec::<i64>::try_from(&self.values)?))
    }
}

/// Numbers of which the largest of all ranks are looked at: a digest and its negative are those of
/// everybody only if everybody's are alike.
fn encoded(own: &Report<'_>) -> Vec<i64> {
    let digest = digest(own.ran);
    let mut values = vec![i64::from(own.goes_back), digest, -digest];
    values.extend(own.left.iter().map(|&left| i64::from(left)));
    values
}

fn decoded(largest: &[i64]) -> Agreed {
    let [goes_back, most, least, left @ ..] = largest else {
        return Agreed {
            goes_back: false,
            same_units: true,
            left: Vec::new(),
        };
    };
    Agreed {
        goes_back: *goes_back > 0,
        same_units: *most == -*least,
        left: left.iter().map(|&left| left > 0).collect(),
    }
}

/// FNV-1a over the numbers of units, as a number that has a negative.
fn digest(units: &[usize]) -> i64 {
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    for &unit in units {
        digest = (digest ^ unit as u64).wrapping_mul(0x0100_0000_01b3);
    }
    i64::try_from(digest >> 1).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(reports: &[(bool, &[usize], &[bool])]) -> Agreed {
        let all = reports.iter().map(|&(goes_back, ran, left)| {
            encoded(&Report {
                goes_back,
                ran,
                left,
            })
        });
        let largest = all.reduce(|one, other| {
            let pairs = one.into_iter().zip(other);
            pairs.map(|(one, other)| one.max(other)).collect()
        });
        decoded(&largest.unwrap())
    }

    #[test]
    fn one_rank_is_enough_to_go_back() {
        let all = agreed(&[
            (false, &[0, 2, 1], &[false, true, false]),
            (true, &[0, 2, 1], &[true, false, false]),
        ]);
        let expected = Agreed {
            goes_back: true,
            same_units: true,
            left: vec![true, true, false],
        };
        assert_eq!(all, expected);
        assert!(!agreed(&[(false, &[], &[]), (false, &[], &[])]).goes_back);
    }

    #[test]
    fn other_units_and_other_orders_are_noticed() {
        for other in [&[0, 1, 2][..], &[0, 2], &[], &[0, 2, 1, 1]] {
            let all = agreed(&[(true, &[0, 2, 1], &[]), (true, other, &[])]);
            assert!(!all.same_units, "{other:?}");
        }
    }
}
