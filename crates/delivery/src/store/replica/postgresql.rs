//! A chain in PostgreSQL, in tables of their own.
//!
//! Each question is one transaction of one statement without a name, so it goes through a pooler that gives each transaction
//! another connection. A connection is opened at the first question, and after each error.

use std::fmt;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row as Found};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::chain::{Appended, Base, Chain, Head, Kind, Link, Row};
use super::lease::Replicate;
use crate::base::error::DeliveryError;

/// The script for operators whose user may not make tables.
const TABLES: &str = "
CREATE SCHEMA IF NOT EXISTS tickwheel;
CREATE TABLE IF NOT EXISTS tickwheel.chain (
    store text, n bigint, epoch bigint NOT NULL, kind smallint NOT NULL, digest bytea NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (store, n)
);
CREATE TABLE IF NOT EXISTS tickwheel.bases (
    store text, n bigint, epoch bigint, piece bigint, body bytea NOT NULL, PRIMARY KEY (store, n, epoch, piece)
);
ALTER TABLE tickwheel.chain ALTER body SET STORAGE EXTERNAL;
ALTER TABLE tickwheel.bases ALTER body SET STORAGE EXTERNAL;
";
const READY: &str = "SELECT current_setting('synchronous_commit'), to_regclass('tickwheel.bases') IS NOT NULL";
const APPEND: &str = "
INSERT INTO tickwheel.chain (store, n, epoch, digest, kind, body) SELECT $1, $2, $3, $4, $5, $6
WHERE ($7::bytea IS NULL OR EXISTS (SELECT FROM tickwheel.chain WHERE store = $1 AND n = $2 - 1 AND digest = $7))
AND NOT EXISTS (SELECT FROM tickwheel.chain WHERE store = $1 AND n > $2) -- a row that was deleted leaves its number free
ON CONFLICT DO NOTHING";
const IS_THERE: &str = "SELECT FROM tickwheel.chain WHERE store = $1 AND n = $2 AND epoch = $3 AND digest = $4";
const NEWEST: &str = "SELECT n, digest, epoch, kind FROM tickwheel.chain WHERE store = $1 ORDER BY n DESC LIMIT 1";
const AFTER: &str =
    "SELECT count(*), coalesce(sum(octet_length(body)), 0)::bigint FROM tickwheel.chain WHERE store = $1 AND n > $2";
const READ: &str = "
SELECT n, digest, epoch, kind, body
FROM (SELECT *, sum(octet_length(body)) OVER (ORDER BY n) - octet_length(body) AS bytes_before
      FROM (SELECT * FROM tickwheel.chain WHERE store = $1 AND n >= $2 ORDER BY n LIMIT 4096) AS next) AS next
WHERE bytes_before < 4194304 ORDER BY n";
const TAKEN: &str =
    "SELECT n, digest, epoch, kind, body FROM tickwheel.chain WHERE store = $1 AND kind = 1 AND epoch = $2";
const PUT_PIECE: &str = "INSERT INTO tickwheel.bases VALUES ($1, $2, $3, $4, $5)";
const BASE: &str = "
SELECT b.n, b.epoch, b.body FROM tickwheel.bases b JOIN tickwheel.chain c ON c.store = b.store AND c.n = b.n
WHERE b.store = $1 AND b.piece = 0 AND substring(b.body from 1 for 16) = c.digest ORDER BY b.n DESC LIMIT 1";
const PIECE: &str = "SELECT body FROM tickwheel.bases WHERE store = $1 AND n = $2 AND epoch = $3 AND piece = $4";
const TRIM: &str = "
WITH old AS (SELECT n FROM tickwheel.chain WHERE store = $1 AND n < $2 AND kind NOT IN (0, 1) ORDER BY n LIMIT 5000)
DELETE FROM tickwheel.chain WHERE store = $1 AND n IN (SELECT n FROM old)";
const TRIM_BASES: &str = "
WITH old AS (SELECT n, epoch, piece FROM tickwheel.bases WHERE store = $1 AND n < $2 LIMIT 100)
DELETE FROM tickwheel.bases b USING old WHERE b.store = $1 AND (b.n, b.epoch, b.piece) = (old.n, old.epoch, old.piece)";
/// How long an answer may take. Then the outcome is unknown.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
const NOT_WAITED: &str = "PostgreSQL did not wait for its replica";
/// Compresses text to a third in a tenth of the time that the higher levels take.
const ZSTD_LEVEL: i32 = 1;

