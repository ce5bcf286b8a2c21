//! The messages of an Arrow stream, checked before they are decoded: a file may have been damaged, or made to do harm.
//!
//! The decoder of the arrow crates verifies the structure of a message and the contents of arrays, but trusts the offsets and lengths of
//! buffers. They are checked here.
//!
//! Format: <https://arrow.apache.org/docs/format/IPC.html>, "Encapsulated message format".

use std::io::{self, Read};

use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Message, RecordBatch, root_as_message};
use arrow_schema::Schema;

/// Bytes before the description of a message: the next, and the length of the description.
const HEAD: usize = 8;
/// Before each message but in very old files.
pub(super) const CONTINUATION: [u8; 4] = [0xff; 4];
/// Largest description of a message, and largest size of its data, compressed or not. A batch of 65 536 rows has some 20 MB.
const MOST_METADATA: usize = 16 << 20;
const MOST_BYTES: i64 = 1 << 30;
/// Most rows of a batch, which is more than any writer makes.
const MOST_ROWS: i64 = 1 << 24;

/// The next message as bytes; `None` at the end of the stream.
///
/// # Errors
/// Errors of `input`; `InvalidData` for a message that is not to be decoded.
pub(super) fn next(input: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; HEAD];
    input.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if head[..4] != CONTINUATION || length > MOST_METADATA {
        return Err(invalid());
    }
    if length == 0 {
        return Ok(None);
    }
    let mut message = head.to_vec();
    read_more(input, length, &mut message)?;
    let body = {
        let described = root_as_message(&message[HEAD..]).map_err(|_| invalid())?;
        usize::try_from(described.bodyLength()).ok().filter(|length| *length as i64 <= MOST_BYTES)
    };
    let start = message.len();
    read_more(input, body.ok_or_else(invalid)?, &mut message)?;
    let (described, body) = message.split_at(start);
    let described = root_as_message(&described[HEAD..]).map_err(|_| invalid())?;
    match is_sound(&described, body) {
        Some(true) => Ok(Some(message)),
        _ => Err(invalid()),
    }
}

/// The schema that a message holds, if it does.
pub(super) fn schema(message: &[u8]) -> Option<Schema> {
    root_as_message(message.get(HEAD..)?)
        .ok()?
        .header_as_schema()
        .and_then(|schema| try_fb_to_schema(schema).ok())
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Appends bytes. Memory is taken as they come, since the length may be a lie.
fn read_more(input: &mut impl Read, length: usize, to: &mut Vec<u8>) -> io::Result<()> {
    let read = input.take(length as u64).read_to_end(to)?;
    if read == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Whether the buffers of a message are within its body, and no larger than makes sense. `None`: no.
fn is_sound(message: &Message<'_>, body: &[u8]) -> Option<bool> {
    let batch = match (message.header_as_record_batch(), message.header_as_dictionary_batch()) {
        (Some(batch), _) => batch,
        (_, Some(dictionary)) => dictionary.data()?,
        _ => return Some(try_fb_to_schema(message.header_as_schema()?).is_ok()),
    };
    let is_count = |count: i64| (0..=MOST_ROWS).contains(&count);
    let nodes = batch.nodes()?;
    let are_counts =
        nodes.iter().all(|node| is_count(node.length()) && (0..=node.length()).contains(&node.null_count()));
    Some(are_counts && is_count(batch.length()) && size(&batch, body)? <= MOST_BYTES)
}

/// Size of the buffers of a batch together when they are decompressed.
fn size(batch: &RecordBatch<'_>, body: &[u8]) -> Option<i64> {
    let mut sum: i64 = 0;
    for buffer in batch.buffers()? {
        let (start, length) =
            (usize::try_from(buffer.offset()).ok()?, usize::try_from(buffer.length()).ok()?);
        let bytes = body.get(start..start.checked_add(length)?)?;
        let size = match (batch.compression(), bytes) {
            (_, []) => 0,
            (None, bytes) => bytes.len() as i64,
            // The size before compression, or -1 for a buffer that compression would not make smaller.
            (Some(_), bytes) => match i64::from_le_bytes(bytes.get(..8)?.try_into().ok()?) {
                -1 => bytes.len() as i64,
                size => Some(size).filter(|size| (0..=MOST_BYTES).contains(size))?,
            },
        };
        sum = sum.checked_add(size)?;
    }
    Some(sum)
}
