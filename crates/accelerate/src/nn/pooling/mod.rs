//! Layers that make one value of many neighbours.

mod adaptive_avg_pool2d;
mod avg_pool2d;
mod max_pool2d;

pub use self::adaptive_avg_pool2d::AdaptiveAvgPool2d;
pub use self::avg_pool2d::{AvgPool2d, AvgPool2dOptions};
pub use self::max_pool2d::{MaxPool2d, MaxPool2dOptions};
