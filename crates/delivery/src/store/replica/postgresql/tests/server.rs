//! A PostgreSQL of a test's own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A server that no other user can reach. It is removed with the test.
pub(super) struct Server {
    pub(super) folder: tempfile::TempDir,
    programs: PathBuf,
    options: String,
}

/// `None`, with a line: this machine does not have what is tested. Where all is checked, that is an error.
fn missing<T>(what: &str) -> Option<T> {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "install {what}");
    eprintln!("there is no {what}: nothing is tested");
    None
}

pub(super) fn program(name: &str) -> Option<PathBuf> {
    let places = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(|it| Path::new(it).join(name));
    places.into_iter().find(|it| it.exists()).or_else(|| missing(name))
}

/// The server refuses to run as root.
pub(super) fn as_user(program: &Path) -> Command {
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
        return command;
    }
    Command::new(program)
}

/// A folder for the user that runs the server.
pub(super) fn folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("tw-pg-").tempdir().unwrap();
    give_to_user(folder.path());
    folder
}

pub(super) fn give_to_user(path: &Path) {
    if rustix::process::geteuid().is_root() {
        assert!(Command::new("chown").arg("postgres").arg(path).status().unwrap().success());
    }
}

impl Server {
    /// `None`: this machine has no PostgreSQL.
    pub(super) fn start(options: &str) -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let programs = versions.map(|it| it.unwrap().path().join("bin")).find(|it| it.join("initdb").exists());
        let programs = programs.or_else(|| missing("PostgreSQL"))?;
        let it = Self { folder: folder(), programs, options: options.to_owned() };
        it.run("initdb", &["-U", "tick", "-A", "trust", "-EUTF8", "--no-sync"]);
        it.go_on();
        Some(it)
    }

    /// Another server, which gets what this one writes, and confirms it.
    pub(super) fn replica(&self) -> Self {
        let it = Self { folder: folder(), programs: self.programs.clone(), options: String::new() };
        let host = self.folder.path().display().to_string();
        it.run("pg_basebackup", &["-h", &host, "-U", "tick", "-R", "-X", "stream", "-c", "fast", "--no-sync"]);
        it.go_on();
        it
    }

    pub(super) fn promote(&self) {
        self.run("pg_ctl", &["-w", "-t", "60", "promote"]);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = as_user(&self.programs.join(program));
        let data = self.folder.path().join("data");
        let done = command.arg("-D").arg(data).args(arguments).stdout(Stdio::null()).current_dir(self.folder.path());
        assert!(done.status().unwrap().success(), "{program}");
    }

    pub(super) fn go_on(&self) {
        let path = self.folder.path().display();
        let options = format!("-c listen_addresses='' -k {path} -c fsync=off {}", self.options);
        self.run("pg_ctl", &["-w", "-t", "60", "-l", &format!("{path}/log"), "-o", &options, "start"]);
    }

    pub(super) fn stop(&self) {
        self.run("pg_ctl", &["-w", "-m", "immediate", "stop"]);
    }

    pub(super) fn address(&self, store: &str) -> String {
        let host = self.folder.path().display();
        format!("postgresql://tick@/postgres?host={host}&store={store}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let data = self.folder.path().join("data");
        let _ = as_user(&self.programs.join("pg_ctl")).arg("-D").arg(data).args(["-m", "immediate", "stop"]).output();
    }
}