impl Replicate {
    /// Statements of SQL that make the tables, for an administrator: a user of PostgreSQL may have no right to make any.
    ///
    /// ```
    /// assert!(tickwheel_delivery::Replicate::script().contains("CREATE TABLE"));
    /// ```
    #[must_use]
    pub fn script() -> &'static str {
        TABLES
    }

    /// Replicates a store to a PostgreSQL: `postgresql://user@host/database?store=NAME`. The name tells the stores of a database
    /// apart. The tables are made in the schema `tickwheel`.
    ///
    /// With `sslmode=require` or `verify-full` the connection has TLS. Both check the server's certificate and
    /// name: by the certificates of the system, or by the PEM file `sslrootcert`. That option alone is enough too.
    ///
    /// ```
    /// use tickwheel_delivery::Replicate;
    ///
    /// assert!(Replicate::to("postgresql://ticks@db.example/ticks?store=orders").is_ok());
    /// assert!(Replicate::to("postgresql://ticks@db.example/ticks").is_err());
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`]: the address can't be read. It is not shown, because it may have a password.
    pub fn to(address: &str) -> Result<Self, DeliveryError> {
        let wrong = |why: &str| {
            let text = format!("the address to replicate to {why}: give postgresql://user@host/database?store=NAME");
            DeliveryError::Usage(text)
        };
        let (server, options) = address.split_once('?').ok_or_else(|| wrong("names no store"))?;
        let (store, others): (Vec<&str>, Vec<&str>) = options.split('&').partition(|it| it.starts_with("store="));
        let (roots, mut others): (Vec<&str>, Vec<&str>) =
            others.into_iter().partition(|it| it.starts_with("sslrootcert="));
        let roots =
            roots.last().map(|it| PathBuf::from(&it["sslrootcert=".len()..])).filter(|it| it != Path::new("system"));
        for option in &mut others {
            match *option {
                "sslmode=verify-full" => *option = "sslmode=require",
                "sslmode=verify-ca" => return Err(wrong("has sslmode=verify-ca, and names are always checked")),
                _ => {}
            }
        }
        if roots.is_some() && !others.iter().any(|it| it.starts_with("sslmode=")) {
            others.push("sslmode=require");
        }
        let [store] = store[..] else { return Err(wrong("must name one store")) };
        let store = store["store=".len()..].to_owned();
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        if store.is_empty() || store.len() > 100 || !store.chars().all(is_plain) {
            return Err(wrong("has a store's name that is not 1 to 100 letters, digits, - _ or ."));
        }
        let mut config: Config =
            format!("{server}?{}", others.join("&")).parse().map_err(|_| wrong("can't be read"))?;
        config.application_name("tickwheel").target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.connect_timeout(ANSWERS_WITHIN);
        let open =
            move || Ok(Box::new(PostgreSql::new(config.clone(), roots.as_deref(), store.clone())?) as Box<dyn Chain>);
        Ok(Self::with(Arc::new(open), Arc::new(now_ms)))
    }
}

/// Milliseconds since the machine started, with the time in which it slept.
fn now_ms() -> i64 {
    let id = if cfg!(target_os = "linux") { ClockId::Boottime } else { ClockId::Monotonic };
    let now = clock_gettime(id);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

struct PostgreSql {
    config: Config,
    tls: MakeRustlsConnect,
    store: String,
    runtime: Runtime,
    client: Option<Client>,
    /// PostgreSQL has warned since the last question: it did not wait for its replica.
    is_warned: Arc<AtomicBool>,
}

impl PostgreSql {
    fn new(config: Config, certificates: Option<&Path>, store: String) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        match certificates {
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
            Some(path) => {
                let wrong = |error: &dyn fmt::Display| format!("sslrootcert {}: {error}", path.display());
                for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                    roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
                }
            }
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let (client, is_warned) = (None, Arc::default());
        let mut it = Self { config, tls: MakeRustlsConnect::new(tls), store, runtime, client, is_warned };
        it.ask(async |_, _| Ok(()))?; // a wrong address or password is found now
        Ok(it)
    }

    /// Asks on a connection, which is opened if there is none.
    fn ask<T>(&mut self, ask: impl AsyncFnOnce(&Client, &str) -> Result<T, String>) -> Result<T, String> {
        let Self { config, tls, store, runtime, client, is_warned } = self;
        let asked = async {
            if client.as_ref().is_none_or(Client::is_closed) {
                *client = Some(connect(config, tls.clone(), is_warned.clone()).await?);
            }
            is_warned.store(false, Ordering::Relaxed);
            ask(client.as_ref().expect("it was opened"), store).await
        };
        let asked = runtime.block_on(async { timeout(ANSWERS_WITHIN, asked).await }); // its clock is the runtime's
        let answer = asked.unwrap_or_else(|_| Err("PostgreSQL did not answer in time".to_owned()));
        if answer.is_err() {
            self.client = None;
        }
        answer
    }
}

async fn connect(config: &Config, tls: MakeRustlsConnect, is_warned: Arc<AtomicBool>) -> Result<Client, String> {
    let (client, mut connection) = config.connect(tls).await.map_err(said)?;
    // It runs on, while a question waits for its answer.
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if matches!(message, AsyncMessage::Notice(notice) if notice.severity() == "WARNING") {
                is_warned.store(true, Ordering::Relaxed);
            }
        }
    });
    let ready = client.query_typed_one(READY, &[]).await.map_err(said)?;
    if ready.get::<_, String>(0) == "off" {
        let text = "synchronous_commit is off for this user of PostgreSQL, so a crash of PostgreSQL loses what it has \
                    confirmed: set it to on (ALTER ROLE ... SET synchronous_commit = on)";
        return Err(text.to_owned());
    }
    if !ready.get::<_, bool>(1) {
        client.batch_execute(TABLES).await.map_err(said)?;
    }
    Ok(client)
}

/// An error in PostgreSQL's own words.
#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn said(error: tokio_postgres::Error) -> String {
    let source = std::error::Error::source(&error).map(|it| format!(": {it}"));
    error.as_db_error().map_or_else(|| format!("{error}{}", source.unwrap_or_default()), |it| it.message().to_owned())
}

impl Chain for PostgreSql {
    fn append(&mut self, before: Option<Link>, row: &Row) -> Appended {
        let is_warned = self.is_warned.clone();
        let appended = self.ask(async |client, store| {
            let body = compressed(&row.body)?;
            let (link, before) = (row.link, before.map(|it| it.digest.to_vec()));
            let (digest, kind) = (&link.digest[..], row.kind as i16);
            let values: [(&(dyn ToSql + Sync), Type); 7] = [
                (&store, Type::TEXT),
                (&link.n, Type::INT8),
                (&row.epoch, Type::INT8),
                (&digest, Type::BYTEA),
                (&kind, Type::INT2),
                (&body, Type::BYTEA),
                (&before, Type::BYTEA),
            ];
            if client.execute_typed(APPEND, &values).await.map_err(said)? == 1 {
                return Ok(Appended::Stored);
            }
            let there = client.query_typed_opt(IS_THERE, &values[..4]).await.map_err(said)?;
            Ok(if there.is_some() { Appended::Seen } else { Appended::Refused })
        });
        match appended {
            Ok(Appended::Stored) if is_warned.load(Ordering::Relaxed) => Appended::Unknown(NOT_WAITED.to_owned()),
            Ok(appended) => appended,
            Err(reason) => Appended::Unknown(reason),
        }
    }

    fn newest(&mut self) -> Result<Option<Head>, String> {
        let found = self
            .ask(async |client, store| client.query_typed_opt(NEWEST, &[(&store, Type::TEXT)]).await.map_err(said))?;
        found.map(|it| head_of(&it)).transpose()
    }

    fn read(&mut self, from: i64) -> Result<Vec<Row>, String> {
        let found = self.ask(async |client, store| {
            client.query_typed(READ, &[(&store, Type::TEXT), (&from, Type::INT8)]).await.map_err(said)
        })?;
        found.iter().map(row_of).collect()
    }

    fn taken(&mut self, epoch: i64) -> Result<Option<Row>, String> {
        let found = self.ask(async |client, store| {
            client.query_typed_opt(TAKEN, &[(&store, Type::TEXT), (&epoch, Type::INT8)]).await.map_err(said)
        })?;
        found.as_ref().map(row_of).transpose()
    }

    fn put_piece(&mut self, n: i64, epoch: i64, piece: i64, body: &[u8]) -> Result<(), String> {
        let is_warned = self.is_warned.clone();
        self.ask(async |client, store| {
            let body = if piece == 0 { body.to_vec() } else { compressed(body)? };
            let values: [(&(dyn ToSql + Sync), Type); 5] = [
                (&store, Type::TEXT),
                (&n, Type::INT8),
                (&epoch, Type::INT8),
                (&piece, Type::INT8),
                (&body, Type::BYTEA),
            ];
            client.execute_typed(PUT_PIECE, &values).await.map(drop).map_err(said)
        })?;
        if is_warned.load(Ordering::Relaxed) { Err(NOT_WAITED.to_owned()) } else { Ok(()) }
    }

    fn base(&mut self) -> Result<Option<Base>, String> {
        let found =
            self.ask(async |client, store| client.query_typed_opt(BASE, &[(&store, Type::TEXT)]).await.map_err(said))?;
        found.map(|it| Base::read(it.get(0), it.get(1), it.get(2)).ok_or_else(damaged)).transpose()
    }

    fn piece(&mut self, base: &Base, piece: i64) -> Result<Vec<u8>, String> {
        let found = self.ask(async |client, store| {
            let values: [(&(dyn ToSql + Sync), Type); 4] =
                [(&store, Type::TEXT), (&base.at.n, Type::INT8), (&base.epoch, Type::INT8), (&piece, Type::INT8)];
            client.query_typed_opt(PIECE, &values).await.map_err(said)
        })?;
        let body = found.ok_or("the base was just replaced")?;
        zstd::decode_all(body.get::<_, &[u8]>(0)).map_err(|_| damaged())
    }

    fn trim(&mut self, base: &Base) -> Result<bool, String> {
        self.ask(async |client, store| {
            let values: [(&(dyn ToSql + Sync), Type); 2] = [(&store, Type::TEXT), (&base.at.n, Type::INT8)];
            let rows = client.execute_typed(TRIM, &values).await.map_err(said)?;
            let pieces = client.execute_typed(TRIM_BASES, &values).await.map_err(said)?;
            Ok(rows + pieces > 0)
        })
    }

    fn after(&mut self, n: i64) -> Result<(u64, u64), String> {
        let found = self.ask(async |client, store| {
            client.query_typed_one(AFTER, &[(&store, Type::TEXT), (&n, Type::INT8)]).await.map_err(said)
        })?;
        Ok((found.get::<_, i64>(0) as u64, found.get::<_, i64>(1) as u64))
    }
}

fn compressed(body: &[u8]) -> Result<Vec<u8>, String> {
    match body {
        [] => Ok(Vec::new()),
        body => zstd::bulk::compress(body, ZSTD_LEVEL).map_err(|error| error.to_string()),
    }
}

fn head_of(found: &Found) -> Result<Head, String> {
    let digest = found.get::<_, &[u8]>(1).try_into().map_err(|_| damaged())?;
    let kind = Kind::of(found.get(3)).ok_or_else(damaged)?;
    Ok(Head { link: Link { n: found.get(0), digest }, epoch: found.get(2), kind })
}

fn row_of(found: &Found) -> Result<Row, String> {
    let Head { link, epoch, kind } = head_of(found)?;
    let body = found.get::<_, &[u8]>(4);
    // One that can't be read is found by its digest.
    let body = if body.is_empty() { Vec::new() } else { zstd::decode_all(body).unwrap_or_default() };
    Ok(Row { link, epoch, kind, body })
}

fn damaged() -> String {
    "a row of the chain is damaged".to_owned()
}

#[cfg(test)]
mod tests;
