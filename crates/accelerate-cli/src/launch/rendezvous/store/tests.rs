//! The server against our client, against Python's, and against those who mean no good.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    num::NonZeroU16,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use accelerate_testkit::parity_python;

use super::{
    client::{Dial, StoreClient, StoreError},
    server::{StoreServer, listen},
    wills::{AgentKeys, Will},
    wire::{MAGIC, Request},
};
use crate::launch::rendezvous::{endpoint::Endpoint, interrupt::Interrupt};

/// Long enough for a busy machine; no test that passes waits for it.
const LONG: Duration = Duration::from_secs(20);

fn server() -> StoreServer {
    StoreServer::start(listen(0).unwrap(), None, Vec::new()).unwrap()
}

fn endpoint(port: u16) -> Endpoint {
    Endpoint {
        host: "127.0.0.1".to_owned(),
        port: NonZeroU16::new(port).unwrap(),
    }
}

fn client_with(port: u16, interrupt: &Interrupt) -> StoreClient {
    let dial = Dial {
        prefix: "run".to_owned(),
        patience: LONG,
        interrupt: Some(interrupt.clone()),
    };
    let until = Instant::now() + LONG;
    dial.until(&endpoint(port), until, &mut |_| {}).unwrap()
}

fn client(port: u16) -> StoreClient {
    client_with(port, &Interrupt::default())
}

#[test]
fn values_counters_and_comparisons() {
    let server = server();
    let mut store = client(server.port());
    assert_eq!(store.get("k").unwrap(), None);
    store.set("k", b"v").unwrap();
    assert_eq!(client(server.port()).get("k").unwrap().unwrap(), b"v");
    assert_eq!(store.add("n", 5).unwrap(), 5);
    assert_eq!(store.add("n", -7).unwrap(), -2);
    assert_eq!(store.get("n").unwrap().unwrap(), b"-2");
    assert_eq!(store.set_once("once", b"a").unwrap(), b"a");
    assert_eq!(store.set_once("once", b"b").unwrap(), b"a");
    assert_eq!(store.compare_set("once", b"a", b"c").unwrap(), b"c");
    // So does a server of PyTorch: what was expected comes back, and nothing is set.
    assert_eq!(store.compare_set("none", b"x", b"c").unwrap(), b"x");
    assert!(!store.exist(&["k", "none"]).unwrap());
    assert!(store.delete("k").unwrap());
    assert!(!store.delete("k").unwrap());
    store
        .set_all(&[("a".to_owned(), vec![1]), ("b".to_owned(), vec![])])
        .unwrap();
    let both = ["a".to_owned(), "b".to_owned()];
    assert_eq!(store.get_all(&both).unwrap(), [vec![1], vec![]]);
}

#[test]
fn both_families_reach_the_server() {
    let server = server();
    for host in ["127.0.0.1", "localhost", "::1"] {
        if std::net::TcpListener::bind((host, 0)).is_err() {
            eprintln!("skipped `{host}`: this machine has no such address");
            continue;
        }
        let dial = Dial {
            prefix: "run".to_owned(),
            patience: LONG,
            interrupt: None,
        };
        let endpoint = Endpoint {
            host: host.to_owned(),
            port: NonZeroU16::new(server.port()).unwrap(),
        };
        let until = Instant::now() + LONG;
        let mut store = dial.until(&endpoint, until, &mut |_| {}).unwrap();
        assert!(store.add("n", 1).unwrap() > 0, "{host}");
    }
}

#[test]
fn the_rest_of_the_protocol_answers_as_pytorch_does() {
    let server = server();
    let mut store = client(server.port());
    let one = 1_u64.to_le_bytes();
    let key = || b"/q".to_vec();
    let keys = || vec![key()];
    let value = || b"x".to_vec();
    let popped = [&one[..], &StoreClient::counted(b"x")].concat();
    let push = Request::QueuePush {
        key: key(),
        value: value(),
    };
    let length = Request::QueueLen { key: key() };
    let pop = Request::QueuePop { key: key() };
    assert!(store.answers(&push, b""));
    assert!(store.answers(&Request::Check { keys: keys() }, &[0]));
    assert!(store.answers(&length, &one));
    assert!(store.answers(&pop, &popped));
    assert!(store.answers(&pop, &0_u64.to_le_bytes()));
    assert!(store.answers(&Request::Check { keys: keys() }, &[1]));
    let append = Request::Append {
        key: b"/a".to_vec(),
        value: value(),
    };
    assert!(store.answers(&append, b""));
    assert!(store.answers(&append, b""));
    let get = Request::Get {
        key: b"/a".to_vec(),
    };
    assert!(store.answers(&get, &StoreClient::counted(b"xx")));
    assert!(store.answers(&Request::NumKeys, &one));
    let listed = [&one[..], &StoreClient::counted(b"/a")].concat();
    assert!(store.answers(&Request::ListKeys, &listed));
    assert!(store.answers(&Request::CancelWait, &[1]));
    assert!(store.answers(
        &Request::Get {
            key: b"/none".to_vec()
        },
        &[0; 8]
    ));
    let alone = Request::Barrier {
        key: b"/b".to_vec(),
        size: 1,
    };
    assert!(store.answers(&alone, &[0]));
}

