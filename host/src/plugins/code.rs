//! The program's own code in memory. A start runs much that does not run again, and with each page that is touched the
//! system maps some fifteen around it: a host at rest would count all that as its own.
#![expect(unsafe_code, reason = "the linker's and the system's own calls")]

use std::ffi::{c_int, c_void};

/// Takes the pages of the program's code and constants out of its resident memory. They stay in the system's cache of the file; what
/// runs again comes back with the first touch, a microsecond for 64 KiB. Pages that are written to are not touched.
pub fn give_back() {
    // SAFETY: the function only reads what it is given, during the call.
    unsafe {
        libc::dl_iterate_phdr(Some(first), std::ptr::null_mut());
    }
}

/// Called for the program, which comes first; what it returns ends the walk before the libraries.
unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the caller lends a filled structure and the headers that it names for the time of the call.
    let (base, headers) = unsafe {
        let info = &*info;
        (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()))
    };
    // SAFETY: asks for a number.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1);
    let written = |header: &libc::Elf64_Phdr| header.p_flags & libc::PF_W != 0;
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD && !written(header)) {
        let begin = (base + header.p_vaddr).next_multiple_of(page);
        let end = (base + header.p_vaddr + header.p_memsz) / page * page;
        let Ok(length) = usize::try_from(end.saturating_sub(begin)) else { continue };
        // SAFETY: whole pages of a segment of the program that nobody writes to: their content is the file's, and comes from
        // there again. Where the system refuses, all stays as it is.
        unsafe {
            libc::madvise(begin as *mut c_void, length, libc::MADV_DONTNEED);
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of the system's account of the program's code.
    fn account() -> Vec<String> {
        let own = std::env::current_exe().unwrap();
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let code = |line: &&str| line.contains(" r-xp ") && line.ends_with(&*own.to_string_lossy());
        let lines = maps.lines().skip_while(|line| !code(line));
        lines.take_while(|line| code(line) || !line.contains("-xp")).map(str::to_owned).collect()
    }

    fn resident(account: &[String]) -> u64 {
        let line = account.iter().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn what_does_not_run_again_is_no_longer_resident_and_the_rest_comes_back() {
        let lines = account();
        let (from, rest) = lines[0].split_once('-').unwrap();
        let ends = [from, rest.split(' ').next().unwrap()];
        let [from, to] = ends.map(|end| usize::from_str_radix(end, 16).unwrap());
        let mut sum = 0_u64;
        for at in (from..to).step_by(4096) {
            // SAFETY: a byte of the program's own code, which is mapped and may be read.
            sum += u64::from(unsafe { (at as *const u8).read_volatile() });
        }
        let all = resident(&account());
        give_back();
        let left = resident(&account());
        assert!(all as usize * 1024 >= to - from && left < all / 2, "{all} KiB, then {left}");
        let mut again = 0_u64;
        for at in (from..to).step_by(4096) {
            // SAFETY: as above.
            again += u64::from(unsafe { (at as *const u8).read_volatile() });
        }
        assert_eq!(again, sum);
    }
}
