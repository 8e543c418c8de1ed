//! `config.json` as timm writes it.

use std::io::Write as _;
use std::path::Path;

use accelerate::checkpoint::{AtomicFile, Metadata, save_weights};
use accelerate::nn::{Factory, Module};
use serde::{Deserialize, Serialize};

use super::config::CHECKS;
use super::{ResNet, ResNetArchitecture};
use crate::pretrained::{CONFIG_FILE, ConfigFile, WEIGHTS_FILE};
use crate::{Error, Result};

/// What says which network it is.
#[derive(Debug, Serialize, Deserialize)]
struct TimmConfig {
    architecture: String,
    num_classes: Option<i64>,
    num_features: Option<i64>,
    #[serde(default)]
    model_args: ModelArgs,
}

/// What is given to timm's `create_model` beside the name.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ModelArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    in_chans: Option<i64>,
    /// Not of timm: the channels of the first stage, where they are not 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    planes: Option<i64>,
}

impl ResNet {
    /// The network of a folder that timm or [`save`](Self::save) wrote, in evaluation mode:
    /// `config.json` with the `architecture`, and the weights.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::ConfigFormat`] or [`Error::Config`] for the configuration, and as
    /// for [`with_weights_of`](Self::with_weights_of).
    pub fn from_folder(folder: impl AsRef<Path>, factory: &Factory) -> Result<Self> {
        let config: TimmConfig = ConfigFile::read(&folder)?.typed()?;
        Self::with_weights_of(folder, &config.try_into()?, factory)
    }

    /// Writes `config.json` and `model.safetensors` into a folder, which is made if it is absent;
    /// each file is whole or absent.
    ///
    /// timm reads the folder, unless the network has other [planes](ResNetArchitecture::planes)
    /// than those that are published.
    ///
    /// # Errors
    /// [`Error::Config`] if the network has no name, [`Error::SaveFolder`] if the folder cannot be
    /// made, and [`accelerate::Error::Formats`] if a file cannot be written.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let config = TimmConfig::try_from(self.architecture())?;
        let failed = |source| Error::SaveFolder {
            path: folder.to_owned(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
        save_weights(self, folder.join(WEIGHTS_FILE), &Metadata::pytorch())?;
        let text = serde_json::to_string_pretty(&config).map_err(|source| Error::WriteConfig {
            class: self.class_name().to_owned(),
            source,
        })?;
        let mut file =
            AtomicFile::create(folder.join(CONFIG_FILE)).map_err(accelerate::Error::from)?;
        writeln!(file, "{text}").map_err(failed)?;
        file.commit().map_err(accelerate::Error::from)?;
        Ok(())
    }
}

impl TryFrom<TimmConfig> for ResNetArchitecture {
    type Error = Error;

    fn try_from(config: TimmConfig) -> Result<Self> {
        let Some(mut network) = Self::from_name(&config.architecture) else {
            let known: Vec<_> = Self::names().map(|name| format!("`{name}`")).collect();
            let found = format!("`{}`", config.architecture);
            let expected = format!("one of {}", known.join(", "));
            return Err(CHECKS.refused("architecture", expected, &found));
        };
        network.num_classes = config.num_classes.unwrap_or(network.num_classes);
        network.in_channels = config.model_args.in_chans.unwrap_or(network.in_channels);
        network.planes = config.model_args.planes.unwrap_or(network.planes);
        network.check()?;
        Ok(network)
    }
}

impl TryFrom<&ResNetArchitecture> for TimmConfig {
    type Error = Error;

    fn try_from(network: &ResNetArchitecture) -> Result<Self> {
        let Some(name) = network.name() else {
            let found = format!("{:?} of depths {:?}", network.block, network.depths);
            let expected = "the blocks of a published network";
            return Err(CHECKS.refused("architecture", expected, &found));
        };
        let other = |value: i64, usual: i64| (value != usual).then_some(value);
        Ok(Self {
            architecture: name.to_owned(),
            num_classes: Some(network.num_classes),
            num_features: Some(network.num_features()),
            model_args: ModelArgs {
                in_chans: other(network.in_channels, 3),
                planes: other(network.planes, 64),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<ResNetArchitecture> {
        serde_json::from_str::<TimmConfig>(json).unwrap().try_into()
    }

    #[test]
    fn what_timm_writes_names_a_network() {
        let found = read(
            r#"{"architecture": "resnext50_32x4d", "num_classes": 7, "num_features": 2048,
                "model_args": {"in_chans": 1}, "pretrained_cfg": {"tag": "a1_in1k"}}"#,
        );
        let expected = ResNetArchitecture::resnet50()
            .with_groups(32, 4)
            .with_num_classes(7)
            .with_in_channels(1);
        assert_eq!(found.unwrap(), expected);
        let error = read(r#"{"architecture": "resnet50d"}"#)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`resnet50d`") && error.contains("`resnet50`"),
            "{error}"
        );
    }

    #[test]
    fn what_is_written_is_read() {
        let network = ResNetArchitecture::resnet34()
            .with_num_classes(5)
            .with_in_channels(1)
            .with_planes(16);
        let config = TimmConfig::try_from(&network).unwrap();
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(read(&json).unwrap(), network);
        let unnamed = network.with_groups(3, 64);
        assert!(TimmConfig::try_from(&unnamed).is_err());
    }
}
