//! When a recurring message is due again (rule D19): every N milliseconds, or by a cron pattern in a time zone.
//!
//! Example: a message is due every 60,000 ms from 10:00:00 on. Its destination is down, so the occurrence of 10:01 has
//! its outcome only at 10:03:30. With `skip` the next occurrence is due at 10:04. With `all` the next occurrence is due
//! at 10:02, and is delivered at once. With `last` the next occurrence is due at 10:03.
//!
//! `croner` reads the patterns and `jiff` knows the time zones. Two rules apply to a pattern that names hours:
//!
//! - When the clock goes forward, it skips some times of the day. A skipped time is due at the first moment after the
//!   gap.
//! - When the clock goes back, it shows some times of the day twice. Such a time is due only once.
//!
//! A pattern with all hours (`*`, `*/2`) counts the hours that really pass. `croner` alone follows these rules only
//! for patterns with a single hour and minute. Each question evaluates the rule anew, so an updated time zone counts
//! from then on.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::base::display::{quoted, with_commas};
use crate::base::due_times::due_from_text;
use crate::base::error::BadRecord;
use crate::base::times::{MAX_DUE_MS, due_in_range, rfc_3339, zone_named};

/// The due time of the recurring message itself, after all real due times. The message is never sent; its occurrences
/// are.
pub(crate) const NEVER_MS: i64 = MAX_DUE_MS + 1;

/// Bytes of the due time in the id of an occurrence, after the `@`.
const DUE: usize = 24;
/// The most bytes of the count of steps in such an id, with the `#`.
const STEPS: usize = 20;
/// The most bytes of a recurring message's id. The id of an occurrence has up to 45 more, and must fit into a usual id.
const LONGEST_ID: usize = (1 << 20) - 1 - DUE - STEPS;

const LONGEST_PATTERN: usize = 256;
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// The year 4940. `croner` searches up to the year 5000 for a pattern that never comes, and from today such a search
/// takes 50 ms. The check of a new pattern begins here, in the last sixty years. In these years each day of the year
/// falls on each day of the week.
const LAST_YEARS_MS: i64 = 93_724_128_000_000;
const EVERY: &str = "every: a whole number of milliseconds, 1 to 253,402,300,799,999";
const CRON: &str = "cron: minute, hour, day of the month, month and day of the week, such as \"30 9 * * 1-5\"; seconds before \
                    them, if there are six fields; or @hourly, @daily, @midnight, @weekly, @monthly, @yearly";
const TZ: &str = "tz: a name of the IANA database, such as Europe/Berlin or UTC";

/// How missed occurrences are treated. An occurrence is missed if the one before had no outcome in time, or if
/// nothing ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// Missed occurrences are left out.
    #[default]
    Skip,
    /// Each missed occurrence is delivered, one after the other.
    All,
    /// Only the last missed occurrence is delivered.
    Last,
}

/// How the times of the occurrences are computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Rule {
    /// A fixed number of milliseconds apart.
    Every { every: i64 },
    /// By a cron pattern, in a time zone.
    Cron { cron: Box<str>, tz: Box<str> },
}

/// A rule, its start, and what happens to missed occurrences. The store keeps it as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recurrence {
    #[serde(flatten)]
    pub(crate) rule: Rule,
    pub(crate) missed: Missed,
    /// The start. The first occurrence is due at this time, or at the pattern's first time from then on.
    #[serde(rename = "from")]
    pub(crate) from_ms: i64,
    /// The start, if the record gave it as a due time and not as a delay. It is part of the content (D5).
    #[serde(skip)]
    pub(crate) given_ms: Option<i64>,
    /// Of a store that was restored: all occurrences up to this time may have been sent. If they are sent again, they
    /// are marked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sent_ms: Option<i64>,
}

impl Rule {
    /// A rule with a fixed number of milliseconds between occurrences.
    ///
    /// # Errors
    /// The number is out of range.
    pub(crate) fn every(every: i64) -> Result<Self, BadRecord> {
        if (1..=MAX_DUE_MS).contains(&every) {
            return Ok(Self::Every { every });
        }
        Err(BadRecord::new(format!("every is {every}"), EVERY))
    }

