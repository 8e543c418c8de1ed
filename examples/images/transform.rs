//! How an image is changed before a model sees it.

use std::cell::RefCell;

use accelerate::data::worker_info;
use fastrand::Rng;
use image::RgbImage;
use image::imageops::{self, FilterType};

/// The side ratios that a random part of an image may have.
const RATIOS: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

/// Brings every image to one size, for training in a random way.
///
/// Random numbers follow from the seed of the loader's worker thread and epoch, so a seeded run
/// sees the same images again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transform {
    /// Height and width of the result.
    size: u32,
    /// The least share of an image that a random part of it may have; none takes it whole.
    crop: Option<f64>,
    /// Whether every other image is mirrored.
    flip: bool,
}

impl Default for Transform {
    fn default() -> Self {
        Self::resize(32)
    }
}

thread_local! {
    /// The random numbers of this thread, and the seed that they began with.
    static DRAWS: RefCell<Option<(u64, Rng)>> = const { RefCell::new(None) };
}

impl Transform {
    /// The whole image, in this size.
    pub fn resize(size: u32) -> Self {
        Self {
            size,
            crop: None,
            flip: false,
        }
    }

    /// A random part with at least this share of the image.
    #[must_use]
    pub fn with_random_crop(self, least: f64) -> Self {
        Self {
            crop: Some(least.clamp(0.0, 1.0)),
            ..self
        }
    }

    /// Every other image mirrored.
    #[must_use]
    pub fn with_random_flip(self, flip: bool) -> Self {
        Self { flip, ..self }
    }

    /// The image as it goes into a batch.
    pub fn apply(&self, image: &RgbImage) -> RgbImage {
        with_draws(|draws| {
            let part = match self.crop {
                Some(least) => random_part(image, least, draws),
                None => [0, 0, image.width(), image.height()],
            };
            let [x, y, width, height] = part;
            let part = imageops::crop_imm(image, x, y, width, height);
            let mut resized = imageops::resize(&*part, self.size, self.size, FilterType::Triangle);
            if self.flip && draws.bool() {
                imageops::flip_horizontal_in_place(&mut resized);
            }
            resized
        })
    }
}

fn with_draws<T>(work: impl FnOnce(&mut Rng) -> T) -> T {
    let seed = worker_info().map_or(0, |worker| worker.seed);
    DRAWS.with_borrow_mut(|draws| match draws {
        Some((began, rng)) if *began == seed => work(rng),
        other => work(&mut other.insert((seed, Rng::with_seed(seed))).1),
    })
}

/// Left, top, width and height of a random part.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "parts of the sides of an image"
)]
fn random_part(image: &RgbImage, least: f64, draws: &mut Rng) -> [u32; 4] {
    let (width, height) = (f64::from(image.width()), f64::from(image.height()));
    let share = least + (1.0 - least) * draws.f64();
    let ratio = (RATIOS.0.ln() + (RATIOS.1.ln() - RATIOS.0.ln()) * draws.f64()).exp();
    let area = width * height * share;
    let side = |wanted: f64, most: f64| wanted.round().clamp(1.0, most.max(1.0)) as u32;
    let wide = side((area * ratio).sqrt(), width);
    let high = side((area / ratio).sqrt(), height);
    let x = draws.u32(0..=image.width().saturating_sub(wide));
    let y = draws.u32(0..=image.height().saturating_sub(high));
    [x, y, wide, high]
}
