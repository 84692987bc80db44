//! Checks that each message is in exactly one place, and that all tables agree on it. One query reads all rows of a message.

use rusqlite::{Connection, Row, named_params};

use super::problems::Problems;
use crate::message::incoming::{Digest, lane_in, lane_of};
use crate::message::partition::partition_of_name;
use crate::message::recurrence::NEVER_MS;
use crate::store::Outcome;
use crate::store::open::near::Floor;
use crate::store::sql::Result;

/// How far the parts of the store have come, by their own notes.
pub(super) struct Ends {
    pub(super) floor: Floor,
    pub(super) forgotten_n: i64,
    pub(super) collected_n: i64,
}

/// Faults of a message, each with its condition. `m` is the message, and `b` its body. `w` and `l` are its rows in `waiting` and in
/// the ledger. `a` has its attempts, and `o` its occurrence. `r` says that it is an occurrence, and `v` that it was moved. `u` has the
/// events that it waits for.
const OF_MESSAGES: [(&str, &str); 17] = [
    ("messages that wait twice", "w.times > 1"),
    ("messages with two outcomes", "l.times > 1"),
    ("messages that wait, and have an outcome", "w.seq IS NOT NULL AND l.seq IS NOT NULL"),
    ("messages that neither wait nor have an outcome", "NOT is_open AND l.seq IS NULL"),
    ("messages that wait for another time than they are due at", "w.due_ms <> m.due_ms"),
    ("messages whose outcome is not that of the ledger", "m.outcome IS NOT nullif(l.outcome, :delivered)"),
    (
        "messages with an outcome that would be delivered again",
        "m.seq >= :floor_seq AND w.seq IS NULL AND l.n <= :floor_n AND b.seq IS NOT NULL",
    ),
    (
        "payloads that are not needed any more, and are never deleted",
        "m.seq < :floor_seq AND l.n <= :collected_n AND b.seq IS NOT NULL",
    ),
    ("messages that wait without a payload", "is_open AND b.seq IS NULL"),
    (
        "messages whose content's digest is not of the kind of their payload",
        "length(m.content) <> iif(typeof(b.payload) = 'text', 15, 16) AND b.seq IS NOT NULL",
    ),
    ("attempts of messages that do not wait", "a.seq IS NOT NULL AND NOT is_open"),
    ("occurrences that do not wait", "r.seq IS NOT NULL AND NOT is_open"),
    ("first due times of messages that do not wait", "v.seq IS NOT NULL AND NOT is_open"),
    (
        "messages whose waits for events are not those of their bodies",
        "is_open AND b.seq IS NOT NULL AND ifnull(b.recurrence = '', 0) <> (u.seq IS NOT NULL)",
    ),
    ("waits for events of messages that do not wait", "u.seq IS NOT NULL AND NOT is_open"),
    ("recurring messages without an occurrence", "is_open AND m.due_ms = :never AND o.seq IS NULL"),
    ("occurrences of messages that do not recur", "o.seq IS NOT NULL AND NOT (is_open AND m.due_ms = :never)"),
];

const IS_OPEN: &str = "(w.seq IS NOT NULL OR (l.seq IS NULL AND m.seq >= :floor_seq))";

/// Rows without a message, each with its table and column. An outcome may be that of a forgotten message.
const WITHOUT_MESSAGE: [(&str, &str, &str); 8] = [
    ("waits for events without a message", "waits", "seq"),
    ("payloads without a message", "bodies", "seq"),
    ("waiting rows without a message", "waiting", "seq"),
    ("attempts without a message", "attempts", "seq"),
    ("occurrences without a message", "occurrences", "seq"),
    ("occurrences without a message", "occurrences", "of_seq"),
    ("first due times without a message", "moved", "seq"),
    ("outcomes without a message", "(SELECT seq FROM ledger WHERE n > :forgotten_n)", "seq"),
];

