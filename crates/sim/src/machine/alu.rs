//! Results of arithmetic and of conditions, by the code in the high four bits of an opcode.

/// Evaluates arithmetic by its code (high four bits); `None` for a code without two operands.
pub fn alu(code: u8, a: u64, b: u64, wide: bool) -> Option<u64> {
    if wide { alu64(code, a, b) } else { alu32(code, a as u32, b as u32).map(u64::from) }
}

fn alu64(code: u8, a: u64, b: u64) -> Option<u64> {
    Some(match code {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b).unwrap_or(0),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a.wrapping_shl(b as u32),
        0x70 => a.wrapping_shr(b as u32),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(b).unwrap_or(a),
        0xa0 => a ^ b,
        0xb0 => b,
        0xc0 => (a as i64).wrapping_shr(b as u32) as u64,
        _ => return None,
    })
}

fn alu32(code: u8, a: u32, b: u32) -> Option<u32> {
    Some(match code {
        0x60 => a.wrapping_shl(b),
        0x70 => a.wrapping_shr(b),
        0xc0 => (a as i32).wrapping_shr(b) as u32,
        0x30 => a.checked_div(b).unwrap_or(0),
        0x90 => a.checked_rem(b).unwrap_or(a),
        other => alu64(other, u64::from(a), u64::from(b))? as u32,
    })
}

/// Evaluates the condition of a jump by its code; `None` for other codes.
pub fn condition(code: u8, a: u64, b: u64, wide: bool) -> Option<bool> {
    let (a, b) = if wide { (a, b) } else { (a & 0xffff_ffff, b & 0xffff_ffff) };
    let (s, t) = if wide { (a as i64, b as i64) } else { (i64::from(a as i32), i64::from(b as i32)) };
    Some(match code {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0x60 => s > t,
        0x70 => s >= t,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => s < t,
        0xd0 => s <= t,
        _ => return None,
    })
}
