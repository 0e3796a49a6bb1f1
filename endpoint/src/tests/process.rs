//! Servers that karat starts: only its own are ended, and only when they are well are they asked.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::oracle::{STOP, server};
use crate::process::{Process, Start};
use crate::serve::{Answer, Request, Serving};
use crate::trouble::Trouble;

fn start(seconds: &str, ready: Duration) -> Start {
    Start {
        command: vec!["sleep".to_owned(), seconds.to_owned()],
        env: vec![("KARAT_TEST".to_owned(), "1".to_owned())],
        health: "/health".to_owned(),
        ready,
        end: Duration::from_secs(2),
        log: None,
    }
}

fn serving(address: &str) -> Serving {
    Serving::start(address, Arc::new(|_: &Request, answer: &mut Answer| answer.whole(200, "text/plain", "ok"))).unwrap()
}

/// A port where nothing listens.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn a_server_is_waited_for_and_ended() {
    let address = free();
    let server = server(&format!("http://{address}"));
    let later = address.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        serving(&later)
    });
    let process = Process::start(&start("60", Duration::from_secs(20)), &server.client, &STOP).unwrap();
    let answering = thread.join().unwrap();
    let begun = Instant::now();
    drop(process);
    // The program is gone at once, not when it would end by itself.
    assert!(begun.elapsed() < Duration::from_secs(30));
    drop(answering);
}

#[test]
fn a_server_that_is_never_well_is_infra_and_a_foreign_one_is_left_alone() {
    let server_of = |address: &str| server(&format!("http://{address}"));
    let never = Process::start(&start("60", Duration::from_millis(150)), &server_of(&free()).client, &STOP);
    assert!(matches!(&never, Err(Trouble::Infra(what, _)) if what.contains("not well within")), "{never:?}");
    let ended = Process::start(&start("0", Duration::from_secs(20)), &server_of(&free()).client, &STOP);
    assert!(matches!(&ended, Err(Trouble::Infra(what, _)) if what.contains("ended before")), "{ended:?}");
    let foreign = serving("127.0.0.1:0");
    let refused = Process::start(&start("60", Duration::from_secs(1)), &server(&foreign.url()).client, &STOP);
    assert!(matches!(&refused, Err(Trouble::Refused(_))), "{refused:?}");
    let mut missing = start("1", Duration::from_secs(1));
    missing.command = vec!["no-such-program-of-karat".to_owned()];
    assert!(matches!(Process::start(&missing, &server_of(&free()).client, &STOP), Err(Trouble::Refused(_))));
}
