use std::{
    collections::HashSet,
    ffi::OsString,
    num::{NonZeroU16, NonZeroU32, NonZeroUsize},
};

use super::*;
use crate::MixedPrecision;

fn env(pairs: &[(&str, &str)]) -> Environment {
    Environment::from_pairs(pairs.iter().copied())
}

#[test]
fn truth_words_are_read_in_any_case() -> Result<()> {
    for word in ["y", "yes", "t", "true", "on", "1", "TRUE", "Yes", " on "] {
        assert_eq!(
            env(&[("ACCELERATE_USE_CPU", word)]).get(&USE_CPU)?,
            Some(true),
            "{word}"
        );
    }
    for word in ["n", "no", "f", "false", "off", "0", "False", "OFF"] {
        assert_eq!(
            env(&[("ACCELERATE_USE_CPU", word)]).get(&USE_CPU)?,
            Some(false),
            "{word}"
        );
    }
    Ok(())
}

#[test]
fn another_word_names_variable_value_and_what_is_allowed() {
    let error = env(&[("ACCELERATE_DEBUG_MODE", "maybe")])
        .get(&DEBUG_MODE)
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("`ACCELERATE_DEBUG_MODE`"), "{text}");
    assert!(text.contains("`maybe`"), "{text}");
    assert!(text.contains("`yes`") && text.contains("`off`"), "{text}");
}

#[test]
fn an_empty_variable_counts_as_not_set() -> Result<()> {
    let env = env(&[("ACCELERATE_USE_CPU", ""), ("MASTER_PORT", "")]);
    assert_eq!(env.get(&USE_CPU)?, None);
    assert_eq!(env.get(&MASTER_PORT)?, None);
    assert_eq!(
        env.get_or_default(&MASTER_PORT)?.map(NonZeroU16::get),
        Some(29500)
    );
    Ok(())
}

#[test]
fn a_list_of_variables_skips_negative_numbers() -> Result<()> {
    let env = env(&[
        ("RANK", "-1"),
        ("OMPI_COMM_WORLD_RANK", "3"),
        ("MV2_COMM_WORLD_RANK", "4"),
    ]);
    let found = env.first(&RANK_SOURCES)?;
    assert_eq!(
        found,
        Some(Found {
            variable: "OMPI_COMM_WORLD_RANK",
            value: 3
        })
    );
    Ok(())
}

#[test]
fn a_number_that_is_none_is_an_error() {
    for (name, value) in [("RANK", "one"), ("RANK", "1.0"), ("PMI_RANK", "0x1")] {
        let error = env(&[(name, value)]).first(&RANK_SOURCES).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    for port in ["0", "65536", "-1", "http"] {
        assert!(
            env(&[("MASTER_PORT", port)]).get(&MASTER_PORT).is_err(),
            "{port}"
        );
    }
    let steps = env(&[("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "0")]);
    assert!(steps.get(&GRADIENT_ACCUMULATION_STEPS).is_err());
}

#[test]
fn nested_openmp_threads_give_the_outer_count() -> Result<()> {
    let get = |text| env(&[("OMP_NUM_THREADS", text)]).get(&OMP_NUM_THREADS);
    assert_eq!(get("4,2")?.map(NonZeroUsize::get), Some(4));
    assert_eq!(get("0")?, None);
    assert!(get("many").is_err());
    Ok(())
}

#[cfg(unix)]
#[test]
fn bytes_that_are_no_text_are_an_error() {
    use std::os::unix::ffi::OsStringExt;
    let env = Environment::from_pairs([("MASTER_ADDR", OsString::from_vec(vec![0xff, b'a']))]);
    assert!(matches!(
        env.get(&MASTER_ADDR),
        Err(Error::NotText {
            variable: "MASTER_ADDR",
            ..
        })
    ));
}

#[test]
fn spellings_are_those_that_python_programs_compare_with() {
    assert_eq!(USE_CPU.render(&true), "True");
    assert_eq!(USE_AGENT_STORE.render(&false), "False");
    assert_eq!(DEBUG_MODE.render(&true), "true");
    assert_eq!(CPU_AFFINITY.render(&true), "1");
    assert_eq!(MIXED_PRECISION.render(&MixedPrecision::Bf16), "bf16");
}

#[test]
fn the_table_has_each_name_once_and_readable_defaults() {
    let names: HashSet<_> = TABLE.iter().map(|entry| entry.name).collect();
    assert_eq!(names.len(), TABLE.len());
    for entry in TABLE {
        assert!(!entry.meaning.is_empty(), "{}", entry.name);
    }
    assert_eq!(MIXED_PRECISION.default_value(), Some(MixedPrecision::No));
    assert_eq!(USE_AGENT_STORE.default_value(), Some(false));
    assert_eq!(
        GRADIENT_ACCUMULATION_STEPS
            .default_value()
            .map(NonZeroU32::get),
        Some(1)
    );
    assert_eq!(RESTART_COUNT.default_value(), Some(0));
}

#[test]
fn the_reference_page_has_a_row_per_variable() {
    let page = reference_page();
    assert_eq!(page.lines().count(), TABLE.len() + 2);
    assert!(
        page.contains("| `MASTER_PORT` | port | `29500` | Port on which rank 0"),
        "{page}"
    );
}

#[test]
fn an_overlay_replaces_what_is_inherited() -> Result<()> {
    let mut overlay = EnvOverlay::new();
    overlay.set(&RANK, &1);
    overlay.set(&RANK, &2);
    assert_eq!(overlay.iter().collect::<Vec<_>>(), [("RANK", "2")]);
    let child = env(&[("RANK", "9"), ("LOCAL_RANK", "5")]).with(&overlay);
    assert_eq!(child.get(&RANK)?, Some(2));
    assert_eq!(child.get(&LOCAL_RANK)?, Some(5));
    Ok(())
}

#[test]
fn small_numbers_are_written_as_python_writes_them() {
    assert_eq!(GRADIENT_CLIPPING.render(&1e-5), "1e-05");
    assert_eq!(GRADIENT_CLIPPING.render(&1.0), "1.0");
}

#[test]
fn truth_words() {
    for (word, value) in [("Yes", Some(true)), ("off", Some(false)), ("2", None)] {
        assert_eq!(truth(word), value, "{word}");
    }
}
