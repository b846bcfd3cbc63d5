//! A small, bounded reader of ELF64 files: what the checks before dlopen need, and nothing else.
//!
//! Every offset is checked against the file: a hostile file gives an error, never a panic or a large allocation.

/// What is wrong with the file, in one line.
pub type Fault = String;

/// The parts of a shared library that the host looks at.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Content of the manifest section, when there is one.
    pub manifest: Option<Vec<u8>>,
    /// DT_SONAME.
    pub soname: Option<String>,
    /// DT_NEEDED, in order.
    pub needed: Vec<String>,
}

const EM_X86_64: u64 = 62;
const ET_DYN: u64 = 3;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
/// Most libraries that a plugin may need. Names may lie over each other in a file, so that without a bound a small one could
/// ask for gigabytes of them.
const MAX_NEEDED: usize = 256;

const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;

/// Reads a library; `section` is the name of the manifest section.
pub fn read(file: &[u8], section: &str) -> Result<Elf, Fault> {
    if file.len() < 64 || &file[..4] != b"\x7fELF" {
        return Err("is not a shared library (no ELF header)".into());
    }
    if file[4] != 2 || file[5] != 1 {
        return Err("is not a 64-bit little-endian library".into());
    }
    let f = File(file);
    let machine = f.int(18, 2)?;
    if machine != EM_X86_64 {
        return Err(format!("is built for another processor (ELF machine {machine}, this host is x86-64)"));
    }
    if f.int(16, 2)? != ET_DYN {
        return Err("is an ELF file but no shared library".into());
    }
    let segments = f.table(f.int(32, 8)?, f.int(54, 2)?, f.int(56, 2)?, 56, "program header")?;
    let mut dynamic = None;
    for (i, at) in segments.clone().enumerate() {
        let (kind, offset, size) = (f.int(at, 4)?, f.int(at + 8, 8)?, f.int(at + 32, 8)?);
        let end = offset.checked_add(size).ok_or("has a segment that wraps around")?;
        if kind == PT_LOAD && end > file.len() as u64 {
            return Err(format!("is truncated: segment {i} ends at byte {end}, the file has {}", file.len()));
        }
        if kind == PT_DYNAMIC {
            dynamic = Some((offset, size));
        }
    }
    let mut elf = Elf { manifest: manifest(&f, section)?, ..Elf::default() };
    if let Some((offset, size)) = dynamic {
        names(&f, segments, offset, size, &mut elf)?;
    }
    Ok(elf)
}

/// Bytes that a library which begins like this has at least, as its header says; more than it has is a copy that has not
/// come to its end. None where there is no header that says it.
pub fn length(head: &[u8]) -> Option<u64> {
    if head.get(..4)? != b"\x7fELF" || head.get(4..6)? != [2, 1] {
        return None;
    }
    let f = File(head);
    let int = |at, size| f.int(at, size).ok();
    let table = |start: u64, stride: u64, count: u64| start.checked_add(stride * count);
    let (start, stride, count) = (int(32, 8)?, int(54, 2)?, int(56, 2)?);
    let mut least = table(start, stride, count)?;
    // Linkers write the table of sections last.
    least = least.max(table(int(40, 8)?, int(58, 2)?, int(60, 2)?)?);
    for at in f.table(start, stride, count, 56, "program header").into_iter().flatten() {
        if int(at, 4)? == PT_LOAD {
            least = least.max(int(at + 8, 8)?.checked_add(int(at + 32, 8)?)?);
        }
    }
    Some(least)
}

/// Reads SONAME and NEEDED from the dynamic table.
fn names(
    f: &File<'_>,
    segments: impl Iterator<Item = usize> + Clone,
    offset: u64,
    size: u64,
    elf: &mut Elf,
) -> Result<(), Fault> {
    let table = f.bytes(offset, size)?;
    let mut entries = Vec::new();
    for entry in table.chunks_exact(16) {
        let word = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().unwrap_or_default());
        match word(0) {
            0 => break,
            tag => entries.push((tag, word(8))),
        }
    }
    let Some(address) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB).map(|(_, v)| *v) else {
        return Ok(());
    };
    // The string table is given by address; find the segment that holds it.
    let mut strings = None;
    for at in segments {
        let (kind, offset, base, size) =
            (f.int(at, 4)?, f.int(at + 8, 8)?, f.int(at + 16, 8)?, f.int(at + 32, 8)?);
        if kind == PT_LOAD && address >= base && address - base < size {
            strings = Some(offset + (address - base));
        }
    }
    let strings = strings.ok_or("has a dynamic table without its strings")?;
    for (tag, value) in entries {
        if tag == DT_NEEDED || tag == DT_SONAME {
            let name = f.string(strings.checked_add(value).ok_or("has a name that wraps around")?)?;
            if tag == DT_SONAME {
                elf.soname = Some(name);
            } else if elf.needed.len() == MAX_NEEDED {
                return Err(format!("has more than {MAX_NEEDED} libraries that it needs"));
            } else {
                elf.needed.push(name);
            }
        }
    }
    Ok(())
}

