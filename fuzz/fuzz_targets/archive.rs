//! Any archive is either a machine or a one-line error. Half of the inputs are the bytes of one; the others are
//! what some of its files hold, because chance makes no sums of headers.
#![no_main]

use std::path::PathBuf;

use roost_machine::Machine;

/// Files of which a machine is read, of CPU or node `N`.
const FILES: [&str; 14] = [
    "cpu/online",
    "cpu/cpuN/online",
    "cpu/cpuN/topology/core_id",
    "cpu/cpuN/topology/core_cpus_list",
    "cpu/cpuN/topology/physical_package_id",
    "cpu/cpuN/topology/cluster_cpus_list",
    "cpu/cpuN/cache/index3/level",
    "cpu/cpuN/cache/index3/size",
    "cpu/cpuN/cache/index3/shared_cpu_list",
    "cpu/cpuN/cpu_capacity",
    "cpu/cpuN/cpufreq/cpuinfo_max_freq",
    "node/nodeN/cpulist",
    "node/nodeN/distance",
    "node/nodeN/meminfo",
];

/// An archive of files, each given by its place in [`FILES`], a number, and its text.
fn archive(files: &[(u8, u8, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (file, number, text) in files {
        let name = FILES[usize::from(*file) % FILES.len()].replace('N', &(number % 8).to_string());
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        let path = format!("sys/devices/system/{name}");
        builder.append_data(&mut header, path, *text).expect("written to memory");
    }
    builder.into_inner().expect("written to memory")
}

/// A file of this process's own.
fn file() -> PathBuf {
    std::env::temp_dir().join(format!("roost-fuzz-{}", std::process::id()))
}

libfuzzer_sys::fuzz_target!(|input: Result<&[u8], Vec<(u8, u8, &[u8])>>| {
    let bytes = match &input {
        Ok(bytes) => bytes.to_vec(),
        Err(files) => archive(files),
    };
    let path = file();
    std::fs::write(&path, bytes).expect("a file that can be written");
    if let Err(error) = Machine::from_sysfs(&path) {
        assert_eq!(error.to_string().lines().count(), 1);
    }
});
