//! Many images as one tensor.

use accelerate::data::Collate;
use accelerate::tch::Tensor;
use accelerate::{Error, Result};

use super::LabelledImage;

/// Mean and standard deviation of red, green and blue in ImageNet, as weights are published for.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const STD: [f32; 3] = [0.229, 0.224, 0.225];

/// Makes a batch of images of one size: pixels `[batch, 3, height, width]`, scaled as usual, and
/// labels `[batch]`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImageBatches;

impl Collate<LabelledImage> for ImageBatches {
    type Batch = (Tensor, Tensor);

    fn collate(&self, items: Vec<LabelledImage>) -> Result<(Tensor, Tensor)> {
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        let mut size = None;
        for (image, label) in &items {
            let own = image.dimensions();
            if *size.get_or_insert(own) != own {
                return Err(Error::Argument {
                    operation: "ImageBatches",
                    expected: format!("images of one size {size:?}"),
                    found: format!("{own:?}"),
                });
            }
            images.extend_from_slice(image.as_raw());
            labels.push(*label);
        }
        let (width, height) = size.unwrap_or_default();
        let (width, height) = (i64::from(width), i64::from(height));
        let channels = |values: [f32; 3]| Tensor::f_from_slice(&values)?.f_view([1, 3, 1, 1]);
        let pixels = Tensor::f_from_slice(&images)?
            .f_view([-1, height, width, 3])?
            .f_permute([0, 3, 1, 2])?
            .f_to_kind(accelerate::tch::Kind::Float)?
            .f_div_scalar(255.0)?
            .f_sub(&channels(MEAN)?)?
            .f_div(&channels(STD)?)?
            .f_contiguous()?;
        Ok((pixels, Tensor::f_from_slice(&labels)?))
    }
}
