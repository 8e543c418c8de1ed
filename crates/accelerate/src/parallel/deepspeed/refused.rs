use accelerate_plan::parallel::PlanError;
use accelerate_plan::settings::Origin;

/// The error for a value of the config.
pub(super) fn refused(
    key: impl Into<String>,
    found: impl Into<String>,
    expected: impl Into<String>,
    origin: &Origin,
) -> crate::Error {
    let error = PlanError::Value {
        key: key.into(),
        found: found.into(),
        expected: expected.into(),
        origin: origin.clone(),
    };
    error.into()
}
