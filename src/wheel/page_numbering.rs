//! How one number names an item in pages of fixed size: the page in the upper bits, the offset in the lower ones.
//!
//! Slots of the slab and positions in lists are such numbers. The pages of both follow one rule for memory: a page without
//! live items returns its memory, but the memory of one such page is kept for the next page that needs some.
//!
//! Example: with 10 bits a page has 1024 items, and number 1026 is page 1, offset 2.

/// Pages of 2^`BITS` items.
pub(crate) struct PageNumbering<const BITS: u32>;

impl<const BITS: u32> PageNumbering<BITS> {
    pub(crate) const PAGE_SIZE: usize = 1 << BITS;
    /// How many pages a number of 32 bits can name.
    pub(crate) const MAX_PAGES: usize = 1 << (32 - BITS);

    #[inline]
    pub(crate) const fn page(number: u32) -> u32 {
        number >> BITS
    }

    #[inline]
    pub(crate) const fn offset(number: u32) -> usize {
        number as usize % Self::PAGE_SIZE
    }

    #[inline]
    pub(crate) const fn number(page: u32, offset: usize) -> u32 {
        page << BITS | offset as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_page_and_an_offset() {
        type Numbering = PageNumbering<10>;
        assert_eq!((Numbering::PAGE_SIZE, Numbering::page(1026), Numbering::offset(1026)), (1024, 1, 2));
        assert_eq!(Numbering::number(1, 2), 1026);
        assert_eq!(Numbering::number((Numbering::MAX_PAGES - 1) as u32, Numbering::PAGE_SIZE - 1), u32::MAX);
    }
}
