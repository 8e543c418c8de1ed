//! ResNets as timm builds them, by name. Layers are the innermost modules.

use super::Skeleton;
use crate::estimate::module::{Bias, Module, batch_norm, conv2d, linear};

/// A ResNet of timm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Architecture {
    pub(crate) name: &'static str,
    depths: [u64; 4],
    bottleneck: bool,
    /// Groups of the 3x3 convolutions and channels of each at 64 channels.
    groups: (u64, u64),
}

/// The models that are known, in the order in which messages list them.
pub(crate) const ARCHITECTURES: [Architecture; 10] = [
    resnet("resnet18", [2, 2, 2, 2], false, (1, 64)),
    resnet("resnet34", [3, 4, 6, 3], false, (1, 64)),
    resnet("resnet26", [2, 2, 2, 2], true, (1, 64)),
    resnet("resnet50", [3, 4, 6, 3], true, (1, 64)),
    resnet("resnet101", [3, 4, 23, 3], true, (1, 64)),
    resnet("resnet152", [3, 8, 36, 3], true, (1, 64)),
    resnet("wide_resnet50_2", [3, 4, 6, 3], true, (1, 128)),
    resnet("wide_resnet101_2", [3, 4, 23, 3], true, (1, 128)),
    resnet("resnext50_32x4d", [3, 4, 6, 3], true, (32, 4)),
    resnet("resnext101_32x8d", [3, 4, 23, 3], true, (32, 8)),
];

const fn resnet(
    name: &'static str,
    depths: [u64; 4],
    bottleneck: bool,
    groups: (u64, u64),
) -> Architecture {
    Architecture {
        name,
        depths,
        bottleneck,
        groups,
    }
}

/// The architecture of this name.
pub(crate) fn find(name: &str) -> Option<&'static Architecture> {
    ARCHITECTURES.iter().find(|known| known.name == name)
}

impl Architecture {
    /// The model for images of so many channels. Without classes it ends after pooling.
    pub(crate) fn build(&self, channels: u64, classes: u64) -> Skeleton {
        let mut root = Module::new("ResNet")
            .child("conv1", conv2d(channels, 64, 7, Bias::No))
            .child("bn1", batch_norm(64));
        let expansion = if self.bottleneck { 4 } else { 1 };
        let names = ["layer1", "layer2", "layer3", "layer4"];
        let (mut inputs, mut planes) = (64, 64);
        for (name, depth) in names.into_iter().zip(self.depths) {
            let outputs = planes * expansion;
            let strided = planes > 64;
            let blocks = (0..depth).map(|number| match number {
                0 => self.block(inputs, planes, outputs, strided || inputs != outputs),
                _ => self.block(outputs, planes, outputs, false),
            });
            root = root.child(name, Module::sequence(blocks));
            (inputs, planes) = (outputs, planes * 2);
        }
        if classes > 0 {
            root = root.child("fc", linear(inputs, classes, Bias::Yes));
        }
        let no_split = Vec::new();
        Skeleton { root, no_split }
    }

    fn block(&self, inputs: u64, planes: u64, outputs: u64, adapted: bool) -> Module {
        let (groups, width) = self.groups;
        let inner = planes * width / 64 * groups;
        let block = if self.bottleneck {
            Module::new("Bottleneck")
                .child("conv1", conv2d(inputs, inner, 1, Bias::No))
                .child("bn1", batch_norm(inner))
                .child("conv2", conv2d(inner / groups, inner, 3, Bias::No))
                .child("bn2", batch_norm(inner))
                .child("conv3", conv2d(inner, outputs, 1, Bias::No))
                .child("bn3", batch_norm(outputs))
        } else {
            Module::new("BasicBlock")
                .child("conv1", conv2d(inputs, planes, 3, Bias::No))
                .child("bn1", batch_norm(planes))
                .child("conv2", conv2d(planes, outputs, 3, Bias::No))
                .child("bn2", batch_norm(outputs))
        };
        block.child_if(adapted, "downsample", || {
            Module::sequence([conv2d(inputs, outputs, 1, Bias::No), batch_norm(outputs)])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_published_models() {
        for (name, parameters) in [
            ("resnet18", 11_689_512),
            ("resnet34", 21_797_672),
            ("resnet50", 25_557_032),
            ("resnet101", 44_549_160),
            ("resnet152", 60_192_808),
            ("wide_resnet50_2", 68_883_240),
            ("wide_resnet101_2", 126_886_696),
            ("resnext50_32x4d", 25_028_904),
            ("resnext101_32x8d", 88_791_336),
        ] {
            let skeleton = find(name).unwrap().build(3, 1000);
            assert_eq!(skeleton.parameters(true), parameters, "{name}");
        }
    }

    #[test]
    fn resnet50_has_the_size_in_the_guide() {
        let skeleton = find("resnet50").unwrap().build(3, 1000);
        assert_eq!(skeleton.root.bytes(), 102_441_032);
        let largest = skeleton.largest_layer();
        assert_eq!(largest.bytes, 9_437_184);
        assert_eq!(largest.layers[0].name, "layer4.0.conv2");
    }
}
