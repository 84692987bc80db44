//! Accepts and delivers as many messages as the argument says, so that valgrind counts the cost of one of them.
//!
//! The difference between 20,000 and 40,000 messages is that of 20,000, without the start and the end:
//!
//! ```sh
//! cargo build --release -p tickwheel-delivery --example many
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/many 20000
//! valgrind --tool=dhat --dhat-out-file=/dev/null target/release/examples/many 20000
//! ```

use std::env::{args, temp_dir};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::process;
use std::time::Duration;

use tickwheel_delivery::{Answer, Deliverer, Destination, Verdict};

const KEYS: usize = 1_000;
const AT_ONCE: usize = 1_000;
const WITHIN: Duration = Duration::from_secs(600);

fn main() -> Result<(), Box<dyn Error>> {
    let count: usize = args().nth(1).ok_or("give the number of messages")?.parse()?;
    let folder = temp_dir().join(format!("tickwheel-many-{}", process::id()));
    fs::create_dir(&folder)?;
    let deliverer = Deliverer::open(folder.join("store.db"), Destination::function(|_| Verdict::Delivered))?;
    for first in (0..count).step_by(AT_ONCE) {
        let mut lines = String::new();
        for number in first..count.min(first + AT_ONCE) {
            let payload = "x".repeat(90);
            writeln!(
                lines,
                r#"{{"id":"message {number}","key":"key {}","due":100000000000,"payload":"{payload}"}}"#,
                number % KEYS
            )?;
        }
        let answers = deliverer.submit_ndjson(lines.as_bytes())?.answers()?;
        assert!(answers.iter().all(|answer| *answer == Ok(Answer::Accepted)));
    }
    assert!(deliverer.wait_until_empty(WITHIN)?);
    assert_eq!(deliverer.close(Some(WITHIN))?.delivered, count as u64);
    fs::remove_dir_all(folder)?;
    Ok(())
}
