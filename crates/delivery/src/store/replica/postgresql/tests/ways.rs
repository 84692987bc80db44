//! The ways to a PostgreSQL: through a pooler, by TLS, and to its replica after a fail-over.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::recording;
use super::server::{Server, as_user, folder, give_to_user, program};
use crate::scenarios::testing::LONG;
use crate::store::replica::tests::exercise;
use crate::{Answer, Deliverer, Message, Replicate, Settings};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_pooler_that_gives_each_transaction_another_connection_changes_nothing() {
    let Some(pgbouncer) = program("pgbouncer") else { return };
    let Some(server) = Server::start("") else { return };
    let folder = folder();
    let path = folder.path().display();
    let settings = format!(
        "[databases]\npostgres = host={}\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = {path}\nlisten_port = 5432\n\
         auth_type = trust\nauth_file = {path}/users\npool_mode = transaction\ndefault_pool_size = 3\n",
        server.folder.path().display()
    );
    std::fs::write(folder.path().join("settings"), settings).unwrap();
    std::fs::write(folder.path().join("users"), "\"tick\" \"\"\n").unwrap();
    let mut command = as_user(&pgbouncer);
    let _pooler = Ended(command.arg(folder.path().join("settings")).stderr(Stdio::null()).spawn().unwrap());
    let address = format!("postgresql://tick@/postgres?host={path}&store=pooled");
    let to = Replicate::to(&address).unwrap();
    let end = Instant::now() + LONG;
    while let Err(error) = to.open() {
        assert!(Instant::now() < end, "{error}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    exercise(&|| to.open().unwrap());
    let (at, arrived) = recording();
    let store = folder.path().join("store.db");
    let replicate = Some(Replicate::to(&address.replace("pooled", "through")).unwrap());
    let deliverer = Deliverer::open_with(store, at, Settings { replicate, ..Settings::default() }).unwrap();
    for number in 0..200 {
        let message = Message::after(&number.to_string(), Duration::ZERO, "1");
        assert_eq!(deliverer.put(message).unwrap(), Answer::Accepted);
    }
    let delivered: BTreeSet<String> = (0..200).map(|_| arrived.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(delivered.len(), 200);
    deliverer.close(Some(LONG)).unwrap();
}

#[test]
fn tls_checks_the_certificate_and_the_name_of_the_server() {
    let Some(openssl) = program("openssl") else { return };
    let folder = folder();
    let (key, certificate) = (folder.path().join("key"), folder.path().join("certificate"));
    let text = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
                -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE";
    let mut command = Command::new(openssl);
    command.args(text.split_ascii_whitespace()).arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    assert!(command.stderr(Stdio::null()).status().unwrap().success());
    give_to_user(&key);
    let port = free_port();
    let (key, certificate) = (key.display(), certificate.display());
    let options = format!(
        "-c listen_addresses=127.0.0.1 -p {port} -c ssl=on -c ssl_key_file={key} -c ssl_cert_file={certificate}"
    );
    let Some(server) = Server::start(&options) else { return };
    let address = |host: &str, options: &str| format!("postgresql://tick@{host}:{port}/postgres?store=tls&{options}");
    let open = |address: &str| Replicate::to(address).unwrap().open();
    let trusted = format!("sslmode=verify-full&sslrootcert={certificate}");
    exercise(&|| open(&address("localhost", &trusted)).unwrap());
    open(&address("localhost", &format!("sslrootcert={certificate}"))).unwrap();
    let error = open(&address("localhost", "sslmode=require")).err().expect("the system does not know the certificate");
    assert!(error.contains("certificate"), "{error}");
    let error = open(&address("127.0.0.1", &trusted)).err().expect("it is of another name");
    assert!(error.contains("certificate"), "{error}");
    drop(server);
}

#[test]
fn a_replica_that_is_promoted_has_all_that_was_answered_and_the_owner_goes_on() {
    let Some(first) = Server::start("-c synchronous_standby_names='*'") else { return };
    let second = first.replica();
    let hosts = [&first, &second].map(|it| it.folder.path().display().to_string()).join("&host=");
    let replicate = || Some(Replicate::to(&format!("postgresql://tick@/postgres?host={hosts}&store=moved")).unwrap());
    let settings = || Settings { replicate: replicate(), ..Settings::default() };
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let deliverer = Deliverer::open_with(folders[0].path().join("store.db"), recording().0, settings()).unwrap();
    let put = |number: usize| deliverer.put(Message::after(&number.to_string(), Duration::from_secs(3_600), "1"));
    for number in 0..50 {
        assert_eq!(put(number).unwrap(), Answer::Accepted);
    }
    let last = deliverer.submit([Message::after("in between", Duration::from_secs(3_600), "1")]).unwrap();
    first.stop();
    second.promote();
    assert!(last.wait(Some(LONG)).expect("it is answered").is_ok());
    for number in 50..100 {
        assert_eq!(put(number).unwrap(), Answer::Accepted);
    }
    deliverer.close(Some(LONG)).unwrap();
    let other = Deliverer::open_with(folders[1].path().join("store.db"), recording().0, settings()).unwrap();
    for number in 0..100 {
        assert_eq!(other.state(None, &number.to_string()).unwrap(), Answer::Waiting, "{number}");
    }
    assert_eq!(other.state(None, "in between").unwrap(), Answer::Waiting);
    other.close(Some(LONG)).unwrap();
}
