//! The settings of batch normalisation.

/// The settings of a [`BatchNorm`](super::BatchNorm); the default is PyTorch's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchNormOptions {
    /// The term that keeps the division from being one by zero.
    pub eps: f64,
    /// The share of a new batch in the running estimates; `None` makes them the mean over all
    /// batches.
    pub momentum: Option<f64>,
    /// Whether there is a scale for each channel.
    pub affine: bool,
    /// Whether there is an offset for each channel, if the layer is affine.
    pub bias: bool,
    /// Whether running estimates are kept; without them the batch's statistics always count.
    pub track_running_stats: bool,
}

impl Default for BatchNormOptions {
    fn default() -> Self {
        Self {
            eps: 1e-5,
            momentum: Some(0.1),
            affine: true,
            bias: true,
            track_running_stats: true,
        }
    }
}