    /// A rule by a cron pattern.
    ///
    /// # Errors
    /// The pattern is not valid or never comes, or the time zone is not known.
    pub(crate) fn cron(cron: &str, tz: &str) -> Result<Self, BadRecord> {
        pattern(cron)?;
        zone_named(tz, "tz")?;
        let rule = Self::Cron { cron: cron.into(), tz: tz.into() };
        rule.at_or_after(LAST_YEARS_MS)?;
        Ok(rule)
    }

    /// The error for an `every` that is not a number of milliseconds.
    pub(crate) fn no_every() -> BadRecord {
        BadRecord::new("every is not a whole number in range", EVERY)
    }

    /// The error for a field that is not text.
    pub(crate) fn no_text(name: &str) -> BadRecord {
        BadRecord::new(format!("{name} is not text"), if name == "tz" { TZ } else { CRON })
    }

    fn at_or_after(&self, from_ms: i64) -> Result<i64, BadRecord> {
        let Self::Cron { cron, tz } = self else { return Ok(from_ms) };
        let no_zone = |_| BadRecord::new(format!("tz is {}: it is not known here any more", quoted(tz, 60)), TZ);
        let (pattern, zone) = (pattern(cron)?, TimeZone::get(tz).map_err(no_zone)?);
        let from = instant(from_ms.saturating_add(999).div_euclid(1_000))?;
        let found = if has_every_hour(cron) {
            let next = pattern.find_next_occurrence(&from.to_zoned(zone), true);
            next.ok().map(|next| next.timestamp())
        } else {
            next_by_the_clock(&pattern, &zone, from)
        };
        let never = || BadRecord::new(format!("cron is {}: it never comes", quoted(cron, 60)), CRON);
        Ok(found.ok_or_else(never)?.as_millisecond())
    }
}

/// Whether the pattern has all hours (`*`) or every Nth hour (`*/2`). Such a pattern counts hours that pass, not
/// hours that the clock shows.
fn has_every_hour(cron: &str) -> bool {
    let fields: Vec<&str> = cron.split_whitespace().collect();
    match fields[..] {
        [nickname] => nickname.eq_ignore_ascii_case("@hourly"),
        [.., hour, _, _, _] => hour.contains('*'),
        _ => false,
    }
}

/// The first moment from `from` on at which the clock of the zone shows a time of the pattern. A time that the clock
/// skips counts as the first moment after the gap. If the clock shows a time twice, the first one counts.
fn next_by_the_clock(pattern: &Cron, zone: &TimeZone, from: Timestamp) -> Option<Timestamp> {
    let change = zone.preceding(from.checked_add(SECOND).ok()?).next().map(|it| it.timestamp());
    // If a gap ends at `from`, the skipped times count as `from`.
    let shown = match change.filter(|change| *change == from) {
        Some(change) => {
            let before = zone.to_datetime(change.checked_sub(SECOND).ok()?).checked_add(SECOND).ok()?;
            before.min(zone.to_datetime(from))
        }
        None => zone.to_datetime(from),
    };
    let mut clock = TimeZone::UTC.to_zoned(shown).ok()?;
    let mut is_included = true;
    loop {
        clock = pattern.find_next_occurrence(&clock, is_included).ok()?;
        is_included = false;
        let ambiguous = zone.to_ambiguous_timestamp(clock.datetime());
        let at = match ambiguous.offset() {
            AmbiguousOffset::Gap { .. } => zone.following(ambiguous.earlier().ok()?).next()?.timestamp(),
            _ => ambiguous.earlier().ok()?,
        };
        if at >= from {
            return Some(at);
        }
    }
}

impl Recurrence {
    /// Checks a recurrence that a program made.
    ///
    /// # Errors
    /// The rule cannot be used, or [`check_parts`] fails.
    pub fn check(&self, id: &str, can_expire: bool) -> Result<(), BadRecord> {
        match &self.rule {
            Rule::Every { every } => Rule::every(*every)?,
            Rule::Cron { cron, tz } => Rule::cron(cron, tz)?,
        };
        due_in_range(self.from_ms, "the first due time")?;
        check_parts(id, can_expire)
    }

    /// When the first occurrence is due.
    ///
    /// # Errors
    /// There is no occurrence.
    pub fn first_ms(&self) -> Result<i64, BadRecord> {
        self.at_or_after(self.from_ms)
    }

