//! The needs of one process: memory, threads, instructions, and the file that it starts from.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::Value;

use crate::lab::{Floor, Lab, Wire, of_pod, plain_network};
use crate::options::{Options, Section};
use crate::results::{Data, Results};
use crate::samples::{float, median};
use support::{metes, wait_for};

const MIB: f64 = 1024.0 * 1024.0;
/// Instructions hardly differ from run to run, memory a little.
const TIMES: usize = 5;

pub(crate) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::new(options, Wire::Plain);
    let subject = Subject::new(&lab);
    // This makes the node's folder and the prefix's meta.
    subject.del(subject.add(&[], "first"));
    let elf = Elf::read(&metes());
    let threads = subject.threads();
    let (adds, floors) = (subject.instructions(), subject.instructions_of_floor());
    let mut add = |name, what: &str, unit, value: Option<f64>| {
        results.add(Section::Process, name, what, Data::Number(value.into_iter().collect(), unit));
    };
    add("resident", "resident memory of an ADD at most", "MiB", Some(subject.resident_mib()));
    add("threads", "threads of an ADD in all (strace)", "", threads);
    add("instructions", "instructions of an ADD (callgrind)", "million", adds);
    add("floor-instructions", "instructions of the floor", "million", floors);
    add("binary", "size of the binary", "MiB", Some(float(elf.bytes) / MIB));
    add("loaders", "loaders that it needs (0: static)", "", Some(float(elf.loaders)));
    add("symbols", "symbol tables in it (0: stripped)", "", Some(float(elf.symbol_tables)));
    lab.cluster.assert_whole();
}

struct Subject<'a> {
    lab: &'a Lab,
    config: Value,
}

/// A container that holds an address.
struct Added(String, Output);

impl<'a> Subject<'a> {
    fn new(lab: &'a Lab) -> Self {
        Self { lab, config: plain_network("process") }
    }

    /// Starts the program under `before`, the program that watches it.
    fn command(&self, before: &[&OsStr], id: &str) -> Command {
        let words: Vec<&OsStr> = before.to_vec();
        let program = metes();
        let mut words = words.into_iter().chain([program.as_os_str()]);
        let mut command = Command::new(words.next().expect("there is at least metes"));
        let config = self.lab.cluster.folder().join("config");
        fs::write(&config, self.config.to_string()).expect("a file can be written");
        command.args(words).env_clear().envs(self.environment(id));
        command.stdin(File::open(config).expect("it was just written")).stderr(Stdio::piped());
        command
    }

    fn environment(&self, id: &str) -> BTreeMap<String, String> {
        let mut environment = self.lab.node().environment();
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=bench;K8S_POD_NAME={id};K8S_POD_UID=u-{id}");
        for (name, value) in [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", id),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/run/netns/made-up"),
            ("CNI_PATH", "/"),
            ("CNI_ARGS", &args),
        ] {
            environment.insert(name.to_owned(), value.to_owned());
        }
        environment
    }

    fn add(&self, before: &[&OsStr], id: &str) -> Added {
        let output = self.command(before, id).output().expect("the program can be run");
        assert!(output.status.success(), "ADD: {}", String::from_utf8_lossy(&output.stderr));
        Added(id.to_owned(), output)
    }

    fn del(&self, Added(id, _): Added) {
        of_pod(self.lab.node().del(&id), &id).config(&self.config).run().silent();
    }

    /// The largest memory of an ADD that is about to answer.
    ///
    /// Its answer goes into a full pipe, so it waits with all its work done and can be looked at. The figure of wait4
    /// would not do: it counts pages of the process that started it too.
    fn resident_mib(&self) -> f64 {
        let measured = (0..TIMES).map(|index| {
            let id = format!("resident-{index}");
            let (mut reader, writer) = full_pipe();
            let mut child =
                self.command(&[], &id).stdout(writer).spawn().expect("the program can be started");
            let status = status_when_answering(&child);
            drain(&mut reader, &mut child);
            of_pod(self.lab.node().del(&id), &id).config(&self.config).run().silent();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
            kib.expect("the kernel tells VmHWM in kB") / 1024.0
        });
        measured.fold(0.0, f64::max)
    }

    /// The number of threads that it has had: its own, and those that it started.
    fn threads(&self) -> Option<f64> {
        let strace = find("strace")?;
        let file = self.lab.cluster.folder().join("strace");
        let flags = ["-f", "-qq", "-e", "trace=clone,clone3,fork,vfork", "-o"].map(OsStr::new);
        let before: Vec<&OsStr> =
            [strace.as_os_str()].into_iter().chain(flags).chain([file.as_os_str()]).collect();
        self.del(self.add(&before, "threads"));
        let trace = fs::read_to_string(&file).expect("strace has written its file");
        Some(float(1 + trace.lines().filter(|line| line.contains(" = ") && !line.contains(" = -1 ")).count()))
    }

    /// In millions.
    fn instructions(&self) -> Option<f64> {
        let valgrind = find("valgrind")?;
        let before: Vec<&OsStr> =
            [valgrind.as_os_str()].into_iter().chain(CALLGRIND.map(OsStr::new)).collect();
        let counts = (0..TIMES).map(|index| {
            let added = self.add(&before, &format!("instructions-{index}"));
            let count = collected(&added.1);
            self.del(added);
            count
        });
        Some(median(counts.collect::<Vec<f64>>()))
    }

    fn instructions_of_floor(&self) -> Option<f64> {
        let valgrind = find("valgrind")?;
        let (program, environment) = self.lab.floor_command(Floor::Put);
        let counts = (0..TIMES).map(|_| {
            let mut command = Command::new(&valgrind);
            command.args(CALLGRIND).arg(program).env_clear().envs(environment.clone());
            collected(&command.output().expect("valgrind can be run"))
        });
        Some(median(counts.collect::<Vec<f64>>()))
    }
}

