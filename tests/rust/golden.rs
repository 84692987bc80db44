//! Seven tasks on a small wheel: all levels, buckets and the queue after every step, field by field.

use serde_json::{Value, json};
use tickwheel::{Precision, Seen, Snapshot};

use crate::support::Manual;

fn as_json(snapshot: &Snapshot<Seen>, expired: &[u32]) -> Value {
    let name = |id: &u32| format!("task-{id}");
    let levels: Vec<_> = snapshot
        .levels
        .iter()
        .map(|level| {
            let bucket = |bucket: &tickwheel::BucketSnapshot<Seen>| {
                json!({
                    "expiration_ms": bucket.expiration_ms.map_or(-1, u64::cast_signed),
                    "tasks": bucket.tasks.iter().map(|task| name(&task.tag)).collect::<Vec<_>>(),
                })
            };
            json!({
                "level": level.level,
                "tick_ms": level.tick_ms,
                "interval_ms": level.interval_ms,
                "start_ms": level.start_ms,
                "current_time_ms": level.current_time_ms,
                "covers_ms": [level.covers_ms.0, level.covers_ms.1],
                "buckets": level.buckets.iter().map(bucket).collect::<Vec<_>>(),
            })
        })
        .collect();
    let queue: Vec<_> = snapshot
        .queue
        .iter()
        .map(|armed| json!({"expiration_ms": armed.expiration_ms, "level": armed.level, "bucket": armed.bucket}))
        .collect();
    let expired: Vec<_> = expired.iter().map(name).collect();
    json!({"levels": levels, "queue": queue, "size": snapshot.size, "expired": expired})
}

#[test]
fn the_seven_tasks_are_where_the_golden_trace_says__t2_t3_t4_t14() {
    let golden: Value = serde_json::from_str(include_str!("../data/seven_tasks.json")).unwrap();
    let start_ms = golden["start_ms"].as_u64().unwrap();
    let wheel = Manual::new(1000, &[3], start_ms, Precision::Tick);
    let mut expired = Vec::new();
    let mut added = 0;
    for step in golden["steps"].as_array().unwrap() {
        if let Some(now_ms) = step["now_ms"].as_u64() {
            expired.extend(wheel.wake_at_us(now_ms * 1000));
        } else if step["expiration_ms"].is_u64() {
            added += 1;
            wheel.after_ms(u64::from(added) * 1000, added);
        }
        let found = as_json(&wheel.snapshot(), &expired);
        for field in ["levels", "queue", "size", "expired"] {
            assert_eq!(found[field], step[field], "{field} after {}", step["step"]);
        }
    }
    assert_eq!((added, expired.len()), (7, 7));
}