fn manifest(f: &File<'_>, section: &str) -> Result<Option<Vec<u8>>, Fault> {
    let (start, count, strings) = (f.int(40, 8)?, f.int(60, 2)?, f.int(62, 2)?);
    if start == 0 || count == 0 {
        return Ok(None);
    }
    let sections: Vec<_> = f.table(start, f.int(58, 2)?, count, 64, "section header")?.collect();
    let Some(names) = usize::try_from(strings).ok().and_then(|i| sections.get(i)) else { return Ok(None) };
    let names = f.int(names + 24, 8)?;
    for at in &sections {
        let name = f.int(*at, 4)?;
        if f.string(names.checked_add(name).ok_or("has a name that wraps around")?)? == section {
            return Ok(Some(f.bytes(f.int(at + 24, 8)?, f.int(at + 32, 8)?)?.to_vec()));
        }
    }
    Ok(None)
}

struct File<'a>(&'a [u8]);

impl<'a> File<'a> {
    fn bytes(&self, offset: u64, size: u64) -> Result<&'a [u8], Fault> {
        let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
        range
            .and_then(|(o, n)| self.0.get(o..o.checked_add(n)?))
            .ok_or_else(|| format!("is truncated: {size} bytes at {offset} are beyond its {}", self.0.len()))
    }

    fn int(&self, at: usize, size: usize) -> Result<u64, Fault> {
        let bytes = self.bytes(at as u64, size as u64)?;
        Ok(bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn string(&self, at: u64) -> Result<String, Fault> {
        let rest =
            usize::try_from(at).ok().and_then(|a| self.0.get(a..)).ok_or("has a name beyond its end")?;
        // No library name comes near this; it bounds the search in a file without a terminator.
        let end = rest.iter().take(4096).position(|b| *b == 0).ok_or("has a name without an end")?;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    fn table(
        &self,
        start: u64,
        stride: u64,
        count: u64,
        need: u64,
        what: &str,
    ) -> Result<impl Iterator<Item = usize> + Clone + use<>, Fault> {
        if stride < need {
            return Err(format!("has {what}s of {stride} bytes; {need} are needed"));
        }
        self.bytes(start, stride * count)?;
        let (start, stride, count) = (start as usize, stride as usize, count as usize);
        Ok((0..count).map(move |i| start + i * stride))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_library() -> Vec<u8> {
        // Any shared library of the system will do; the C library is always there.
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let path = maps
            .lines()
            .filter_map(|l| l.split_whitespace().nth(5))
            .find(|p| p.contains("libc.so"))
            .expect("libc");
        std::fs::read(path).expect("libc is readable")
    }

    #[test]
    fn a_real_library_reads_with_its_names() {
        let elf = read(&own_library(), ".cascadia.manifest").expect("libc is sound");
        assert_eq!(elf.soname.as_deref(), Some("libc.so.6"));
        assert_eq!(elf.manifest, None);
        assert!(elf.needed.iter().any(|n| n.starts_with("ld-linux")));
    }

    #[test]
    fn text_and_other_machines_are_refused_in_words() {
        assert!(read(b"not a library", "x").expect_err("text").contains("no ELF header"));
        let mut other = own_library();
        other[18] = 183;
        assert!(read(&other, "x").expect_err("aarch64").contains("another processor"));
    }

    #[test]
    fn the_header_tells_how_long_the_file_is() {
        let whole = own_library();
        let told = length(&whole[..4096]).expect("it has a header");
        assert!(told <= whole.len() as u64 && told > whole.len() as u64 / 2, "{told} of {}", whole.len());
        assert_eq!(length(&whole[..64]), Some(told), "the table of sections is the last");
        assert_eq!(
            length(b"not a library, but longer than the header of one, as a script or a note is"),
            None
        );
        assert_eq!(length(&whole[..60]), None);
        let mut wrapping = whole[..64].to_vec();
        wrapping[40..48].fill(0xff);
        assert_eq!(length(&wrapping), None);
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error_or_sound_but_never_a_panic() {
        let whole = own_library();
        for end in (0..whole.len()).step_by(whole.len() / 997) {
            if let Err(fault) = read(&whole[..end], "x") {
                assert!(fault.starts_with("is ") || fault.starts_with("has "), "{fault}");
            }
        }
        assert!(read(&whole[..whole.len() / 3], "x").expect_err("cut").contains("truncated"));
    }
}
