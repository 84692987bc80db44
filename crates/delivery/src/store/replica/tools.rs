//! For a person, while no deliverer uses the file: gets a file from a chain, and ends a chain.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::following::{catch_up, forget};
use super::owner::has_left;
use super::place::at;
use super::{Lease, Replica, Replicate, Role};
use crate::base::error::{DeliveryError, StoreError};
use crate::store::file::options::Limits;
use crate::store::file::owner::Ownership;
use crate::store::file::schema;
use crate::store::sql::{Broken, Result};

/// How long to wait for an owner that is gone without a word.
const GONE_WITHIN: Duration = Duration::from_secs(5);

impl Replicate {
    /// Makes a store from the chain, with all that was answered. `store` must not exist. The file belongs to the chain: a deliverer
    /// with this setting goes on from it, and [`leave`](Replicate::leave) makes it a store of its own.
    ///
    /// ```no_run
    /// # use tickwheel_delivery::Replicate;
    /// Replicate::to("postgresql://ticks@db.example/ticks?store=orders")?.restore("restored.db")?;
    /// # Ok::<(), tickwheel_delivery::DeliveryError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`]: the file exists. [`DeliveryError::Store`]: there is no such chain, or it can't be read.
    pub fn restore(&self, store: impl AsRef<Path>) -> Result<(), DeliveryError> {
        let store = store.as_ref();
        if std::fs::metadata(store).is_ok_and(|found| found.len() > 0) {
            return Err(DeliveryError::Usage(format!("{} exists: name a new file", store.display())));
        }
        self.with_file(store, |db, lease| {
            let mut chain = self.open().map_err(super::unusable)?;
            if chain.newest().map_err(super::unusable)?.is_none() {
                return Err(super::unusable("PostgreSQL has no chain of this name".to_owned()));
            }
            Ok(catch_up(db, &mut *chain, lease).map(drop)?)
        })
    }

    /// Ends the chain for good: the file becomes a store that is not replicated, and no process takes the chain over again. It waits some
    /// seconds for an owner that was killed. The rows stay in PostgreSQL until a person deletes them.
    ///
    /// ```no_run
    /// # use tickwheel_delivery::Replicate;
    /// Replicate::to("postgresql://ticks@db.example/ticks?store=orders")?.leave("orders.db")?;
    /// # Ok::<(), tickwheel_delivery::DeliveryError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeliveryError::Usage`]: there is no file, it is not replicated, or is in use. [`DeliveryError::Closed`]: another process owns
    /// the chain. [`DeliveryError::Store`]: the chain can't be reached, or is of another store.
    pub fn leave(&self, store: impl AsRef<Path>) -> Result<(), DeliveryError> {
        let store = store.as_ref();
        if !store.is_file() {
            return Err(DeliveryError::Usage(format!("there is no store {}", store.display())));
        }
        let (end, look) = (Instant::now() + GONE_WITHIN, self.look());
        let to = self.clone().while_opening(move |it| look(it) && (it.role != Role::Standby || Instant::now() < end));
        to.with_file(store, |db, lease| {
            if at(db)?.is_none() {
                return Err(super::unusable("it is not replicated".to_owned()));
            }
            if let Some(epoch) = has_left(db, &mut *self.open().map_err(super::unusable)?)? {
                return forget(db, epoch); // an earlier try
            }
            Replica::open(db, &to, lease, Limits::default())?.leave(db)
        })
    }

    fn with_file(
        &self,
        store: &Path,
        run: impl FnOnce(&mut Connection, &Arc<Lease>) -> Result<()>,
    ) -> Result<(), DeliveryError> {
        let mut ownership = Ownership::try_take(store)?;
        let is_done = Arc::new(AtomicBool::new(false));
        ownership.remove_unless(is_done.clone());
        let path = ownership.path();
        let mut db = schema::connect(path, "FULL", None)?;
        run(&mut db, &Arc::new(self.lease())).map_err(|broken| match broken {
            Broken::Closed => DeliveryError::Closed,
            broken => broken.of(path).into(),
        })?;
        is_done.store(true, Ordering::SeqCst);
        db.close().map_err(|(_, error)| StoreError::because(path, &error).into())
    }
}
