//! Which residual networks there are.

use super::config::CHECKS;
use crate::Result;

/// What a residual network is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResidualKind {
    /// Two 3x3 convolutions.
    Basic,
    /// A 1x1 convolution that narrows, a 3x3 convolution, and a 1x1 convolution that widens.
    Bottleneck,
}

impl ResidualKind {
    /// How many channels a block gives for each of its planes.
    pub const fn expansion(self) -> i64 {
        match self {
            Self::Basic => 1,
            Self::Bottleneck => 4,
        }
    }
}

/// The shape of a [`ResNet`](super::ResNet).
///
/// ```
/// use accelerate_models::resnet::ResNetArchitecture;
///
/// let digits = ResNetArchitecture::resnet18().with_num_classes(10);
/// assert_eq!(digits.depths, [2, 2, 2, 2]);
/// assert_eq!(ResNetArchitecture::from_name("resnet18"), Some(ResNetArchitecture::resnet18()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResNetArchitecture {
    /// What blocks are made of.
    pub block: ResidualKind,
    /// How many blocks each of the four stages has.
    pub depths: [usize; 4],
    /// How many classes there are; with none the model gives the pooled features.
    pub num_classes: i64,
    /// The channels of an image.
    pub in_channels: i64,
    /// The channels of the first stage; each further stage has twice as many. 64 in all that are
    /// published.
    pub planes: i64,
    /// Into how many groups the 3x3 convolutions of bottlenecks fall.
    pub groups: i64,
    /// The channels of each group in the first stage, for 64 `planes`.
    pub width_per_group: i64,
    /// Whether new blocks begin as the identity: the scale of their last norm is zero.
    pub zero_init_residual: bool,
}

