//! The numbers of shares (rules D23, D24). A share has the messages of one tenant at one destination, either of which may
//! be none. Its number follows from theirs, so that no table has it.
//!
//! | destination | tenant | share |
//! |---|---|---|
//! | 0: none is named | 0: none is named | 0 |
//! | 7 | 0 | 7 |
//! | 0 | 5 | 2^32 + 5 |
//! | 7 | 5 | 8 * 2^32 + 5 |

const BITS: u32 = 32;

/// The share of this tenant at this destination.
pub(crate) fn share_of(destination: i64, tenant: i64) -> i64 {
    if tenant == 0 { destination } else { (destination + 1) << BITS | tenant }
}

/// The number of the destination of a share.
pub(crate) fn destination_in(share: i64) -> i64 {
    if share >> BITS == 0 { share } else { (share >> BITS) - 1 }
}

/// The number of the tenant of a share.
pub(crate) fn tenant_in(share: i64) -> i64 {
    if share >> BITS == 0 { 0 } else { share & ((1 << BITS) - 1) }
}

/// The first and the last share of tenants at this destination.
pub(crate) fn tenants_at(destination: i64) -> (i64, i64) {
    (share_of(destination, 1), share_of(destination, (1 << BITS) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_module_holds__d24() {
        for (destination, tenant, share) in [(0, 0, 0), (7, 0, 7), (0, 5, (1 << 32) + 5), (7, 5, (8 << 32) + 5)] {
            assert_eq!(share_of(destination, tenant), share);
            assert_eq!((destination_in(share), tenant_in(share)), (destination, tenant));
        }
        assert_eq!(tenants_at(7), ((8 << 32) + 1, (9 << 32) - 1));
    }
}
