//! Reminders that outlive the process: three are written to a file, one is cancelled, two arrive when they are due.
//!
//! Run it with `cargo run -p tickwheel-delivery --example delivery`.

use std::env::temp_dir;
use std::error::Error;
use std::fs;
use std::process;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tickwheel_delivery::{
    Answer, Deliverer, Delivery, DeliveryError, Destination, Message, Settings, Sink, Verdict, Verdicts,
};

const WITHIN: Duration = Duration::from_secs(30);

/// A destination of this program: a channel to its main thread.
struct Phone(Sender<(String, i64)>);

impl Sink for Phone {
    /// What has arrived counts as delivered, and is noted in the store. What has not is sent again.
    fn send(&mut self, deliveries: &[Delivery]) -> Result<Verdicts, DeliveryError> {
        let ring = |delivery: &Delivery| {
            let text = String::from_utf8_lossy(delivery.payload()).into_owned();
            match self.0.send((text, delivery.lateness_us)) {
                Ok(()) => Verdict::Delivered,
                Err(_) => Verdict::Unreachable { reason: "the line is dead".to_owned(), retry_after_ms: None },
            }
        };
        Ok(Verdicts::Each(deliveries.iter().map(ring).collect()))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = temp_dir().join(format!("tickwheel-example-{}", process::id()));
    fs::create_dir(&folder)?;
    let store = folder.join("reminders.db");

    // Three reminders of one key. The answers come when they are on disk.
    let never = Destination::function(|_| Verdict::NotTried);
    let deliverer = Deliverer::open(&store, never)?;
    let remind = |id, after_ms, text| Message::after(id, Duration::from_millis(after_ms), text).with_key("kitchen");
    let reminders =
        [remind("cake", 600, "take it out"), remind("tea", 400, "it is ready"), remind("eggs", 500, "hard")];
    let answers = deliverer.submit(reminders)?.answers()?;
    assert!(answers.iter().all(|answer| *answer == Ok(Answer::Accepted)));
    assert_eq!(deliverer.cancel(Some("kitchen"), "eggs")?, Answer::Cancelled);
    println!("{} reminders wait in {}", deliverer.len(), store.display());
    deliverer.close(Some(WITHIN))?;

    // Another process, perhaps on another day, would do this.
    let (send, phone) = channel();
    let to = Destination::sink(move |_store_id| Ok(Phone(send.clone())));
    let deliverer = Deliverer::open_with(&store, to, Settings { sink_timeout_ms: 5_000, ..Settings::default() })?;
    for expected in ["it is ready", "take it out"] {
        let (text, lateness_us) = phone.recv_timeout(WITHIN)?;
        println!("{text}: {lateness_us} us after it was due");
        assert!(text == expected && lateness_us >= 0);
    }
    assert!(deliverer.wait_until_empty(WITHIN)?);
    let summary = deliverer.close(Some(WITHIN))?;
    println!("{} delivered, {} left", summary.delivered, summary.not_delivered());
    assert_eq!((summary.resumed, summary.delivered), (2, 2));
    fs::remove_dir_all(folder)?;
    Ok(())
}