#[test]
fn a_barrier_frees_all_at_once() {
    let server = server();
    let port = server.port();
    let barrier = || Request::Barrier {
        key: b"/b".to_vec(),
        size: 3,
    };
    let threads: Vec<_> = (0..3)
        .map(|_| thread::spawn(move || client(port).answers(&barrier(), &[0])))
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

#[test]
fn a_wait_ends_when_the_last_key_comes_and_when_time_is_over() {
    let server = server();
    let port = server.port();
    let mut store = client(port);
    assert!(!store.wait(&["a", "b"], Duration::from_millis(30)).unwrap());
    // Still in step.
    assert_eq!(store.add("n", 1).unwrap(), 1);
    let waiting = thread::spawn(move || client(port).wait(&["a", "b", "a"], LONG).unwrap());
    store.set("a", b"").unwrap();
    store.set("b", b"").unwrap();
    assert!(waiting.join().unwrap());
}

#[test]
fn an_interrupt_ends_a_wait_and_an_attempt_to_connect() {
    let server = server();
    let interrupt = Interrupt::default();
    let mut store = client_with(server.port(), &interrupt);
    let free = listen(0).unwrap().local_addr().unwrap().port();
    let (sender, attempts) = mpsc::channel();
    let dial = Dial {
        prefix: "run".to_owned(),
        patience: LONG,
        interrupt: Some(interrupt.clone()),
    };
    let connecting = thread::spawn(move || {
        let until = Instant::now() + LONG;
        dial.until(&endpoint(free), until, &mut |_| {
            let _ = sender.send(());
        })
    });
    attempts.recv().unwrap();
    let waiting = thread::spawn(move || {
        let result = store.wait(&["never"], LONG);
        (result, store.uninterrupted(|store| store.add("n", 1)))
    });
    interrupt.set();
    let (waited, then) = waiting.join().unwrap();
    assert!(matches!(waited, Err(StoreError::Interrupted)), "{waited:?}");
    assert_eq!(then.unwrap(), 1);
    assert!(matches!(
        connecting.join().unwrap(),
        Err(StoreError::Interrupted)
    ));
}

#[test]
fn a_will_is_carried_out_unless_it_was_taken_back() {
    let server = server();
    let mut other = client(server.port());
    let sign = |store: &mut StoreClient, name: &str| {
        let will = Will {
            key: store.whole_key(name),
            value: "gone".to_owned(),
        };
        let text = serde_json::to_vec(&will).unwrap();
        store
            .set(&format!("accelerate/will/{name}"), &text)
            .unwrap();
    };
    let mut leaves = client(server.port());
    sign(&mut leaves, "left");
    leaves.delete("accelerate/will/left").unwrap();
    sign(&mut leaves, "already");
    other.set("already", b"set").unwrap();
    sign(&mut leaves, "lost");
    leaves.get("lost").unwrap();
    drop(leaves);
    assert!(other.wait(&["lost"], LONG).unwrap());
    assert_eq!(other.get("lost").unwrap().unwrap(), b"gone");
    assert_eq!(other.get("already").unwrap().unwrap(), b"set");
    assert_eq!(other.get("left").unwrap(), None);
}

#[test]
fn a_launcher_of_python_is_missed_when_it_hangs_up_before_it_is_done() {
    let agents = AgentKeys {
        joined: "/run/joined/".to_owned(),
        done: "/run/done".to_owned(),
        gone: "/run/gone/".to_owned(),
    };
    let server = StoreServer::start(listen(0).unwrap(), Some(agents), Vec::new()).unwrap();
    let mut other = client(server.port());
    let mut first = client(server.port());
    first.set("joined/1", b"").unwrap();
    let mut done = client(server.port());
    done.set("joined/2", b"").unwrap();
    done.add("done", 1).unwrap();
    drop(done);
    first.exist(&[]).unwrap();
    drop(first);
    assert!(other.wait(&["gone/1"], LONG).unwrap());
    assert_eq!(other.get("gone/2").unwrap(), None);
    // It may come again.
    other.set("joined/1", b"").unwrap();
    assert_eq!(other.get("gone/1").unwrap(), None);
}

#[test]
fn who_breaks_the_rules_is_cut_off_and_nobody_else() {
    let server = server();
    let mut friend = client(server.port());
    friend.set("text", b"no number").unwrap();
    let hello = [&[0][..], &MAGIC.to_le_bytes()].concat();
    let introduced = |rest: &[u8]| [&hello[..], rest].concat();
    let huge = u64::MAX.to_le_bytes();
    let mut add = Vec::new();
    let key = b"/run/text".to_vec();
    Request::Add { key, delta: 1 }.write(&mut add);
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![7],
        vec![0, 1, 2, 3, 4],
        introduced(&hello),
        introduced(&[99]),
        introduced(&[&[3][..], &huge].concat()),
        introduced(&[&[6][..], &huge].concat()),
        introduced(&add),
    ] {
        let mut enemy = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        enemy.set_read_timeout(Some(LONG)).unwrap();
        enemy.write_all(&bytes).unwrap();
        let answer = enemy.read(&mut [0; 100]);
        assert!(
            matches!(answer, Ok(0)) || is_reset(&answer),
            "{bytes:?}: {answer:?}"
        );
    }
    assert_eq!(friend.get("text").unwrap().unwrap(), b"no number");
}

