//! Fewer points for the same picture.

/// A line is drawn through at most twice as many points.
const BUCKETS: usize = 1000;

/// The points, or of each of many stretches the lowest and the highest one. Gaps stay gaps.
pub(super) fn thinned(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    if points.len() <= 2 * BUCKETS {
        return points.to_vec();
    }
    points
        .chunks(points.len().div_ceil(BUCKETS))
        .flat_map(extremes)
        .collect()
}

/// The lowest and the highest point in their order; one that is no number before all others.
fn extremes(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    if let Some(gap) = points.iter().find(|(_, value)| !value.is_finite()) {
        return vec![*gap];
    }
    let value = |&index: &usize| points[index].1;
    let by_value = |a: &usize, b: &usize| value(a).total_cmp(&value(b));
    let (Some(low), Some(high)) = (
        (0..points.len()).min_by(by_value),
        (0..points.len()).max_by(by_value),
    ) else {
        return Vec::new();
    };
    match low.cmp(&high) {
        std::cmp::Ordering::Equal => vec![points[low]],
        std::cmp::Ordering::Less => vec![points[low], points[high]],
        std::cmp::Ordering::Greater => vec![points[high], points[low]],
    }
}
