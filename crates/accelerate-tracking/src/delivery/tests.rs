use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;

use super::*;
use crate::stub::quick;

/// Takes what it is given, as the switches say.
struct Recorder {
    taken: Arc<Mutex<Vec<Json>>>,
    away: Arc<AtomicBool>,
    hangs: Duration,
}

impl Service for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn session(&self) -> Json {
        json!({ "taken": self.taken.lock().unwrap().len() })
    }

    fn deliver(&mut self, records: &[Json], first: u64, _: &Path) -> Result<(), Failure> {
        thread::sleep(self.hangs);
        let error = |action: &str| Error::Service {
            service: "recorder",
            action: action.to_owned(),
            message: "no".to_owned(),
        };
        if self.away.load(Ordering::Relaxed) {
            return Err(Failure::Later(error("away")));
        }
        if records.iter().any(|record| *record == json!("bad")) {
            return Err(Failure::Refused(error("bad")));
        }
        let mut taken = self.taken.lock().unwrap();
        assert!(first <= taken.len() as u64 + 1);
        taken.extend(records.iter().cloned());
        Ok(())
    }
}

#[derive(Default)]
struct Setting {
    taken: Arc<Mutex<Vec<Json>>>,
    away: Arc<AtomicBool>,
}

impl Setting {
    fn start(&self, root: &Path, hangs: Duration, timing: Timing) -> Delivery {
        let recorder = Recorder {
            taken: Arc::clone(&self.taken),
            away: Arc::clone(&self.away),
            hangs,
        };
        Delivery::start(root, Box::new(recorder), timing).unwrap()
    }

    fn taken(&self) -> Vec<Json> {
        self.taken.lock().unwrap().clone()
    }
}

fn folders(root: &Path) -> usize {
    std::fs::read_dir(root).unwrap().count()
}

#[test]
fn everything_arrives_once_and_in_order() {
    let root = tempfile::tempdir().unwrap();
    let setting = Setting::default();
    let mut delivery = setting.start(root.path(), Duration::ZERO, quick());
    let records: Vec<Json> = (0..1200).map(|number| json!(number)).collect();
    for record in &records {
        delivery.record(record).unwrap();
    }
    delivery.finish().unwrap();
    assert_eq!(setting.taken(), records);
    assert_eq!(folders(root.path()), 0, "nothing is left");
}

#[test]
fn a_service_that_is_away_gets_everything_when_it_is_back() {
    let root = tempfile::tempdir().unwrap();
    let setting = Setting::default();
    setting.away.store(true, Ordering::Relaxed);
    let mut delivery = setting.start(root.path(), Duration::ZERO, quick());
    for number in 0..300 {
        delivery.record(&json!(number)).unwrap();
    }
    thread::sleep(Duration::from_millis(50));
    assert!(setting.taken().is_empty());
    setting.away.store(false, Ordering::Relaxed);
    delivery.finish().unwrap();
    assert_eq!(setting.taken().len(), 300);
    assert_eq!(folders(root.path()), 0);
}

#[test]
fn a_service_that_hangs_costs_the_caller_nothing() {
    let root = tempfile::tempdir().unwrap();
    let setting = Setting::default();
    let timing = Timing {
        drain: Duration::from_millis(100),
        ..quick()
    };
    let mut delivery = setting.start(root.path(), Duration::from_secs(3600), timing);
    let mut longest = Duration::ZERO;
    for number in 0..1000 {
        let begun = Instant::now();
        delivery.record(&json!(number)).unwrap();
        longest = longest.max(begun.elapsed());
    }
    // Far below any wait for the service; a busy machine may still take the processor away.
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    let begun = Instant::now();
    delivery.finish().unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    let folder = std::fs::read_dir(root.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let kept = std::fs::read_to_string(folder.path().join("records.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 1000, "no record is lost");
}

#[test]
fn what_is_refused_is_kept_and_the_rest_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let setting = Setting::default();
    setting.away.store(true, Ordering::Relaxed);
    let mut delivery = setting.start(root.path(), Duration::ZERO, quick());
    for record in [json!(1), json!("bad"), json!(2)] {
        delivery.record(&record).unwrap();
    }
    setting.away.store(false, Ordering::Relaxed);
    delivery.finish().unwrap();
    assert_eq!(setting.taken(), [json!(1), json!(2)]);
    let folder = std::fs::read_dir(root.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let refused = std::fs::read_to_string(folder.path().join("refused.jsonl")).unwrap();
    let line: Json = serde_json::from_str(refused.trim()).unwrap();
    assert_eq!(line["record"], "bad");
    assert!(!folder.path().join("records.jsonl").exists());
}

#[test]
fn a_run_that_ends_without_a_word_leaves_its_records() {
    let root = tempfile::tempdir().unwrap();
    let setting = Setting::default();
    setting.away.store(true, Ordering::Relaxed);
    let mut delivery = setting.start(root.path(), Duration::ZERO, quick());
    delivery.record(&json!(1)).unwrap();
    drop(delivery);
    assert_eq!(folders(root.path()), 1);
    // Nobody knows this service by its name: it stays, and says why.
    let logging_dir = tempfile::tempdir().unwrap();
    let target = logging_dir.path().join(FOLDER);
    let deadline = Instant::now() + Duration::from_secs(10);
    std::fs::rename(root.path(), &target).unwrap();
    let environment = crate::Environment::default();
    let left = loop {
        let left = deliver_left(logging_dir.path(), &environment, Duration::from_secs(1)).unwrap();
        // Until the thread has let go of the folder it is left alone.
        if !left.is_empty() || Instant::now() > deadline {
            break left;
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(left[0].tracker, "recorder");
    assert!(
        matches!(left[0].error, Some(Error::UnknownTracker { .. })),
        "{left:?}"
    );
    std::fs::create_dir(root.path()).unwrap();
}