/// Looks at all messages. Returns the number of messages, and the number of open ones.
pub(super) fn look(
    db: &Connection,
    ends: &Ends,
    number: fn(Digest) -> i64,
    problems: &mut Problems,
) -> Result<(u64, u64)> {
    for (what, table, column) in WITHOUT_MESSAGE {
        let text =
            format!("SELECT {column} AS it FROM {table} WHERE NOT EXISTS (SELECT 1 FROM messages WHERE seq = it)");
        let mut select = db.prepare(&text)?;
        if select.parameter_count() > 0 {
            select.raw_bind_parameter(1, ends.forgotten_n)?;
        }
        let mut rows = select.raw_query();
        while let Some(row) = rows.next()? {
            problems.add(what, row.get(0)?);
        }
    }
    let conditions = OF_MESSAGES.map(|(_, condition)| condition.replace("is_open", IS_OPEN)).join(", ");
    let text = format!(
        "WITH w AS MATERIALIZED (SELECT seq, due_ms, lane, ifnull(share, 0) AS share, count(*) AS times FROM waiting GROUP BY seq),
              l AS MATERIALIZED (SELECT seq, max(n) AS n, outcome, count(*) AS times FROM ledger GROUP BY seq)
         SELECT m.seq, m.name, m.key, m.id, m.due_ms, w.seq IS NOT NULL, w.share, w.lane, v.partition, u.key, {IS_OPEN}, {conditions}
         FROM messages m LEFT JOIN bodies b ON b.seq = m.seq LEFT JOIN w ON w.seq = m.seq LEFT JOIN l ON l.seq = m.seq
         LEFT JOIN attempts a ON a.seq = m.seq LEFT JOIN occurrences o ON o.of_seq = m.seq
         LEFT JOIN occurrences r ON r.seq = m.seq LEFT JOIN moved v ON v.seq = m.seq LEFT JOIN waits u ON u.seq = m.seq
         ORDER BY m.seq"
    );
    let mut select = db.prepare(&text)?;
    let Ends { floor, collected_n, .. } = ends;
    let mut rows = select.query(named_params! {
        ":floor_seq": floor.seq, ":floor_n": floor.n, ":collected_n": collected_n, ":never": NEVER_MS,
        ":delivered": Outcome::Delivered as i64,
    })?;
    let (mut count, mut open) = (0, 0);
    while let Some(row) = rows.next()? {
        let seq = row.get(0)?;
        look_at_name(seq, row, number, problems)?;
        for (place, (what, _)) in OF_MESSAGES.iter().enumerate() {
            problems.add_if(row.get::<_, Option<bool>>(FIRST_CONDITION + place)? == Some(true), what, seq);
        }
        count += 1;
        open += u64::from(row.get::<_, bool>(FIRST_CONDITION - 1)?);
    }
    Ok((count, open))
}

/// The place of the first condition in a row.
const FIRST_CONDITION: usize = 11;

/// Checks what is computed from the key and the id of a message.
fn look_at_name(seq: i64, row: &Row<'_>, number: fn(Digest) -> i64, problems: &mut Problems) -> rusqlite::Result<()> {
    let text = |bytes| String::from_utf8_lossy(bytes); // text that is damaged has another digest
    let key = row.get_ref(2)?.as_bytes_or_null()?.map(text);
    let (key, id) = (key.as_deref(), text(row.get_ref(3)?.as_bytes()?));
    let (name, _due_ms): (i64, i64) = (row.get(1)?, row.get(4)?); // both must be numbers
    let mut tell = |is_so, what| problems.add_if(is_so, what, seq);
    tell(name != number(Digest::of(key, &id)), "messages whose digest is not that of their key and id");
    if row.get(5)? {
        let share = row.get(6)?;
        let lane = row.get::<_, Option<i64>>(7)?.map(|lane| lane_in(share, lane));
        tell(lane != lane_of(key), "messages that wait in the lane of another key");
    }
    let partition = row.get::<_, Option<u8>>(8)?;
    let is_of_another = partition.is_some_and(|it| it != partition_of_name(key, &id));
    tell(is_of_another, "first due times in the partition of another name");
    let waits_for = row.get::<_, Option<i64>>(9)?;
    tell(waits_for.is_some() && waits_for != lane_of(key), "messages that wait for events of another key");
    Ok(())
}
