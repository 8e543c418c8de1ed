//! First values that follow a pattern.

use accelerate_torch::meta;
use tch::{Device, Kind, Tensor};

use super::normal;
use crate::{Error, Result};

/// Ones on the diagonal, zeros elsewhere: a linear layer then passes its input on.
///
/// # Shapes
/// `[out, in]`
///
/// # Errors
/// [`Error::Argument`] for a tensor that has not two dimensions.
///
/// # Source
/// `torch.nn.init.eye_`.
pub fn eye(tensor: &Tensor) -> Result<()> {
    require_dimensions("eye", tensor, 2..=2)?;
    let (rows, columns) = (tensor.size()[0], tensor.size()[1]);
    if meta::is_meta(tensor)? {
        return Ok(());
    }
    let values = Tensor::f_eye_m(rows, columns, (tensor.f_kind()?, tensor.device()))?;
    copy(tensor, &values)
}

/// Ones in the middle of the kernel where input and output channel are the same, zeros elsewhere:
/// a convolution then passes its input on, in each of `groups` groups.
///
/// # Shapes
/// `[out, in, ..]` with one to three dimensions of the kernel
///
/// # Errors
/// [`Error::Argument`] for another number of dimensions, or groups that do not divide `out`.
///
/// # Source
/// `torch.nn.init.dirac_`.
pub fn dirac(tensor: &Tensor, groups: i64) -> Result<()> {
    require_dimensions("dirac", tensor, 3..=5)?;
    let size = tensor.size();
    let (outputs, inputs, kernel) = (size[0], size[1], &size[2..]);
    if groups < 1 || outputs % groups != 0 {
        return Err(Error::Argument {
            operation: "dirac",
            expected: format!("a number of groups that divides {outputs} channels"),
            found: groups.to_string(),
        });
    }
    if meta::is_meta(tensor)? {
        return Ok(());
    }
    let in_group = outputs / groups;
    tch::no_grad(|| {
        let _same = tensor.shallow_clone().f_zero_()?;
        for group in 0..groups {
            for channel in 0..in_group.min(inputs) {
                let mut place = tensor
                    .f_select(0, group * in_group + channel)?
                    .f_select(0, channel)?;
                for length in kernel {
                    place = place.f_select(0, length / 2)?;
                }
                let _same = place.f_fill_(1.0)?;
            }
        }
        Ok(())
    })
}

/// A random matrix whose rows, or columns if there are fewer, are orthogonal and of length `gain`.
///
/// # Shapes
/// `[out, in, ..]`, taken as `[out, in · ..]`; a tensor without values is left as it is
///
/// # Errors
/// [`Error::Argument`] for a tensor of fewer than two dimensions. If the type is none that
/// libtorch factorises.
///
/// # Source
/// `torch.nn.init.orthogonal_`.
pub fn orthogonal(tensor: &Tensor, gain: f64) -> Result<()> {
    require_dimensions("orthogonal", tensor, 2..=usize::MAX)?;
    if tensor.numel() == 0 || meta::is_meta(tensor)? {
        return Ok(());
    }
    let rows = tensor.size()[0];
    let columns = tensor.size()[1..].iter().product::<i64>();
    tch::no_grad(|| {
        let options = (tensor.f_kind()?, tensor.device());
        let mut drawn = Tensor::f_empty([rows, columns], options)?.f_normal_(0.0, 1.0)?;
        if rows < columns {
            drawn = drawn.f_tr()?;
        }
        let (q, r) = Tensor::f_linalg_qr(&drawn, "reduced")?;
        // The factorisation chooses signs; undoing that makes every orthogonal matrix as likely.
        let mut q = q.f_mul(&r.f_diag(0)?.f_sign()?)?;
        if rows < columns {
            q = q.f_tr()?;
        }
        tensor.f_view_as(&q)?.f_copy_(&q)?;
        let _same = tensor.shallow_clone().f_mul_scalar_(gain)?;
        Ok(())
    })
}

/// Draws from the normal distribution, of which in each column the share `sparsity` is zero.
///
/// # Shapes
/// `[out, in]`
///
/// # Errors
/// [`Error::Argument`] for a tensor that has not two dimensions, or a share outside of `0..=1`.
///
/// # Source
/// `torch.nn.init.sparse_`. Differs: a share above 1 is an error.
pub fn sparse(tensor: &Tensor, sparsity: f64, std: f64) -> Result<()> {
    require_dimensions("sparse", tensor, 2..=2)?;
    if !(0.0..=1.0).contains(&sparsity) {
        return Err(Error::Argument {
            operation: "sparse",
            expected: "a share of zeros within 0..=1".to_owned(),
            found: sparsity.to_string(),
        });
    }
    if meta::is_meta(tensor)? {
        return Ok(());
    }
    let (rows, columns) = (tensor.size()[0], tensor.size()[1]);
    let zeros = (sparsity * rows as f64).ceil() as i64;
    normal(tensor, 0.0, std)?;
    tch::no_grad(|| {
        for column in 0..columns {
            let order = Tensor::f_randperm(rows, (Kind::Int64, Device::Cpu))?;
            let places = order.f_narrow(0, 0, zeros)?.f_to_device(tensor.device())?;
            let _same = tensor.f_select(1, column)?.f_index_fill_(0, &places, 0.0)?;
        }
        Ok(())
    })
}

fn require_dimensions(
    operation: &'static str,
    tensor: &Tensor,
    allowed: std::ops::RangeInclusive<usize>,
) -> Result<()> {
    let shape = tensor.size();
    if allowed.contains(&shape.len()) {
        return Ok(());
    }
    let expected = match (*allowed.start(), *allowed.end()) {
        (least, usize::MAX) => format!("at least {least} dimensions"),
        (least, most) if least == most => format!("{least} dimensions"),
        (least, most) => format!("{least} to {most} dimensions"),
    };
    Err(Error::Argument {
        operation,
        expected,
        found: format!("the shape {shape:?}"),
    })
}

fn copy(tensor: &Tensor, values: &Tensor) -> Result<()> {
    tch::no_grad(|| tensor.shallow_clone().f_copy_(values))?;
    Ok(())
}
