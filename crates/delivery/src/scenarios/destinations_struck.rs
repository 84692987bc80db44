//! Strikes of several destinations: none holds up another (D6, D23).

use super::destinations::{due, message, pause, set, world};
use super::testing::{ByHand, START_MS, arrives, ids};
use crate::due::places::PlaceLimits;
use crate::group::items::Answer;
use crate::run::settings::Settings;
use crate::sinks::{TakesNamed, Verdicts};

fn crashed(world: ByHand) -> ByHand {
    let world = world.again();
    world.engine.take_named(TakesNamed::All).unwrap();
    world.engine.set_places(PlaceLimits { young: 8, spare: 8, ..PlaceLimits::NONE });
    world.write();
    world
}

/// A message that ended the process, at a destination that is paused, holds all others up.
#[test]
fn one_that_goes_alone_to_a_paused_destination_holds_up_no_other__d6_d23() {
    let mut world = world(Settings::default(), &["bad", "well"]);
    world.give(vec![message("bad", None, "bomb", START_MS)]);
    for round in 0..3 {
        let taken = (0..10).find_map(|_| {
            let taken = world.take();
            world.write();
            world.advance_ms(100);
            taken
        });
        assert!(taken.is_some(), "round {round}");
        world.write();
        world = crashed(world);
    }
    assert!(world.take().is_none(), "it waits for its note, and goes alone");
    assert_eq!(world.give(vec![pause("bad", true)]), [Answer::Paused]);
    let mut late_us = Vec::new();
    let mut number = 0;
    for _ in 0..1_000 {
        number += 1;
        world.give(vec![message("well", None, &number.to_string(), world.wall_ms())]);
        for it in world.deliver(arrives) {
            assert_eq!(it.body.destination(), Some("well"));
            late_us.push(it.lateness_us);
        }
        world.advance_ms(100);
    }
    let late = late_us.iter().filter(|us| **us >= 500_000).count();
    let most = late_us.iter().max().copied();
    assert!(
        late == 0,
        "{late} of {} are later than 0.5 s, one by {most:?} us, beside a paused destination",
        late_us.len()
    );
}

/// Messages with two strikes, at a destination with a slow rate, hold up those of another one.
#[test]
fn those_with_strikes_of_a_slow_destination_hold_up_no_other__d6_d23() {
    let mut world = world(Settings::default(), &["slow", "well"]);
    world.give(vec![set("slow", r#","rate":"1/h""#)]);
    world.give([due("slow", 3), due("well", 3)].concat());
    for _ in 0..2 {
        world = crashed(world); // both may have sent all of them
        world.advance_ms(1_000);
    }
    world = crashed(world);
    let sent = world.pass_ms(600_000, arrives);
    let well = sent.iter().filter(|it| it.body.destination() == Some("well")).count();
    assert_eq!(well, 3, "in ten minutes: {:?}", ids(&sent));
}

#[test]
fn those_with_strikes_of_a_paused_destination_hold_up_no_other__d6_d23() {
    for pauses in [false, true] {
        struck_behind(pauses);
    }
}

fn struck_behind(pauses: bool) {
    let mut world = world(Settings::default(), &["held", "well"]);
    world.give([due("held", 60), due("well", 3)].concat());
    for _ in 0..2 {
        world = crashed(world);
        world.advance_ms(1_000);
    }
    let mut sent = Vec::new();
    for _ in 0..2 {
        while let Some((number, deliveries)) = world.engine.take(1, usize::MAX, true) {
            sent.extend(deliveries);
            world.engine.settle(number, Verdicts::Delivered, None);
            if pauses && sent.len() == 1 {
                world.give(vec![pause("held", true)]);
            }
        }
        world.write();
    }
    assert!(!sent.is_empty());
    sent.extend(world.pass_ms(600_000, arrives));
    let well = sent.iter().filter(|it| it.body.destination() == Some("well")).count();
    assert_eq!(well, 3, "in ten minutes: {:?}", ids(&sent));
}