const CALLGRIND: [&str; 2] = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];

/// The millions of instructions that callgrind counted.
fn collected(output: &Output) -> f64 {
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().find_map(|line| line.split_once("Collected : "));
    let count = line.and_then(|(_, count)| count.trim().parse::<f64>().ok());
    count.unwrap_or_else(|| panic!("callgrind counts: {said}")) / 1e6
}

fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A pipe that takes nothing more; writing into it waits for a reader.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe can be made");
    let waits = fcntl_getfl(writer.as_fd()).expect("a pipe has flags");
    fcntl_setfl(writer.as_fd(), waits | OFlags::NONBLOCK).expect("its flags can be set");
    while writer.write(&[b' '; 4096]).is_ok() {}
    while writer.write(b" ").is_ok() {}
    fcntl_setfl(writer.as_fd(), waits).expect("its flags can be set");
    (reader, writer)
}

/// /proc/.../status of a process that stands still because its answer does not fit into its stdout.
fn status_when_answering(child: &Child) -> String {
    let of = |what: &str| fs::read_to_string(format!("/proc/{}/{what}", child.id()));
    wait_for("an ADD to be about to answer", Duration::from_secs(30), || {
        // The number of the system call it is in, and its arguments: the first of write is the file.
        let call = of("syscall").map_err(|error| error.to_string())?;
        if call.split(' ').nth(1) == Some("0x1") { Ok(()) } else { Err(call) }
    });
    of("status").expect("a process that stands still has a status")
}

/// Lets the process answer, and waits for its end.
fn drain(reader: &mut PipeReader, child: &mut Child) {
    let mut said = Vec::new();
    reader.read_to_end(&mut said).expect("a pipe can be read");
    let status = child.wait().expect("an own child can be waited for");
    assert!(status.success(), "ADD: {}", String::from_utf8_lossy(&said).trim());
}

/// The properties of a 64-bit little-endian ELF file.
#[derive(Debug, PartialEq, Eq)]
struct Elf {
    bytes: usize,
    loaders: usize,
    symbol_tables: usize,
}

impl Elf {
    fn read(path: &Path) -> Self {
        Self::of(&fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
    }

    /// Counts segments of type PT_INTERP and sections of type SHT_SYMTAB.
    fn of(file: &[u8]) -> Self {
        assert!(file.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
        let segments =
            Headers { at: number(file, 32, 8), size: number(file, 54, 2), count: number(file, 56, 2) };
        let sections =
            Headers { at: number(file, 40, 8), size: number(file, 58, 2), count: number(file, 60, 2) };
        Self {
            bytes: file.len(),
            loaders: segments.of_type(file, 0, 3),
            symbol_tables: sections.of_type(file, 4, 2),
        }
    }
}

struct Headers {
    at: usize,
    size: usize,
    count: usize,
}

impl Headers {
    fn of_type(&self, file: &[u8], offset: usize, wanted: usize) -> usize {
        let kind = |index: usize| number(file, self.at + index * self.size + offset, 4);
        (0..self.count).filter(|index| kind(*index) == wanted).count()
    }
}

fn number(file: &[u8], at: usize, bytes: usize) -> usize {
    file[at..at + bytes].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers of a file with two segments (one names a loader) and three sections (one is a symbol table).
    #[test]
    fn an_elf_file_tells_whether_it_is_static_and_stripped() {
        let mut file = vec![0; 64 + 2 * 56 + 3 * 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, value: u8| file[at] = value;
        put(32, 64);
        put(40, 64 + 2 * 56);
        put(54, 56);
        put(56, 2);
        put(58, 64);
        put(60, 3);
        put(64, 1);
        put(64 + 56, 3);
        put(64 + 2 * 56 + 64 + 4, 2);
        assert_eq!(Elf::of(&file), Elf { bytes: file.len(), loaders: 1, symbol_tables: 1 });
    }
}