fn is_reset(answer: &std::io::Result<usize>) -> bool {
    let kind = answer.as_ref().map_err(std::io::Error::kind);
    kind == Err(std::io::ErrorKind::ConnectionReset)
}

#[test]
fn a_client_that_does_not_read_does_not_fill_the_memory() {
    let server = server();
    let mut friend = client(server.port());
    friend.set("big", &vec![1; 300_000]).unwrap();
    assert!(friend.exist(&["big"]).unwrap());
    let mut lazy = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    lazy.set_write_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let mut bytes = Vec::new();
    Request::Validate { magic: MAGIC }.write(&mut bytes);
    let key = b"/run/big".to_vec();
    Request::Get { key }.write(&mut bytes);
    let get = bytes.split_off(5);
    lazy.write_all(&bytes).unwrap();
    lazy.write_all(&get.repeat(200)).unwrap();
    // Others are served meanwhile.
    assert_eq!(friend.add("n", 1).unwrap(), 1);
    // And all answers come once it reads.
    let mut answer = vec![0; 200 * (8 + 300_000)];
    lazy.set_read_timeout(Some(LONG)).unwrap();
    lazy.read_exact(&mut answer).unwrap();
    assert_eq!(answer[8], 1);
}

#[test]
fn a_server_that_ends_closes_its_connections_and_frees_its_port() {
    let server = server();
    let port = server.port();
    let mut store = client(port);
    assert!(server.connections() > 0);
    drop(server);
    assert!(matches!(store.get("k"), Err(StoreError::Lost { .. })));
    drop(listen(port).unwrap());
}

#[test]
fn what_is_no_store_is_not_taken_for_one() {
    let listener = listen(0).unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 10];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(b"HTTP").unwrap();
    });
    let dial = Dial {
        prefix: "run".to_owned(),
        patience: LONG,
        interrupt: None,
    };
    let result = dial.until(&endpoint(port), Instant::now(), &mut |_| {});
    assert!(matches!(result, Err(StoreError::Foreign)), "{result:?}");
    echo.join().unwrap();
}

/// Python's client and server, where there is a Python with PyTorch. The script is
/// `tests/parity/store_peer.py`.
#[test]
fn parity_the_store_and_pytorch_understand_each_other() {
    let Some(python) = parity_python("parity_the_store_and_pytorch_understand_each_other") else {
        return;
    };
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/parity/store_peer.py"
    );
    let peer = |mode: &str, port: u16, uv: &str| {
        let mut command = Command::new(&python);
        command
            .args([script, mode, &port.to_string(), uv])
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    };
    // Their client at our server.
    let server = server();
    let output = peer("client", server.port(), "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.contains("CLIENT OK"),
        "{said}"
    );
    // Our client at their servers.
    for uv in ["0", "1"] {
        let mut child = peer("server", 0, uv).spawn().unwrap();
        let mut port = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut port).unwrap();
        at_a_server_of_pytorch(port.trim().parse().unwrap());
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}

fn at_a_server_of_pytorch(port: u16) {
    let mut store = client(port);
    store.count_in().unwrap();
    assert_eq!(store.get("k").unwrap(), None);
    store.set("k", b"v").unwrap();
    assert_eq!(store.get("k").unwrap().unwrap(), b"v");
    assert_eq!(store.add("n", -5).unwrap(), -5);
    assert_eq!(store.set_once("once", b"a").unwrap(), b"a");
    assert_eq!(store.set_once("once", b"b").unwrap(), b"a");
    assert!(
        !store
            .wait(&["k", "late"], Duration::from_millis(50))
            .unwrap()
    );
    assert!(store.wait(&["k", "n"], LONG).unwrap());
    let pairs = [("a".to_owned(), vec![1]), ("b".to_owned(), vec![])];
    store.set_all(&pairs).unwrap();
    let both = ["a".to_owned(), "b".to_owned()];
    assert_eq!(store.get_all(&both).unwrap(), [vec![1], vec![]]);
    assert!(store.delete("k").unwrap());
    assert!(!store.exist(&["k"]).unwrap());
}
