//! Where the parts of a plan came from.

use std::collections::BTreeMap;

use crate::{choice::choices, settings::Origin};

choices! {
    /// A part of a plan, by the name that the plan is shown with.
    #[derive(PartialOrd, Ord)]
    Part ("part of a plan") {
        /// Whose words.
        Dialect = "told as",
        /// The ranks as a grid.
        Mesh = "ranks",
        /// What is in shards.
        Sharded = "sharded",
        /// What becomes of parameters after the forward pass.
        AfterForward = "after forward",
        /// Which modules are units.
        Wrap = "units",
        /// Which modules stay whole.
        Ignored = "left out",
        /// When units are gathered.
        Prefetch = "prefetch",
        /// The types of numbers.
        Precision = "precision",
        /// How parameters travel.
        WeightWire = "weights travel",
        /// How gradients travel.
        GradientWire = "gradients travel",
        /// Where parameters are kept.
        OffloadParameters = "parameters kept",
        /// Where gradients are kept.
        OffloadGradients = "gradients kept",
        /// Where optimizer state is kept.
        OffloadOptimizer = "optimizer kept",
        /// What is computed again.
        Recompute = "recomputed",
        /// Where first values come from.
        Loading = "loading",
        /// Whether modules show their own parameters.
        OrigParams = "parameters shown",
        /// How it is saved.
        StateDict = "saved",
        /// The largest norm of gradients.
        Clipping = "clipped",
        /// Over how many batches gradients are added up.
        Accumulation = "accumulated",
    }
}

/// Where those parts of a plan came from that somebody chose.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Origins {
    parts: BTreeMap<Part, Vec<Origin>>,
}

impl Origins {
    /// Notes where a part came from. Several settings can make one part; defaults are not noted.
    pub fn note(&mut self, part: Part, origin: &Origin) {
        if matches!(origin, Origin::Default) {
            return;
        }
        let known = self.parts.entry(part).or_default();
        if !known.contains(origin) {
            known.push(origin.clone());
        }
    }

    /// Where a part came from, in the order in which it was noted; empty for what nobody chose.
    pub fn of(&self, part: Part) -> &[Origin] {
        self.parts.get(&part).map_or(&[], Vec::as_slice)
    }
}