    /// Whether the occurrence due at `due_ms` may have been sent before the store was restored.
    pub(crate) fn may_have_been_sent(&self, due_ms: i64) -> bool {
        self.sent_ms.is_some_and(|sent_ms| due_ms <= sent_ms)
    }

    /// When the occurrence after `last_ms` is due, asked at the time `now_ms`.
    ///
    /// # Errors
    /// No occurrence is left before year 10000, or the time zone is not known any more.
    pub(crate) fn after(&self, last_ms: i64, now_ms: i64) -> Result<i64, BadRecord> {
        let next_ms = self.at_or_after(last_ms.saturating_add(1))?;
        match self.missed {
            Missed::Skip if next_ms < now_ms => self.at_or_after(now_ms),
            Missed::Last if next_ms < now_ms => self.last_before(next_ms, now_ms),
            _ => Ok(next_ms),
        }
    }

    /// The rule after a step of the wall clock. `every` goes on in its rhythm. A pattern that had begun goes on from
    /// the corrected time.
    pub(crate) fn stepped(&self, step: Step) -> Self {
        let from_ms = match &self.rule {
            Rule::Every { .. } => self.from_ms + step.by_ms,
            Rule::Cron { .. } if self.from_ms <= step.before_ms() => self.from_ms.min(step.now_ms),
            Rule::Cron { .. } => self.from_ms,
        };
        Self { from_ms, sent_ms: self.sent_ms.map(|sent_ms| sent_ms + step.by_ms), ..self.clone() }
    }

    /// When the open occurrence, which was due at `at_ms`, is due after a step. It fails as [`Recurrence::after`] does.
    pub(crate) fn open_after(&self, step: Step, at_ms: i64) -> Result<i64, BadRecord> {
        match &self.rule {
            Rule::Every { .. } => due_in_range(at_ms + step.by_ms, "the next due time"),
            Rule::Cron { .. } if at_ms > step.now_ms => Ok(self.at_or_after(step.now_ms)?.min(at_ms)),
            Rule::Cron { .. } => Ok(at_ms),
        }
    }

    /// When the first occurrence from this time on is due. It fails as [`Recurrence::after`] does.
    pub(crate) fn at_or_after(&self, at_ms: i64) -> Result<i64, BadRecord> {
        let at_ms = at_ms.max(self.from_ms);
        let due_ms = match &self.rule {
            Rule::Every { every } => {
                let steps = (i128::from(at_ms) - i128::from(self.from_ms)).unsigned_abs().div_ceil(*every as u128);
                i64::try_from(i128::from(self.from_ms) + steps as i128 * i128::from(*every)).unwrap_or(i64::MAX)
            }
            rule @ Rule::Cron { .. } => rule.at_or_after(at_ms)?,
        };
        if due_ms <= MAX_DUE_MS {
            return Ok(due_ms);
        }
        Err(BadRecord::new("no occurrence is left before year 10000", "a due time before year 10000"))
    }

    /// The last occurrence up to `at_ms`. `first_ms` is an occurrence up to `at_ms`.
    fn last_before(&self, first_ms: i64, at_ms: i64) -> Result<i64, BadRecord> {
        if let Rule::Every { every } = &self.rule {
            return Ok(self.from_ms + (at_ms - self.from_ms) / every * every);
        }
        let (mut found_ms, mut beyond_ms) = (first_ms, at_ms);
        while found_ms < beyond_ms {
            let middle_ms = found_ms + (beyond_ms - found_ms + 1) / 2;
            match self.at_or_after(middle_ms)? {
                next_ms if next_ms <= at_ms => found_ms = next_ms,
                _ => beyond_ms = middle_ms - 1,
            }
        }
        Ok(found_ms)
    }