/// Name, block, depths, groups, and the width of a group.
type Row = (&'static str, ResidualKind, [usize; 4], i64, i64);

const PUBLISHED: [Row; 10] = [
    ("resnet18", ResidualKind::Basic, [2, 2, 2, 2], 1, 64),
    ("resnet34", ResidualKind::Basic, [3, 4, 6, 3], 1, 64),
    ("resnet26", ResidualKind::Bottleneck, [2, 2, 2, 2], 1, 64),
    ("resnet50", ResidualKind::Bottleneck, [3, 4, 6, 3], 1, 64),
    ("resnet101", ResidualKind::Bottleneck, [3, 4, 23, 3], 1, 64),
    ("resnet152", ResidualKind::Bottleneck, [3, 8, 36, 3], 1, 64),
    (
        "wide_resnet50_2",
        ResidualKind::Bottleneck,
        [3, 4, 6, 3],
        1,
        128,
    ),
    (
        "wide_resnet101_2",
        ResidualKind::Bottleneck,
        [3, 4, 23, 3],
        1,
        128,
    ),
    (
        "resnext50_32x4d",
        ResidualKind::Bottleneck,
        [3, 4, 6, 3],
        32,
        4,
    ),
    (
        "resnext101_32x8d",
        ResidualKind::Bottleneck,
        [3, 4, 23, 3],
        32,
        8,
    ),
];

impl ResNetArchitecture {
    /// The names of all published networks, as torchvision and timm have them.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PUBLISHED.into_iter().map(|(name, ..)| name)
    }

    /// The published network of this name, for the 1000 classes of ImageNet.
    pub fn from_name(name: &str) -> Option<Self> {
        let row = PUBLISHED.into_iter().find(|(known, ..)| *known == name);
        row.map(|(_, block, depths, groups, width_per_group)| Self {
            groups,
            width_per_group,
            ..Self::new(block, depths)
        })
    }

    /// The name of the published network that has these blocks, whatever its classes and channels.
    pub fn name(&self) -> Option<&'static str> {
        let own = (self.block, self.depths, self.groups, self.width_per_group);
        let row = PUBLISHED
            .into_iter()
            .find(|(_, block, depths, groups, width)| own == (*block, *depths, *groups, *width));
        row.map(|(name, ..)| name)
    }

    /// A network of plain blocks, for the 1000 classes of ImageNet.
    pub fn new(block: ResidualKind, depths: [usize; 4]) -> Self {
        Self {
            block,
            depths,
            num_classes: 1000,
            in_channels: 3,
            planes: 64,
            groups: 1,
            width_per_group: 64,
            zero_init_residual: false,
        }
    }

    /// ResNet-18: 11.7 million parameters.
    pub fn resnet18() -> Self {
        Self::new(ResidualKind::Basic, [2, 2, 2, 2])
    }

    /// ResNet-34: 21.8 million parameters.
    pub fn resnet34() -> Self {
        Self::new(ResidualKind::Basic, [3, 4, 6, 3])
    }

    /// ResNet-50: 25.6 million parameters.
    pub fn resnet50() -> Self {
        Self::new(ResidualKind::Bottleneck, [3, 4, 6, 3])
    }

    /// ResNet-101: 44.5 million parameters.
    pub fn resnet101() -> Self {
        Self::new(ResidualKind::Bottleneck, [3, 4, 23, 3])
    }

    /// ResNet-152: 60.2 million parameters.
    pub fn resnet152() -> Self {
        Self::new(ResidualKind::Bottleneck, [3, 8, 36, 3])
    }

    /// The same network for another number of classes.
    #[must_use]
    pub fn with_num_classes(self, num_classes: i64) -> Self {
        Self {
            num_classes,
            ..self
        }
    }

    /// The same network for images of other channels.
    #[must_use]
    pub fn with_in_channels(self, in_channels: i64) -> Self {
        Self {
            in_channels,
            ..self
        }
    }

    /// The same network with another number of channels in the first stage.
    #[must_use]
    pub fn with_planes(self, planes: i64) -> Self {
        Self { planes, ..self }
    }

    /// The same network with wider or grouped 3x3 convolutions.
    #[must_use]
    pub fn with_groups(self, groups: i64, width_per_group: i64) -> Self {
        Self {
            groups,
            width_per_group,
            ..self
        }
    }

    /// The same network, with new blocks that begin as the identity.
    #[must_use]
    pub fn with_zero_init_residual(self) -> Self {
        Self {
            zero_init_residual: true,
            ..self
        }
    }

    /// The channels of the last stage.
    pub fn num_features(&self) -> i64 {
        self.planes * 8 * self.block.expansion()
    }

    /// The channels inside a bottleneck of so many planes.
    pub(super) fn inner_channels(&self, planes: i64) -> i64 {
        planes * self.width_per_group / 64 * self.groups
    }

    /// Whether a model can be built.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for the first setting that cannot be.
    pub fn check(&self) -> Result<()> {
        let refuse = |key, expected: &str, found: &dyn std::fmt::Display| {
            Err(CHECKS.refused(key, expected, found))
        };
        for (key, size) in [
            ("in_channels", self.in_channels),
            ("planes", self.planes),
            ("groups", self.groups),
            ("width_per_group", self.width_per_group),
        ] {
            if size < 1 {
                return refuse(key, "at least 1", &size);
            }
        }
        if self.num_classes < 0 {
            return refuse("num_classes", "no negative number", &self.num_classes);
        }
        if self.depths.contains(&0) {
            let found = format!("{:?}", self.depths);
            return refuse("depths", "at least one block in each stage", &found);
        }
        if self.inner_channels(self.planes) < 1 {
            let expected = "a width that leaves a channel in each group";
            return refuse("width_per_group", expected, &self.width_per_group);
        }
        if self.block == ResidualKind::Basic && (self.groups, self.width_per_group) != (1, 64) {
            let found = format!("{} of {}", self.groups, self.width_per_group);
            return refuse("groups", "1 group of width 64 in basic blocks", &found);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorthands_are_the_published_networks() {
        for (name, network) in [
            ("resnet18", ResNetArchitecture::resnet18()),
            ("resnet34", ResNetArchitecture::resnet34()),
            ("resnet50", ResNetArchitecture::resnet50()),
            ("resnet101", ResNetArchitecture::resnet101()),
            ("resnet152", ResNetArchitecture::resnet152()),
        ] {
            assert_eq!(ResNetArchitecture::from_name(name), Some(network), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_built_is_told() {
        let basic = ResNetArchitecture::resnet18;
        for (network, key) in [
            (basic().with_num_classes(-1), "num_classes"),
            (basic().with_in_channels(0), "in_channels"),
            (basic().with_groups(2, 64), "groups"),
            (
                ResNetArchitecture::resnet50()
                    .with_planes(8)
                    .with_groups(1, 4),
                "width_per_group",
            ),
            (
                ResNetArchitecture::new(ResidualKind::Basic, [1, 0, 1, 1]),
                "depths",
            ),
        ] {
            let error = network.check().unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}`")), "{network:?}: {error}");
        }
    }
}
