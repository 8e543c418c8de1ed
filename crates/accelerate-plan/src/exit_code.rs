//! Exit codes by which a program tells its launcher more than that it failed.

/// The program was asked to end, has saved where it stands, and goes on from there when it is
/// started again: `EX_TEMPFAIL` of `sysexits.h`.
pub const LEFT_EARLY: u8 = 75;
