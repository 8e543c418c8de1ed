use tch::{Kind, Tensor};

use crate::Result;

/// Makes the columns of each matrix orthogonal and of length 1, in place.
///
/// With more than two columns a QR factorisation does it, where the kind has one. A
/// column of zeros stays one.
///
/// # Shapes
/// - matrices: `[batch, rows, columns]`, not more columns than rows
///
/// # Source
/// PyTorch's PowerSGD. Differs: there, a column of zeros without an epsilon becomes NaN.
pub(super) fn orthogonalize(matrices: &Tensor, epsilon: f64) -> Result<()> {
    let columns = matrices.size().last().copied().unwrap_or(0);
    let half = matches!(matrices.f_kind()?, Kind::Half | Kind::BFloat16);
    if columns > 2 && !half {
        let (q, _) = Tensor::f_linalg_qr(matrices, "reduced")?;
        matrices.shallow_clone().f_copy_(&q)?;
        return Ok(());
    }
    for column in 0..columns {
        let mut one = matrices.f_narrow(2, column, 1)?;
        let _ = one.f_div_(&divisor(&one, epsilon)?)?;
        let left = columns - column - 1;
        if left > 0 {
            let mut rest = matrices.f_narrow(2, column + 1, left)?;
            let shares = one.f_mul(&rest)?.f_sum_dim_intlist(1, true, None::<Kind>)?;
            let _ = rest.f_sub_(&shares.f_mul(&one)?)?;
        }
    }
    Ok(())
}

/// The length of a column, or 1 for one without any.
fn divisor(column: &Tensor, epsilon: f64) -> Result<Tensor> {
    let length = column.f_linalg_norm(2, 1, true, None::<Kind>)?;
    if epsilon > 0.0 {
        return Ok(length.f_add_scalar(epsilon)?);
    }
    Ok(length.f_masked_fill(&length.f_eq(0)?, 1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_orthogonal_in_both_ways() -> Result<()> {
        for columns in 1..=4 {
            let matrices = Tensor::f_randn([2, 9, columns], (Kind::Double, tch::Device::Cpu))?;
            orthogonalize(&matrices, 0.0)?;
            let products = matrices.f_transpose(1, 2)?.f_bmm(&matrices)?;
            let expected = Tensor::f_eye(columns, (Kind::Double, tch::Device::Cpu))?;
            assert!(products.f_allclose(&expected.f_expand_as(&products)?, 0.0, 1e-10, false)?);
        }
        Ok(())
    }

    #[test]
    fn a_column_of_zeros_stays_one() -> Result<()> {
        for epsilon in [0.0, 1e-8] {
            let matrices = Tensor::f_zeros([1, 3, 2], (Kind::Float, tch::Device::Cpu))?;
            orthogonalize(&matrices, epsilon)?;
            assert_eq!(
                matrices.f_abs()?.f_sum(None::<Kind>)?.double_value(&[]),
                0.0
            );
        }
        Ok(())
    }
}
