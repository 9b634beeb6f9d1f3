//! strftime as Python's naive datetime shows it, over the C library's.

use std::ffi::{CStr, CString};

/// Formats local time `now` (seconds since the epoch). Python gives %z and %Z of a naive time as
/// nothing and knows %f (microseconds, always zero here).
pub fn format_local_time(format: &str, now: i64) -> Result<String, String> {
    if format.len() > 1000 {
        return Err("strftime_now: the format is longer than 1000 bytes".into());
    }
    let prepared = prepare(format);
    if prepared.is_empty() {
        return Ok(String::new());
    }
    let prepared = CString::new(prepared)
        .map_err(|_| "strftime_now: the format contains a NUL character".to_string())?;
    let seconds = now as libc::time_t;
    let mut buffer = vec![0u8; 64 * 1024];
    // SAFETY: `parts` is filled by localtime_r before use; strftime writes at most buffer.len()
    // bytes and ends them with NUL when it returns more than 0.
    let written = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&seconds, &mut parts).is_null() {
            return Err(format!("strftime_now: {now} is not a time"));
        }
        libc::strftime(buffer.as_mut_ptr() as *mut libc::c_char, buffer.len(), prepared.as_ptr(),
                       &parts)
    };
    if written == 0 {
        return Ok(String::new());
    }
    let text = CStr::from_bytes_until_nul(&buffer).map_err(|e| e.to_string())?;
    Ok(text.to_string_lossy().into_owned())
}

fn prepare(format: &str) -> String {
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('f') => out.push_str("000000"),
            Some('z') | Some('Z') => {}
            Some(other) => {
                out.push('%');
                out.push(other);
            }
            None => out.push_str("%%"),
        }
    }
    out
}
