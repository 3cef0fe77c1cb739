//! Bytes as decisions, for targets that build what they test. When the bytes have run out, each decision is zero, so a
//! shorter input is a simpler case.

/// Hands out decisions.
pub(super) struct Dice<'a> {
    rest: &'a [u8],
}

impl<'a> Dice<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: u32) -> u32 {
        let wide = if limit <= 1 << 8 { self.byte().into() } else { self.number() };
        wide % limit.max(1)
    }

    pub(super) fn number(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// True once in `n` times.
    pub(super) fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == n - 1
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }

    /// A list of up to `most` values that `make` makes.
    pub(super) fn some<T>(&mut self, most: u32, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(most + 1);
        (0..count).map(|_| make(self)).collect()
    }

    /// Text out of the next bytes, at most 40 of them.
    pub(super) fn text(&mut self) -> String {
        let length = (self.below(41) as usize).min(self.rest.len());
        let (text, rest) = self.rest.split_at(length);
        self.rest = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}
