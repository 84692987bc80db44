//! `Callees`: the Python objects that one engine may still call, until it has ended (border rule 8).
//!
//! The garbage collector does not see them, because an open engine may call them at any time, in its own threads. So an
//! open queue and its functions stay alive, even if the program has forgotten the queue. A closed queue has no
//! reference to them.

use std::sync::{Arc, Weak};

use pyo3::prelude::*;

use crate::tools::finalizing::drop_or_leak;
use crate::tools::gil_cell::GilCell;

type Place = GilCell<Option<Py<PyAny>>>;

/// A Python object that an engine may still call.
#[derive(Clone)]
pub(crate) struct Callee(Arc<Place>);

impl Callee {
    /// `None` once the engine has ended.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let object = self.0.with(py, |object| object.as_ref().map(|object| object.clone_ref(py)));
        object.map(|object| object.into_bound(py))
    }
}

/// All callees of one engine, and its number.
#[derive(Clone)]
pub(crate) struct Callees {
    engine: u64,
    listed: Arc<GilCell<Listed>>,
}

/// The callees of one engine. The next `add` removes the places of callees that no longer exist.
#[derive(Default)]
struct Listed {
    has_ended: bool,
    places: Vec<Weak<Place>>,
}

impl Callees {
    pub(crate) fn of_engine(engine: u64) -> Self {
        Self { engine, listed: Arc::default() }
    }

    /// The number of the engine.
    pub(crate) fn engine(&self) -> u64 {
        self.engine
    }

    /// Adds a callee. When the engine has ended, it is dropped with the others and never called again.
    pub(crate) fn add(&self, py: Python<'_>, object: Py<PyAny>) -> Callee {
        let place = Arc::new(GilCell::new(Some(object)));
        let has_ended = self.listed.with(py, |listed| {
            listed.places.retain(|place| place.strong_count() > 0);
            listed.places.push(Arc::downgrade(&place));
            listed.has_ended
        });
        if has_ended {
            self.forget(py);
        }
        Callee(place)
    }

    /// The engine has ended: it calls nothing more. The objects are dropped while no lock is held, because a destructor
    /// may run.
    pub(crate) fn forget(&self, py: Python<'_>) {
        let places = self.listed.with(py, |listed| {
            listed.has_ended = true;
            std::mem::take(&mut listed.places)
        });
        for place in places.iter().filter_map(Weak::upgrade) {
            drop_or_leak(place.with(py, Option::take));
        }
    }
}
