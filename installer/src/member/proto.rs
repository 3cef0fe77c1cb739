//! As much of protobuf as a record of etcd's log needs: numbers and bytes.

/// The fields of a message.
pub(super) struct Fields<'a>(Vec<(u64, Held<'a>)>);

enum Held<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Fields<'a> {
    /// None if these bytes are no message, or one with another type of field.
    pub(super) fn read(mut bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            let value = match tag & 7 {
                0 => Held::Number(varint(&mut bytes)?),
                2 => {
                    let size = usize::try_from(varint(&mut bytes)?).ok()?;
                    let (value, rest) = bytes.split_at_checked(size)?;
                    bytes = rest;
                    Held::Bytes(value)
                }
                _ => return None,
            };
            fields.push((tag >> 3, value));
        }
        Some(Self(fields))
    }

    pub(super) fn number(&self, field: u64) -> Option<u64> {
        self.0.iter().find_map(|(at, value)| match value {
            Held::Number(number) if *at == field => Some(*number),
            _ => None,
        })
    }

    pub(super) fn bytes(&self, field: u64) -> Option<&'a [u8]> {
        self.0.iter().find_map(|(at, value)| match value {
            Held::Bytes(bytes) if *at == field => Some(*bytes),
            _ => None,
        })
    }
}

/// Seven bits of a number in each byte, the lowest first; the highest bit of a byte says that another one follows.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
