//! Requests to etcd as a proxy sees them: read from their bytes, without etcd's definitions.
//!
//! Only the keys that a transaction writes or deletes if its compares hold decide: nearly every request of metes
//! *reads* the owner's record, and nothing but a commit puts it.

/// The kinds of requests of metes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Grant,
    Revoke,
    Watch,
    /// A transaction that only reads.
    Look,
    /// It takes a ticket in a queue.
    Ticket,
    /// It removes a ticket and commits nothing: a run leaves its queue, or settles a commit.
    Leave,
    /// The commit of an ADD: it puts an owner's record.
    Commit,
    /// It deletes an owner's record.
    Free,
    /// It puts a tombstone and frees nothing.
    Bury,
    Other,
}

/// A request, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub kind: Kind,
    /// `/etcdserverpb.KV/Txn` and the like.
    pub path: String,
    /// The keys that a transaction puts or deletes.
    pub written: Vec<String>,
}

/// The verdict of etcd about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was done; of a transaction: its compares held.
    Done,
    /// A transaction whose compares did not hold.
    Lost,
    /// etcd's words.
    Refused(String),
}

impl Call {
    /// From a path and the frame of a gRPC message.
    pub fn read(path: &str, frame: &[u8]) -> Self {
        let writes = if path == TXN { writes(message(frame)) } else { Writes::default() };
        let kind = match path {
            TXN => writes.kind(),
            "/etcdserverpb.Lease/LeaseGrant" => Kind::Grant,
            "/etcdserverpb.Lease/LeaseRevoke" => Kind::Revoke,
            WATCH => Kind::Watch,
            _ => Kind::Other,
        };
        let text = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
        let written = writes.puts.iter().chain(&writes.deletes).map(text).collect();
        Self { kind, path: path.to_owned(), written }
    }

    /// True if its requests and answers are streams.
    pub fn is_stream(path: &str) -> bool {
        matches!(path, WATCH | "/etcdserverpb.Lease/LeaseKeepAlive" | "/etcdserverpb.Maintenance/Snapshot")
    }

    /// The verdict of an answer that is no error.
    pub fn verdict(&self, frame: &[u8]) -> Verdict {
        let succeeded =
            |(number, value): &(u64, Value<'_>)| *number == 2 && matches!(value, Value::Number(1));
        match self.path == TXN && !fields(message(frame)).any(|field| succeeded(&field)) {
            true => Verdict::Lost,
            false => Verdict::Done,
        }
    }
}

const TXN: &str = "/etcdserverpb.KV/Txn";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

/// The keys that a transaction writes if its compares hold.
#[derive(Default)]
struct Writes {
    puts: Vec<Vec<u8>>,
    deletes: Vec<Vec<u8>>,
}

impl Writes {
    fn kind(&self) -> Kind {
        let is_below = |part: &str| {
            let part = part.as_bytes().to_vec();
            move |key: &Vec<u8>| key.windows(part.len()).any(|window| window == part)
        };
        let puts = |part| self.puts.iter().any(is_below(part));
        let deletes = |part| self.deletes.iter().any(is_below(part));
        match () {
            () if puts("/v1/owner/") => Kind::Commit,
            () if deletes("/v1/owner/") => Kind::Free,
            () if puts("/v1/tombstone/") => Kind::Bury,
            () if puts("/v1/ticket/") => Kind::Ticket,
            () if deletes("/v1/ticket/") => Kind::Leave,
            () if self.puts.is_empty() && self.deletes.is_empty() => Kind::Look,
            () => Kind::Other,
        }
    }
}

/// `TxnRequest { compare = 1, success = 2, failure = 3 }` of `RequestOp { range = 1, put = 2, delete_range = 3, txn = 4
/// }`; a put and a delete have their key in field 1.
fn writes(txn: &[u8]) -> Writes {
    let mut writes = Writes::default();
    for op in bytes_of(txn, 2).flat_map(fields) {
        let (number, Value::Bytes(request)) = op else { continue };
        let keys = || bytes_of(request, 1).map(<[u8]>::to_vec);
        match number {
            2 => writes.puts.extend(keys()),
            3 => writes.deletes.extend(keys()),
            _ => {}
        }
    }
    writes
}

/// The message in a gRPC frame: five bytes say whether it is compressed and how long it is.
fn message(frame: &[u8]) -> &[u8] {
    frame.get(5..).unwrap_or_default()
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn bytes_of(message: &[u8], wanted: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).filter_map(move |(number, value)| match value {
        Value::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    })
}

/// The fields of a protobuf message; a malformed one ends it.
fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        let tag = varint(&mut rest)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut rest)?),
            1 => Value::Bytes(take(&mut rest, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                Value::Bytes(take(&mut rest, length)?)
            }
            5 => Value::Bytes(take(&mut rest, 4)?),
            _ => return None,
        };
        Some((tag >> 3, value))
    })
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}
