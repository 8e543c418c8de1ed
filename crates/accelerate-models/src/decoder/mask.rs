//! Which tokens a token may look at.

use accelerate::nn::IntoInput;
use accelerate::tree::Tree;
use accelerate::{Error, Result};
use tch::{Device, Kind, Tensor};

/// Each token sees itself and those before it, and no padding.
///
/// Where nothing is padded it holds no tensor, and attention takes its fused kernel.
#[derive(Debug, Default, Tree)]
pub struct CausalMask {
    /// True where a query may see a key; broadcasts to `[rows, heads, queries, keys]`.
    pub mask: Option<Tensor>,
    /// Whether the kernel is to hide later tokens by itself.
    pub causal: bool,
}

impl IntoInput<CausalMask> for &CausalMask {
    fn into_input(self) -> CausalMask {
        CausalMask {
            mask: self.mask.as_ref().map(Tensor::shallow_clone),
            causal: self.causal,
        }
    }
}

/// The queries and keys of one forward pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) rows: i64,
    /// How many tokens are new.
    pub(super) queries: i64,
    /// How many tokens the cache has.
    pub(super) cached: i64,
    /// How far back a token sees, itself included; everything where absent.
    pub(super) window: Option<i64>,
    pub(super) device: Device,
}

impl Extent {
    fn keys(self) -> i64 {
        self.cached + self.queries
    }

    /// A window that hides something.
    fn narrow_window(self) -> Option<i64> {
        self.window.filter(|&window| self.keys() > window)
    }

    /// What is hidden besides padding, `[queries, keys]`; none where a single query sees all.
    fn before(self) -> Result<Option<Tensor>> {
        let window = self.narrow_window();
        if self.queries == 1 && window.is_none() {
            return Ok(None);
        }
        let options = (Kind::Int64, self.device);
        let keys = Tensor::f_arange(self.keys(), options)?;
        let queries = Tensor::f_arange_start(self.cached, self.keys(), options)?.f_unsqueeze(-1)?;
        let before = keys.f_le_tensor(&queries)?;
        let Some(window) = window else {
            return Ok(Some(before));
        };
        let near = keys.f_gt_tensor(&queries.f_sub_scalar(window)?)?;
        Ok(Some(before.f_logical_and(&near)?))
    }
}

impl CausalMask {
    /// The mask for new tokens after those of a cache.
    ///
    /// `padding` is `[rows, keys]` and not 0 where there is a token, or a finished mask of four
    /// dimensions. Whether it hides anything is looked at only for a whole sequence; a step of
    /// generation knows.
    pub(super) fn new(
        operation: &'static str,
        padding: Option<Tensor>,
        extent: Extent,
    ) -> Result<Self> {
        let padding = match padding {
            Some(mask) if mask.dim() == 4 => {
                return Ok(Self {
                    mask: Some(mask),
                    causal: false,
                });
            }
            Some(mask) => some_padding(operation, &mask, extent)?,
            None => None,
        };
        let kernel_can = extent.cached == 0 && extent.narrow_window().is_none();
        if padding.is_none() && kernel_can {
            return Ok(Self {
                mask: None,
                causal: extent.queries > 1,
            });
        }
        let mask = match (padding, extent.before()?) {
            (Some(padding), Some(before)) => Some(padding.f_logical_and(&before)?),
            (Some(only), None) | (None, Some(only)) => Some(only),
            (None, None) => None,
        };
        Ok(Self {
            mask,
            causal: false,
        })
    }
}

/// A padding mask as `[rows, 1, 1, keys]` of bool; none where nothing is padded.
fn some_padding(operation: &'static str, mask: &Tensor, extent: Extent) -> Result<Option<Tensor>> {
    let shape = [extent.rows, extent.keys()];
    if mask.size() != shape {
        return Err(Error::Argument {
            operation,
            expected: format!("an attention mask of shape {shape:?}"),
            found: format!("{:?}", mask.size()),
        });
    }
    let mask = mask.f_to_kind(Kind::Bool)?;
    if extent.cached == 0 && mask.f_all()?.f_int64_value(&[])? != 0 {
        return Ok(None);
    }
    Ok(Some(mask.f_view([extent.rows, 1, 1, extent.keys()])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(rows: i64, queries: i64, cached: i64) -> Extent {
        Extent {
            rows,
            queries,
            cached,
            window: None,
            device: Device::Cpu,
        }
    }

    fn seen(mask: &CausalMask) -> Vec<bool> {
        let mask = mask.mask.as_ref().unwrap();
        Vec::try_from(mask.f_contiguous().unwrap().f_view([-1]).unwrap()).unwrap()
    }

    #[test]
    fn nothing_padded_needs_no_tensor() {
        for (padding, queries, causal) in [(false, 3, true), (true, 3, true), (false, 1, false)] {
            let padding = padding.then(|| Tensor::ones([2, queries], (Kind::Int64, Device::Cpu)));
            let mask = CausalMask::new("test", padding, extent(2, queries, 0)).unwrap();
            assert!(mask.mask.is_none());
            assert_eq!(mask.causal, causal);
        }
        let step = CausalMask::new("test", None, extent(2, 1, 5)).unwrap();
        assert!(step.mask.is_none() && !step.causal);
    }

    #[test]
    fn padding_and_the_past_are_combined() {
        let padding = Tensor::from_slice(&[0i64, 1, 1, 1]).view([1, 4]);
        let mask = CausalMask::new("test", Some(padding.shallow_clone()), extent(1, 2, 2)).unwrap();
        assert_eq!(
            seen(&mask),
            [false, true, true, false, false, true, true, true]
        );
        let step = CausalMask::new("test", Some(padding), extent(1, 1, 3)).unwrap();
        assert_eq!(seen(&step), [false, true, true, true]);
        let more = CausalMask::new("test", None, extent(1, 2, 1)).unwrap();
        assert_eq!(seen(&more), [true, true, false, true, true, true]);
    }

    #[test]
    fn a_window_hides_what_is_far_back() {
        let narrow = Extent {
            window: Some(2),
            ..extent(1, 3, 0)
        };
        let mask = CausalMask::new("test", None, narrow).unwrap();
        let expected = [true, false, false, true, true, false, false, true, true];
        assert_eq!(seen(&mask), expected);
        let wide = Extent {
            window: Some(3),
            ..narrow
        };
        assert!(CausalMask::new("test", None, wide).unwrap().causal);
    }

    #[test]
    fn a_mask_of_another_shape_is_told() {
        let padding = Tensor::ones([2, 3], (Kind::Int64, Device::Cpu));
        let error = CausalMask::new("GPT2Model", Some(padding), extent(2, 1, 3)).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("[2, 4]") && text.contains("found [2, 3]"),
            "{text}"
        );
    }
}
