//! The words of FSDP, and what they mean for a plan.

mod compile;
mod policy;
mod settings;

pub use policy::PrecisionPolicy;
pub use settings::FsdpSettings;
pub(super) use settings::names;

#[cfg(test)]
mod tests;
