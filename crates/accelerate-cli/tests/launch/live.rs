//! What people look at while a job runs: `watch`, `dashboard` and `launch --watch`.

mod browser;
mod dashboard;
mod devtools;
mod http;
mod plain;
mod pseudo_terminal;
mod terminal;
mod written;
