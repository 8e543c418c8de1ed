//! Which ranks speak, and in which order.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use accelerate::logging::{get_logger, get_logger_with_level};
use accelerate::{PartialState, Result};
use accelerate_testkit::{Rank, ranks};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the messages of the library's loggers, and writes them to a file if there is one.
#[derive(Clone, Default)]
struct Messages {
    kept: Arc<Mutex<Vec<String>>>,
    file: Option<PathBuf>,
}

impl Messages {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.kept.lock().unwrap())
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    logger: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "logger" => self.logger = format!("{value:?}"),
            _ => {}
        }
    }
}

impl Subscriber for Messages {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if event.metadata().target() != "accelerate" {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        assert_eq!(fields.logger, "\"test\"");
        let line = format!("{} {}", event.metadata().level(), fields.message);
        if let Some(file) = &self.file {
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(file)
                .unwrap();
            writeln!(file, "{line}").unwrap();
        }
        self.kept.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn the_main_process_speaks_or_everyone_does() {
    ranks(&[1, 2], |rank: Rank| -> Result<()> {
        let messages = Messages::default();
        let _guard = tracing::subscriber::set_default(messages.clone());
        let index = rank.index();
        let logger = get_logger("test")?;
        // The launcher's rank counts before the process has joined its job.
        for joined in [false, true] {
            if joined {
                PartialState::new()?;
            }
            logger.info(format_args!("step {}", 3));
            let expected: &[&str] = if index == 0 {
                &["INFO [RANK 0] step 3"]
            } else {
                &[]
            };
            assert_eq!(messages.take(), expected);
            logger.on_every_process().error("all");
            assert_eq!(messages.take(), [format!("ERROR [RANK {index}] all")]);
        }
        let logger = get_logger_with_level("test", Some(Level::WARN)).on_every_process();
        logger.info("not this");
        logger.debug("nor this");
        logger.warning("but this");
        for _ in 0..3 {
            logger.warning_once("this once");
        }
        logger.warning_once("and another");
        let expected = ["but this", "this once", "and another"];
        assert_eq!(
            messages.take(),
            expected.map(|text| format!("WARN [RANK {index}] {text}"))
        );
        PartialState::new()?.destroy_process_group().map(drop)
    });
}

#[test]
fn ranks_speak_one_after_the_other() {
    ranks(&[3], |rank: Rank| -> Result<()> {
        // Ranks are other processes: they find the file by the port they have in common.
        let file =
            std::env::temp_dir().join(format!("accelerate-log-{}-{}", rank.port(), rank.world()));
        let messages = Messages {
            file: Some(file.clone()),
            ..Default::default()
        };
        let _guard = tracing::subscriber::set_default(messages);
        let logger = get_logger_with_level("test", Some(Level::INFO)).in_order();
        assert!(
            logger
                .info("too early")
                .unwrap_err()
                .to_string()
                .contains("log in order")
        );
        let state = PartialState::new()?;
        for round in 0..3 {
            logger.info(format_args!("round {round}"))?;
            if rank.index() == 1 {
                // Nobody waits for a message that is below the level.
                logger.debug("only here")?;
            }
        }
        if state.is_main_process() {
            let expected: String = (0..3)
                .flat_map(|round| (0..rank.world()).map(move |rank| (round, rank)))
                .map(|(round, rank)| format!("INFO [RANK {rank}] round {round}\n"))
                .collect();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), expected);
            std::fs::remove_file(&file).unwrap();
        }
        state.destroy_process_group().map(drop)
    });
}
