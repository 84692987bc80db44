//! Reads a recurring record (rule D19): `every` or `cron`, with `tz` and `missed`.
//!
//! `tz` and `missed` have a meaning only beside `every` or `cron`. In any other record they are ordinary fields of
//! the payload, because tables often have a column with such a name.

use super::{Fields, Schema, Value};
use crate::base::display::quoted;
use crate::base::error::BadRecord;
use crate::base::times::{divided_up, due_in_range};
use crate::message::columns::{MISSED, TZ, refuse_near};
use crate::message::recurrence::{Missed, Recurrence, Rule, check_parts};

const MISSED_ALLOWED: &str = "missed: \"skip\", \"all\" or \"last\"";

impl<'a> Fields<'a> {
    /// Whether the record has a rule.
    pub(in crate::message) fn recurs(&self) -> bool {
        self.every != Value::Absent || self.cron != Value::Absent
    }

    /// The fields without `every`, `cron`, `tz` and `missed`.
    pub(super) fn once(&self) -> Fields<'a> {
        let others = self.others.iter().filter(|(name, _)| name != TZ && name != MISSED);
        Fields { every: Value::Absent, cron: Value::Absent, others: others.cloned().collect(), ..self.clone() }
    }
}

impl Schema {
    /// The rule of the record, and the delay of the first occurrence if the record gives one.
    pub(super) fn recurrence(
        &self,
        fields: &Fields<'_>,
        now_ns: Option<i64>,
    ) -> Result<(Recurrence, Option<f64>), BadRecord> {
        let Some(now_ns) = now_ns else {
            let reason = "a recurring message counts from acceptance, which a replay does not have";
            return Err(BadRecord::new(reason, "with --speed: messages that come once"));
        };
        let id = if let Value::Text(id) = &fields.id { id } else { "" };
        check_parts(id, fields.expires != Value::Absent)?;
        fields.others.iter().try_for_each(|(name, _)| refuse_near(name, &[(MISSED, 1), (TZ, 0)]))?;
        let rule = rule(fields)?;
        let missed = match other(fields, MISSED)?.as_deref() {
            None | Some("skip") => Missed::Skip,
            Some("all") => Missed::All,
            Some("last") => Missed::Last,
            Some(text) => return Err(BadRecord::new(format!("missed is {}", quoted(text, 60)), MISSED_ALLOWED)),
        };
        let is_given = |value: &Value<'_>| *value != Value::Absent;
        let now_ms = divided_up(now_ns, 1_000_000);
        let (from_ms, delay_ms) = if is_given(&fields.due) || is_given(&fields.delay_ms) {
            self.due(fields, Some(now_ns))?
        } else if let Rule::Every { every } = rule {
            (due_in_range(now_ms.saturating_add(every), "now + every")?, None)
        } else {
            (now_ms, None)
        };
        let given_ms = is_given(&fields.due).then_some(from_ms);
        Ok((Recurrence { rule, missed, from_ms, given_ms, sent_ms: None }, delay_ms))
    }
}

fn rule(fields: &Fields<'_>) -> Result<Rule, BadRecord> {
    let tz = other(fields, TZ)?;
    match (&fields.every, &fields.cron) {
        (Value::Absent, Value::Text(cron)) => Rule::cron(cron, tz.as_deref().unwrap_or("UTC")),
        (Value::Absent, _) => Err(Rule::no_text("cron")),
        (_, Value::Absent) if tz.is_some() => {
            Err(BadRecord::new("tz is given with every", "tz with cron only: every counts milliseconds"))
        }
        (Value::Integer(every), Value::Absent) => i64::try_from(*every).map_or(Err(Rule::no_every()), Rule::every),
        (Value::Float(every), Value::Absent) if every.fract() == 0.0 && every.abs() < 1e15 => {
            Rule::every(*every as i64)
        }
        (_, Value::Absent) => Err(Rule::no_every()),
        _ => Err(BadRecord::new("both every and cron are given", "either every or cron")),
    }
}

/// The text of a field that the format's reader does not know.
fn other(fields: &Fields<'_>, name: &str) -> Result<Option<String>, BadRecord> {
    let Some((_, json)) = fields.others.iter().find(|(other, _)| other == name) else { return Ok(None) };
    serde_json::from_slice(json)
        .map(Some)
        .map_err(|_| if name == TZ { Rule::no_text(TZ) } else { BadRecord::new("missed is not text", MISSED_ALLOWED) })
}
