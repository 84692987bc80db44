//! Reads the requests that Python submits, beside messages and records.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyMapping, PySequence, PyString};

use crate::delivery::calls::failures::{self, bad_record, quoted};
use crate::delivery::values::entry::Entry;
use crate::delivery::values::message::{message_class, parts_of_name, text};
use crate::delivery::values::puts::{event_of, put_of};
use crate::tools::made_once::{imported, intern};
use tickwheel_delivery::internal::{
    ActionKind, Cancel, Failing, Filter, Item, PartKind, Progress, Reschedule, TenantChange, check_destination,
    check_name, check_tenant, checked_destination, checked_pause_end, checked_tenant, with_commas,
};
use tickwheel_delivery::{BadRecord, Letter};

const ENTRIES: &str = "tickwheel.delivery.model.entries";

/// For how long a cancel may be remembered: as long as ids may be kept.
const MOST_DAYS: u32 = 36_500;

/// Reads a message, a `Cancel`, `Reschedule`, `Event`, `ForgetEvent`, `Requeue`, `Act`, `Pause`, `Again`,
/// `SetDestination`, `RemoveDestination`, `SetTenant`, `RemoveTenant`, `Look` or `Progress`.
///
/// Errors: `TypeError` for anything else; `BadRecord`; `WrongUsage` for what is no message.
pub(crate) fn entry_of(item: &Bound<'_, PyAny>, max_payload: usize) -> PyResult<Entry> {
    let py = item.py();
    let is_message = item.is_instance(message_class(py)?)?;
    let is_progress = item.is_exact_instance(imported!(py, ENTRIES, "Progress")?);
    let is_text = item.is_instance_of::<PyString>() || item.is_instance_of::<PyBytes>();
    let is_listed = !is_text && item.cast::<PySequence>().is_ok();
    if is_message || (is_listed && !is_progress) || item.cast::<PyMapping>().is_ok() {
        return put_of(item, max_payload);
    }
    Ok(Entry::Other(if item.is_exact_instance(imported!(py, ENTRIES, "Requeue")?) {
        let (id, key) = name_of(item)?;
        Item::Requeue { id, key }
    } else if item.is_exact_instance(imported!(py, ENTRIES, "Act")?) {
        act_of(item)?
    } else if item.is_instance(imported!(py, "tickwheel.delivery.model.message", "Cancel")?)? {
        let (id, key) = name_of(item)?;
        Item::Cancel(Cancel { id, key, keep_days: keep_days_of(item)? })
    } else if item.is_exact_instance(imported!(py, ENTRIES, "Reschedule")?) {
        let (id, key) = name_of(item)?;
        let due_ms = item.getattr(intern!(py, "due_ms"))?.extract()?;
        Item::Reschedule(Reschedule { id, key, due_ms })
    } else if item.is_exact_instance(imported!(py, ENTRIES, "Event")?) {
        Item::Event { event: event_of(item, max_payload)?, origin: None }
    } else if item.is_exact_instance(imported!(py, ENTRIES, "ForgetEvent")?) {
        let (id, key) = name_of(item)?;
        Item::Forget { id, key: key.unwrap_or_default() }
    } else if item.is_exact_instance(imported!(py, ENTRIES, "Pause")?) {
        let is_paused = item.getattr(intern!(py, "is_paused"))?.extract()?;
        let until_ms: Option<i64> = item.getattr(intern!(py, "until_ms"))?.extract()?;
        let until_ms = until_ms.map(checked_pause_end).transpose().map_err(|bad| bad_record(py, &bad))?;
        let destination: Option<String> = item.getattr(intern!(py, "destination"))?.extract()?;
        let tenant: Option<String> = item.getattr(intern!(py, "tenant"))?.extract()?;
        let (part, name) = match (destination, tenant, key_of(item)?) {
            (Some(name), ..) => (PartKind::Destination, destination_of(py, &name)?),
            (_, Some(name), _) => (PartKind::Tenant, tenant_of(py, &name)?),
            (.., Some(key)) => (PartKind::Key, key),
            _ => (PartKind::All, String::new()),
        };
        Item::Pause { part, name, is_paused, until_ms }
    } else if item.is_exact_instance(imported!(py, ENTRIES, "Again")?) {
        Item::Again(match key_of(item)? {
            Some(key) => Failing::Key(key),
            None => Failing::Message(name_of(item)?.0),
        })
    } else if item.is_exact_instance(imported!(py, ENTRIES, "SetDestination")?) {
        let (name, settings): (String, String) =
            (item.getattr(intern!(py, "name"))?.extract()?, item.getattr(intern!(py, "settings"))?.extract()?);
        let name = destination_of(py, &name)?;
        check_destination(&settings).map_err(|error| failures::to_python(py, &error))?;
        Item::SetDestination { name, settings }
    } else if item.is_exact_instance(imported!(py, ENTRIES, "RemoveDestination")?) {
        let (name, dead): (String, bool) =
            (item.getattr(intern!(py, "name"))?.extract()?, item.getattr(intern!(py, "dead"))?.extract()?);
        Item::RemoveDestination { name: destination_of(py, &name)?, dead }
    } else if item.is_exact_instance(imported!(py, ENTRIES, "SetTenant")?) {
        let (name, settings): (String, String) =
            (item.getattr(intern!(py, "name"))?.extract()?, item.getattr(intern!(py, "settings"))?.extract()?);
        check_tenant(&settings).map_err(|error| failures::to_python(py, &error))?;
        change_tenant(py, &name, TenantChange::Set(settings))?
    } else if item.is_exact_instance(imported!(py, ENTRIES, "RemoveTenant")?) {
        let name: String = item.getattr(intern!(py, "name"))?.extract()?;
        change_tenant(py, &name, TenantChange::Remove)?
    } else if item.is_instance(imported!(py, ENTRIES, "Look")?)? {
        let (id, key) = name_of(item)?;
        Item::Look { id, key }
    } else if is_progress {
        let (source, line, size, digest) = item.extract::<(String, i64, i64, [u8; 16])>()?;
        Item::Progress(Progress { source, line, size, digest })
    } else {
        let allowed = "give a Message, a Cancel or a Look";
        return Err(PyTypeError::new_err(format!("{} can't be submitted: {allowed}", quoted(item))));
    }))
}

