//! The problems that a check has found: for each kind, how many there are and the first numbers.

use std::fmt::Write as _;

const SHOWN: usize = 5;

#[derive(Default)]
pub(super) struct Problems {
    kinds: Vec<Kind>,
    texts: Vec<String>,
}

struct Kind {
    what: &'static str,
    count: u64,
    first: Vec<i64>,
}

impl Problems {
    /// Adds a problem with the message, row or run of this number.
    pub(super) fn add(&mut self, what: &'static str, number: i64) {
        let place = self.kinds.iter().position(|kind| kind.what == what).unwrap_or_else(|| {
            self.kinds.push(Kind { what, count: 0, first: Vec::new() });
            self.kinds.len() - 1
        });
        let kind = &mut self.kinds[place];
        kind.count += 1;
        if kind.first.len() < SHOWN {
            kind.first.push(number);
        }
    }

    /// Adds the problem if `is_so` is true.
    pub(super) fn add_if(&mut self, is_so: bool, what: &'static str, number: i64) {
        if is_so {
            self.add(what, number);
        }
    }

    /// Adds a problem of the whole file.
    pub(super) fn tell(&mut self, text: impl Into<String>) {
        self.texts.push(text.into());
    }

    /// A line for each kind.
    pub(super) fn lines(self) -> Vec<String> {
        let of_kind = |kind: Kind| {
            let mut line = format!("{}: {}, number ", kind.what, kind.count);
            for (place, number) in kind.first.iter().enumerate() {
                let _ = write!(line, "{}{number}", if place > 0 { ", " } else { "" }); // a string takes everything
            }
            if kind.count > SHOWN as u64 {
                line.push_str(", ...");
            }
            line
        };
        self.texts.into_iter().chain(self.kinds.into_iter().map(of_kind)).collect()
    }
}
