//! From an image to vectors.

use accelerate::nn::{
    Conv2d, Conv2dOptions, Dropout, Factory, Forward, Init, Module, ModuleState, Parameter, init,
};
use accelerate::{Error, Result};
use tch::{Kind, Tensor};

use super::ViTConfig;

/// One vector for each patch.
///
/// # Shapes
/// `[batch, num_channels, height, width]` to `[batch, patches, hidden_size]`.
#[derive(Debug, Clone, Module)]
pub struct ViTPatchEmbeddings {
    projection: Conv2d,
    #[module(skip)]
    num_channels: i64,
    state: ModuleState,
}

impl ViTPatchEmbeddings {
    fn new(config: &ViTConfig, factory: &Factory) -> Result<Self> {
        let patch = config.patch_size.sides();
        let options = Conv2dOptions {
            stride: patch,
            ..Conv2dOptions::default()
        };
        let (inputs, outputs) = (config.num_channels, config.hidden_size);
        Ok(Self {
            projection: Conv2d::new(inputs, outputs, patch, options, factory)?,
            num_channels: inputs,
            state: ModuleState::default(),
        })
    }
}

impl Forward for ViTPatchEmbeddings {
    type Input = Tensor;
    type Output = Tensor;

    fn forward(&self, images: Tensor) -> Result<Tensor> {
        let shape = images.size();
        if shape.len() != 4 || shape.get(1) != Some(&self.num_channels) {
            let channels = self.num_channels;
            return Err(refused(
                &format!("[batch, {channels}, height, width]"),
                &images,
            ));
        }
        let patches = self.projection.call(images)?;
        Ok(patches.f_flatten(2, -1)?.f_transpose(1, 2)?)
    }
}

/// The vectors of all patches with one for the whole image before them, and their positions added.
///
/// # Shapes
/// - input: `[batch, num_channels, height, width]`, and whether positions are stretched for images
///   of another size than the configuration's
/// - output: `[batch, 1 + patches, hidden_size]`
#[derive(Debug, Clone, Module)]
pub struct ViTEmbeddings {
    cls_token: Parameter,
    position_embeddings: Parameter,
    patch_embeddings: ViTPatchEmbeddings,
    dropout: Dropout,
    #[module(skip)]
    image_size: [i64; 2],
    #[module(skip)]
    patch_size: [i64; 2],
    state: ModuleState,
}

impl ViTEmbeddings {
    pub(super) fn new(config: &ViTConfig, factory: &Factory) -> Result<Self> {
        let [rows, columns] = config.patches();
        let vectors = |count: i64| -> Result<Parameter> {
            let tensor = factory.empty(&[1, count, config.hidden_size])?;
            match factory.init() {
                Init::Layer => init::normal(&tensor, 0.0, 1.0)?,
                Init::Normal { std } => init::normal(&tensor, 0.0, std)?,
                _ => {}
            }
            Parameter::new(tensor)
        };
        let cls_token = vectors(1)?;
        let patch_embeddings = ViTPatchEmbeddings::new(config, factory)?;
        Ok(Self {
            cls_token,
            position_embeddings: vectors(rows * columns + 1)?,
            patch_embeddings,
            dropout: Dropout::new(config.hidden_dropout_prob)?,
            image_size: config.image_size.sides(),
            patch_size: config.patch_size.sides(),
            state: ModuleState::default(),
        })
    }

    /// The kind that images are turned into.
    pub(super) fn kind(&self) -> Result<Kind> {
        Ok(self.patch_embeddings.projection.weight.tensor().f_kind()?)
    }

    /// The positions, stretched over an image of this size.
    ///
    /// # Source
    /// `ViTEmbeddings.interpolate_pos_encoding`. Differs: images and patches need not be square.
    fn stretched(&self, [height, width]: [i64; 2]) -> Result<Tensor> {
        let positions = self.position_embeddings.dense()?;
        let [patch_height, patch_width] = self.patch_size;
        let [rows, columns] = [
            self.image_size[0] / patch_height,
            self.image_size[1] / patch_width,
        ];
        let of_image = positions.f_narrow(1, 0, 1)?;
        let of_patches = positions
            .f_narrow(1, 1, rows * columns)?
            .f_reshape([1, rows, columns, -1])?
            .f_permute([0, 3, 1, 2])?;
        let wanted = [height / patch_height, width / patch_width];
        let of_patches = of_patches
            .f_upsample_bicubic2d(wanted, false, None, None)?
            .f_permute([0, 2, 3, 1])?
            .f_reshape([1, wanted[0] * wanted[1], -1])?;
        Ok(Tensor::f_cat(&[of_image, of_patches], 1)?)
    }

    fn positions(&self, images: &Tensor, stretch: bool) -> Result<Tensor> {
        let size = match images.size().as_slice() {
            &[_, _, height, width] => [height, width],
            _ => return Err(refused("four dimensions", images)),
        };
        if size == self.image_size {
            return self.position_embeddings.dense();
        }
        if stretch {
            return self.stretched(size);
        }
        let [height, width] = self.image_size;
        Err(refused(
            &format!("height {height} and width {width}, or `interpolate_pos_encoding`"),
            images,
        ))
    }
}

impl Forward for ViTEmbeddings {
    type Input = (Tensor, bool);
    type Output = Tensor;

    fn forward(&self, (images, stretch): Self::Input) -> Result<Tensor> {
        let positions = self.positions(&images, stretch)?;
        let patches = self.patch_embeddings.call(images)?;
        let (batch, _, width) = patches.size3()?;
        let of_image = self.cls_token.dense()?.f_expand([batch, 1, width], false)?;
        let vectors = Tensor::f_cat(&[of_image, patches], 1)?;
        self.dropout.call(vectors.f_add(&positions)?)
    }
}

fn refused(expected: &str, images: &Tensor) -> Error {
    Error::Argument {
        operation: "ViTEmbeddings",
        expected: format!("images of {expected}"),
        found: format!("the shape {:?}", images.size()),
    }
}
