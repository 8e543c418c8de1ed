//! Where parameters lie in one flat storage, and which part of each a rank keeps.

/// Parameters and shards begin at multiples of so many elements.
///
/// A kernel that goes over a slice then meets the same elements in its vector registers and in its
/// remainder as one that goes over the whole parameter, so both compute the same bits.
const ALIGNMENT: usize = 64;

/// Parameters one behind the other, cut into one shard of equal length for each rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    places: Vec<Place>,
    shard: usize,
    world: usize,
}

/// Where one parameter lies in the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: usize,
    pub(super) length: usize,
}

/// What a rank keeps of one parameter, which may be nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    /// Where it begins in the shard.
    pub(super) in_shard: usize,
    /// Where it begins in the parameter.
    pub(super) in_parameter: usize,
    pub(super) length: usize,
}

impl Layout {
    /// Lays parameters of these lengths out for `world` ranks.
    pub(super) fn new(lengths: impl IntoIterator<Item = usize>, world: usize) -> Self {
        let mut end = 0;
        let mut places = Vec::new();
        for length in lengths {
            places.push(Place { start: end, length });
            end = (end + length).next_multiple_of(ALIGNMENT);
        }
        let world = world.max(1);
        let shard = end.div_ceil(world).next_multiple_of(ALIGNMENT);
        Self {
            places,
            shard,
            world,
        }
    }

    /// The length of one shard.
    pub(super) fn shard(&self) -> usize {
        self.shard
    }

    /// The length of all shards together.
    pub(super) fn whole(&self) -> usize {
        self.shard * self.world
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// What `rank` keeps of each parameter.
    pub(super) fn slices(&self, rank: usize) -> impl Iterator<Item = Slice> + '_ {
        let (from, to) = (rank * self.shard, (rank + 1) * self.shard);
        self.places.iter().map(move |place| {
            let start = place.start.clamp(from, to);
            let end = (place.start + place.length).clamp(from, to);
            // A parameter of other ranks has no beginning here.
            let length = end - start;
            Slice {
                in_shard: if length == 0 { 0 } else { start - from },
                in_parameter: if length == 0 { 0 } else { start - place.start },
                length,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shards_are_equal_and_parameters_begin_at_multiples() {
        let layout = Layout::new([5, 64, 130], 2);
        let starts: Vec<_> = layout.places().iter().map(|place| place.start).collect();
        assert_eq!(starts, [0, 64, 128]);
        assert_eq!((layout.shard(), layout.whole()), (192, 384));
        let slice = |in_shard, in_parameter, length| Slice {
            in_shard,
            in_parameter,
            length,
        };
        let first: Vec<_> = layout.slices(0).collect();
        assert_eq!(first, [slice(0, 0, 5), slice(64, 0, 64), slice(128, 0, 64)]);
        let second: Vec<_> = layout.slices(1).collect();
        assert_eq!(second, [slice(0, 0, 0), slice(0, 0, 0), slice(0, 64, 66)]);
    }

    #[test]
    fn nothing_needs_no_room() {
        assert_eq!(Layout::new([], 3).whole(), 0);
    }

    proptest! {
        #[test]
        fn the_slices_of_all_ranks_are_the_parameters(
            lengths in proptest::collection::vec(0usize..400, 0..8),
            world in 1usize..6,
        ) {
            let layout = Layout::new(lengths.iter().copied(), world);
            for (index, &length) in lengths.iter().enumerate() {
                let mut next = 0;
                for rank in 0..world {
                    let slice = layout.slices(rank).nth(index).unwrap();
                    if slice.length == 0 {
                        continue;
                    }
                    prop_assert_eq!(slice.in_parameter, next);
                    prop_assert_eq!(slice.in_parameter % ALIGNMENT, 0);
                    prop_assert!(slice.in_shard + slice.length <= layout.shard());
                    let place = layout.places()[index];
                    let start = rank * layout.shard() + slice.in_shard;
                    prop_assert_eq!(start, place.start + slice.in_parameter);
                    next += slice.length;
                }
                prop_assert_eq!(next, length);
            }
        }
    }
}
