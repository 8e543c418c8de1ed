//! Distances between tokens, in groups.

use accelerate::Result;
use tch::{Device, Kind, Tensor};

/// How distances are put into groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buckets {
    pub(super) count: i64,
    pub(super) max_distance: i64,
    /// Whether tokens on both sides are seen, each side with half of the groups.
    pub(super) bidirectional: bool,
}

impl Buckets {
    /// The group of each pair of a query and a key.
    ///
    /// The queries are the last `queries` of `past + queries` tokens. Half of the groups of a side
    /// are for one distance each, the others grow by a constant factor.
    ///
    /// # Shapes
    /// `[queries, keys]` of int64.
    pub(super) fn of_pairs(
        self,
        queries: i64,
        keys: i64,
        past: i64,
        device: Device,
    ) -> Result<Tensor> {
        let options = (Kind::Int64, device);
        let query = Tensor::f_arange_start(past, past + queries, options)?.f_unsqueeze(1)?;
        let key = Tensor::f_arange(keys, options)?.f_unsqueeze(0)?;
        let relative = key.f_sub(&query)?;
        if !self.bidirectional {
            let back = relative.f_clamp_max(0)?.f_neg()?;
            return Self::of_distances(&back, self.count, self.max_distance);
        }
        let side = self.count / 2;
        let after = relative
            .f_gt(0)?
            .f_to_kind(Kind::Int64)?
            .f_mul_scalar(side)?;
        let groups = Self::of_distances(&relative.f_abs()?, side, self.max_distance)?;
        Ok(groups.f_add(&after)?)
    }

    /// The group of each distance, which is not negative.
    fn of_distances(distance: &Tensor, count: i64, max_distance: i64) -> Result<Tensor> {
        let exact = count / 2;
        let growth = (max_distance as f64 / exact as f64).ln();
        let large = distance
            .f_to_kind(Kind::Float)?
            .f_div_scalar(exact)?
            .f_log()?
            .f_div_scalar(growth)?
            .f_mul_scalar(count - exact)?
            // Distance 0 is minus infinity here, and not chosen below.
            .f_clamp_min(0)?
            .f_to_kind(Kind::Int64)?
            .f_add_scalar(exact)?
            .f_clamp_max(count - 1)?;
        Ok(distance.f_where_self(&distance.f_lt(exact)?, &large)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_exact_when_near_and_wide_when_far() {
        let both = Buckets {
            count: 8,
            max_distance: 16,
            bidirectional: true,
        };
        let groups = both.of_pairs(1, 41, 20, Device::Cpu).unwrap();
        let at = |relative: i64| groups.int64_value(&[0, relative + 20]);
        for (relative, group) in [
            (0, 0),
            (-1, 1),
            (-2, 2),
            (-5, 2),
            (-6, 3),
            (-20, 3),
            (1, 5),
            (2, 6),
            (6, 7),
            (20, 7),
        ] {
            assert_eq!(at(relative), group, "{relative}");
        }
        let back = Buckets {
            bidirectional: false,
            ..both
        };
        let groups = back.of_pairs(2, 3, 1, Device::Cpu).unwrap();
        assert_eq!(
            Vec::<Vec<i64>>::try_from(&groups).unwrap(),
            [[1, 0, 0], [2, 1, 0]]
        );
    }
}
