//! The timer beside what a Rust program would use instead.

mod ours;
mod side;
mod sides;
mod works;

use sides::binary_heap::Heap;
use sides::btree_map::Map;
use sides::delay_queue::Queue;
use sides::hash_wheel::HashWheel;
use sides::nexus::Nexus;
use sides::tickwheel::Tickwheel;
use sides::tokio_sleep::Sleeps;
use side::Side;

fn one<S: Side>(work: &str) -> f64 {
    let count = 1_000_000;
    match work {
        "insert" => works::insert::<S>(count),
        "cancel" => works::cancel::<S>(count),
        "fire" => works::fire::<S>(count),
        "reset" => works::reset::<S>(count),
        "rolling" => works::rolling::<S>(),
        "pair" => works::pairs::<S>(count),
        _ => panic!("{work}"),
    }
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (work, side) = (args[1].as_str(), args[2].as_str());
    let ns = match (side, work) {
        ("tickwheel", "pairs1") => ours::pairs(4_000_000, 1),
        ("tickwheel", "cancel64") => ours::cancel_many(1_000_000, 64),
        ("tickwheel", "reset64") => ours::reset_many(1_000_000, 64),
        ("tickwheel", "pairs2") => ours::pairs(4_000_000, 2),
        ("queue", "pairs1") => works::locked_pairs::<Queue>(1_000_000, 1),
        ("queue", "pairs2") => works::locked_pairs::<Queue>(1_000_000, 2),
        ("tickwheel", _) => one::<Tickwheel<false>>(work),
        ("claims", _) => one::<Tickwheel<true>>(work),
        ("queue", _) => one::<Queue>(work),
        ("sleep", _) => one::<Sleeps>(work),
        ("nexus", _) => one::<Nexus>(work),
        ("hash", _) => one::<HashWheel>(work),
        ("btree", _) => one::<Map>(work),
        ("heap", _) => one::<Heap>(work),
        _ => panic!(),
    };
    println!("{work:8} {side:10} {ns:8.1}");
}
