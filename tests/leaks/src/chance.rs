//! Numbers that nobody chose, the same in every run: a failure can be repeated.

/// A row of numbers.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The row that begins with a seed; `$CHANCE` in its place tries another one.
    pub fn new(seed: u64) -> Self {
        let given = std::env::var("CHANCE").ok().and_then(|text| text.parse().ok());
        Self(given.unwrap_or(seed))
    }

    /// The next number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        // Knuth's MMIX; the high half is the better one.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    /// One of several.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
