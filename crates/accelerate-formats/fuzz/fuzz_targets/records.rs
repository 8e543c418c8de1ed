#![no_main]

#[path = "../parsers.rs"]
mod parsers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(folder) = tempfile::tempdir() {
        parsers::records(folder.path(), bytes);
    }
});
