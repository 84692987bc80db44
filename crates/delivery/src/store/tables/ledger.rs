//! What is asked of the ledger.

#![forbid(unsafe_code)]

use rusqlite::Connection;

use crate::store::sql::{Result, cached};
use crate::store::{Outcome, Percentiles};

/// Percentiles of what was delivered after that row.
pub(in crate::store) fn lateness_ms(db: &Connection, after_n: i64) -> Result<Percentiles> {
    let text = "SELECT lateness_us FROM ledger WHERE n > ? AND outcome = ? AND lateness_us IS NOT NULL";
    let mut late_us: Vec<i64> = cached(db, text)?
        .query_map([after_n, Outcome::Delivered as i64], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    late_us.sort_unstable();
    let nth = |per_mille: usize| {
        let rank = (per_mille * late_us.len()).div_ceil(1_000);
        late_us.get(rank.checked_sub(1)?).map(|late_us| *late_us as f64 / 1_000.0)
    };
    Ok(Percentiles { p50: nth(500), p99: nth(990), p999: nth(999), max: nth(1_000) })
}
