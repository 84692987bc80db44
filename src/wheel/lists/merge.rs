//! Merging.

use super::{COMPARED, PASSED_OVER, Pages, ROOM, Residents, position};

impl<I: Copy> Pages<I> {
    /// Compares a few pages with their neighbours, and goes on from there the next time.
    pub(super) fn put_some_together(&mut self, residents: &mut impl Residents<I>) {
        let mut left = COMPARED;
        for _ in 0..PASSED_OVER.min(self.all.len()) {
            self.compared = (self.compared + 1) % self.all.len();
            if self.is_settled(self.compared as u32) {
                self.put_together(self.compared as u32, residents);
                left -= 1;
            }
            if left == 0 {
                return;
            }
        }
    }

    /// Whether it is a page that does not grow, and of which nothing has been read.
    fn is_settled(&self, number: u32) -> bool {
        let page = &self.all[number as usize];
        !page.is_last && page.read == 0
    }

    /// Takes the items of the next page in behind its own, and drops the dead of both.
    fn put_together(&mut self, number: u32, residents: &mut impl Residents<I>) {
        let next = self.all[number as usize].next;
        let live = self.all[number as usize].live + self.all[next as usize].live;
        if live > ROOM || !self.is_settled(next) {
            return;
        }
        let mut items = Vec::with_capacity(live as usize);
        for from in [number, next] {
            for (item, place) in std::mem::take(&mut self.all[from as usize].items).into_iter().zip(0..) {
                if residents.stands_at(item, position(from, place)) {
                    residents.stand(item, position(number, items.len()));
                    items.push(item);
                }
            }
        }
        debug_assert_eq!(items.len() as u32, live, "a page counts what stands in it");
        let page = &mut self.all[number as usize];
        (page.items, page.live) = (items, live);
        self.unlink(next);
    }
}