    /// The JSON that the store keeps.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and text are JSON")
    }

    /// The members for a record, without the braces.
    pub(crate) fn fields(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Members<'a> {
            #[serde(flatten)]
            rule: &'a Rule,
            missed: Missed,
        }
        let json =
            serde_json::to_vec(&Members { rule: &self.rule, missed: self.missed }).expect("numbers and text are JSON");
        json[1..json.len() - 1].to_vec()
    }

    /// Reads the JSON that the store keeps.
    pub(crate) fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The part of the content that comes from the rule. Two records with the same content share it, as well as the
    /// delay and the payload.
    pub(crate) fn content(&self) -> String {
        Self { from_ms: self.given_ms.unwrap_or(0), sent_ms: None, ..self.clone() }.to_json()
    }

    /// The approximate size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let rule = match &self.rule {
            Rule::Every { .. } => 0,
            Rule::Cron { cron, tz } => cron.len() + tz.len(),
        };
        size_of::<Self>() + rule
    }
}

/// A step of the wall clock, as an occurrence sees it that was made before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) by_ms: i64,
    pub(crate) now_ms: i64,
}

impl Step {
    /// What the clock would show now without the step.
    pub(crate) fn before_ms(self) -> i64 {
        self.now_ms - self.by_ms
    }
}

/// Checks the other parts of a recurring message.
///
/// # Errors
/// The message can expire, its id looks like the id of an occurrence, or the id is too long for occurrences.
pub(crate) fn check_parts(id: &str, can_expire: bool) -> Result<(), BadRecord> {
    if can_expire {
        return Err(BadRecord::new(
            "a recurring message can't expire",
            "every or cron without expires; a cancel ends it",
        ));
    }
    if recurring_id(id).is_some() {
        return Err(BadRecord::new("the id is that of an occurrence", "id: without a due time behind an @"));
    }
    if id.len() > LONGEST_ID {
        let reason = "the id leaves no room for the due time of an occurrence";
        return Err(BadRecord::new(reason, format!("id: at most {} bytes", with_commas(LONGEST_ID))));
    }
    Ok(())
}

/// The id of the recurring message, if `id` is the id of an occurrence.
pub(crate) fn recurring_id(id: &str) -> Option<&str> {
    let (of, rest) = id.rsplit_once('@')?;
    let (due, steps) = rest.split_once('#').map_or((rest, Some(0)), |(due, steps)| (due, steps.parse().ok()));
    let due_ms = due_from_text(due, "due", None).ok().filter(|_| due.len() == DUE)?;
    (occurrence_id(of, due_ms, steps?) == id).then_some(of)
}

/// The id of the recurring message, and the due time, if `id` may name an occurrence by its time alone. The time may have any
/// form that a due time may have.
pub(crate) fn occurrence_of(id: &str) -> Option<(&str, i64)> {
    let (of, due) = id.rsplit_once('@')?;
    Some((of, due_from_text(due, "due", None).ok()?))
}

/// The id of the occurrence due at `due_ms`, made after so many steps of the wall clock. The count tells a time that the
/// clock shows again from the first one.
pub(crate) fn occurrence_id(id: &str, due_ms: i64, steps: i64) -> String {
    let due = rfc_3339(due_ms);
    let due = std::str::from_utf8(&due).expect("it is ASCII");
    if steps == 0 { format!("{id}@{due}") } else { format!("{id}@{due}#{steps}") }
}

fn pattern(cron: &str) -> Result<Cron, BadRecord> {
    let bad = |why: &str| BadRecord::new(format!("cron is {}: {why}", quoted(cron, 60)), CRON);
    if cron.len() > LONGEST_PATTERN {
        return Err(bad("it is too long"));
    }
    let cron = if cron.eq_ignore_ascii_case("@midnight") { "@daily" } else { cron };
    let both = has_day_field_with_a_star(cron);
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).dom_and_dow(both).build();
    parser.parse(cron).map_err(|error| bad(&error.to_string()))
}

/// Whether the day of the month or the day of the week begins with `*`. Then a day must match both fields, as in Vixie
/// cron; otherwise one of them is enough. `0 0 1-7 * */7` is the first Sunday of a month.
fn has_day_field_with_a_star(cron: &str) -> bool {
    let fields: Vec<&str> = cron.split_whitespace().collect();
    matches!(fields[..], [.., day, _, weekday] if day.starts_with('*') || weekday.starts_with('*'))
}

fn instant(second: i64) -> Result<Timestamp, BadRecord> {
    let bad = |_| BadRecord::new("no occurrence is left before year 10000", "a due time before year 10000");
    Timestamp::from_second(second).map_err(bad)
}

#[cfg(test)]
mod tests;