fn destination_of(py: Python<'_>, name: &str) -> PyResult<String> {
    checked_destination(name).map_err(|bad| bad_record(py, &bad))
}

fn change_tenant(py: Python<'_>, name: &str, change: TenantChange) -> PyResult<Item> {
    Ok(Item::ChangeTenant { name: tenant_of(py, name)?, change })
}

fn tenant_of(py: Python<'_>, name: &str) -> PyResult<String> {
    checked_tenant(name).map_err(|bad| bad_record(py, &bad))
}

/// Its parts were checked by the caller.
fn act_of(act: &Bound<'_, PyAny>) -> PyResult<Item> {
    let py = act.py();
    let kind: String = act.getattr(intern!(py, "kind"))?.extract()?;
    let tenant: Option<String> = act.getattr(intern!(py, "tenant"))?.extract()?;
    let kind = ActionKind::of(&kind).ok_or_else(|| PyTypeError::new_err(format!("{kind} is no action")))?;
    let filter = Filter {
        key: act.getattr(intern!(py, "filter_key"))?.extract()?,
        key_prefix: act.getattr(intern!(py, "key_prefix"))?.extract()?,
        due_from_ms: act.getattr(intern!(py, "due_from_ms"))?.extract()?,
        due_before_ms: act.getattr(intern!(py, "due_before_ms"))?.extract()?,
        destination: act.getattr(intern!(py, "destination"))?.extract()?,
        tenant: tenant.map(|name| tenant_of(py, &name)).transpose()?,
    };
    Ok(Item::Act { id: act.getattr(intern!(py, "id"))?.extract()?, kind, filter })
}

fn keep_days_of(cancel: &Bound<'_, PyAny>) -> PyResult<u32> {
    let keep_days = cancel.getattr(intern!(cancel.py(), "keep_days"))?;
    let given = if keep_days.is_instance_of::<PyBool>() { None } else { keep_days.extract::<u32>().ok() };
    given.filter(|days| *days <= MOST_DAYS).ok_or_else(|| {
        let reason = format!("keep_days is {}", quoted(&keep_days));
        let allowed = format!("keep_days: a whole number of days, 0 to {}", with_commas(MOST_DAYS as usize));
        bad_record(cancel.py(), &BadRecord { reason, allowed })
    })
}

fn name_of(named: &Bound<'_, PyAny>) -> PyResult<(String, Option<String>)> {
    let (id, key) = parts_of_name(named)?;
    let id = text(&id, "id")?;
    let key = key.as_ref().map(|key| text(key, "key")).transpose()?;
    check_name(key, id).map_err(|bad| bad_record(named.py(), &bad))?;
    Ok((id.to_owned(), key.map(str::to_owned)))
}

/// A key alone, or none.
fn key_of(named: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let key = named.getattr(intern!(named.py(), "key"))?;
    if key.is_none() {
        return Ok(None);
    }
    let key = text(&key, "key")?;
    check_name(Some(key), "any").map_err(|bad| bad_record(named.py(), &bad))?;
    Ok(Some(key.to_owned()))
}

/// As `Progress` of Python.
pub(crate) fn progress_to_python<'py>(py: Python<'py>, it: &Progress) -> PyResult<Bound<'py, PyAny>> {
    let digest = PyBytes::new(py, &it.digest);
    imported!(py, ENTRIES, "Progress")?.call1((&it.source, it.line, it.size, digest))
}

/// As `Letter` of Python.
pub(crate) fn letter_to_python<'py>(py: Python<'py>, it: &Letter) -> PyResult<Bound<'py, PyAny>> {
    let record = PyBytes::new(py, &it.record);
    imported!(py, ENTRIES, "Letter")?.call1((&it.source, it.line, &it.reason, &it.allowed, record))
}
