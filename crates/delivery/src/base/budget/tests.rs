use super::*;

#[test]
fn what_is_accepted_and_what_waits_share_a_budget_and_each_keeps_a_third__d8() {
    let budget = Budget::new(64); // 96 in all
    assert_eq!(budget.most_in_window(), 64);
    assert!(budget.take(32));
    assert_eq!(budget.most_in_window(), 64, "they are its own");
    assert!(budget.take(12));
    assert_eq!(budget.most_in_window(), 52);
    budget.set_window(52, 0);
    assert!(!budget.take(1) && budget.is_full(), "all 96 are taken");
    assert!(budget.take(-14) && budget.take(2), "what waits leaves 32");
    budget.set_window(64, 0);
    assert!(!budget.take(1));
    budget.set_window(0, 0);
    assert!(budget.take(32) && !budget.take(1));
    assert_eq!(budget.most_in_window(), 32, "what is accepted leaves 32");
    budget.add(100); // a large ticket
    assert!(budget.is_full());
    assert_eq!(budget.most_in_window(), 0, "until the group has it");
    assert!(budget.take(-164) && !budget.is_full());
    assert_eq!(budget.most_in_window(), 64);
}

#[test]
fn the_allocator_gives_back_what_large_messages_had__d8() {
    const MIB: usize = 1 << 20;
    let budget = Budget::new(64 * MIB);
    let left = |sizes: &[usize], bytes| {
        budget.set_window(bytes, 0);
        for size in sizes {
            budget.set_window(bytes, *size);
        }
        budget.was_freed()
    };
    assert!(!left(&[60_000; 1_000], 0), "small ones");
    assert!(!left(&[MIB; 31], 40 * MIB));
    assert!(left(&[MIB], 40 * MIB), "32 MiB, in the middle of a load");
    assert!(!left(&[MIB; 4], 0), "a few");
    assert!(!left(&[MIB], 5 * MIB), "there are more to come");
    assert!(left(&[], 4 * MIB), "it is over");
    assert!(!left(&[], 0), "it was said");
}
