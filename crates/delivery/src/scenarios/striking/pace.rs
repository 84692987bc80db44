//! Messages with strikes and a rate (D6, D18).

use std::time::Duration;

use super::super::neighbours::limits;
use super::super::testing::{ByHand, START_MS, arrives, put};
use super::struck;
use crate::due::pace::Rate;
use crate::run::settings::Settings;

/// Twenty messages have two strikes, and ten go out in a second.
#[test]
fn messages_with_strikes_go_out_at_the_rate__d6_d18() {
    let rate = Some(Rate { messages: 10, per_us: 1_000_000 });
    let world = ByHand::start(Settings { rate, ..Settings::default() });
    world.give((0..20).map(|id| put(None, &id.to_string(), START_MS)).collect());
    let world = struck(world, 2);
    world.engine.set_places(limits(8, 8));
    let sent = world.pass_ms(3_000, arrives);
    assert_eq!(sent.len(), 20, "sent in 3 s");
}

/// Five messages have two strikes, and one goes out in a minute. A close waits for no token.
#[test]
fn a_close_does_not_wait_for_the_rate_of_messages_with_strikes__d6_d18() {
    let rate = Some(Rate { messages: 1, per_us: 60_000_000 });
    let world = ByHand::start(Settings { rate, ..Settings::default() });
    world.give((0..5).map(|id| put(None, &id.to_string(), START_MS)).collect());
    let world = struck(world, 2);
    world.engine.set_places(limits(8, 8));
    assert_eq!(world.deliver(arrives).len(), 1);
    assert!(!world.engine.lock_dispatcher().has_more_to_send(Duration::from_secs(1)));
}
