//! The costs of the benchmarks' operations, in ns at full speed, which is 3.5 GHz (`COSTS_MHZ` of crate `machine`).
//! Every figure has its source and its arithmetic, or is labelled *assumption*.
//!
//! The engine itself charges wakeups and context switches. Measured figures include them, so they are subtracted here.
//! [`ENGINE_WAKEUP_NS`] and [`ENGINE_SWITCH_NS`] must equal what the engine charges with a warm cache.
//!
//! "Hardware notes" are this project's collection of published and measured hardware figures, section "Costs of
//! scheduling itself". "Recalled" figures are widely quoted and were not checked again.

/// CPU time of the waker for one wakeup, which the engine charges: `wakeup_ns` of every machine's figures.
pub const ENGINE_WAKEUP_NS: u64 = 500;

/// Time of one context switch, which the engine charges: `context_switch_ns` of every machine's figures. Hardware
/// notes: "0.5 to 1 us on current kernels with warm caches".
pub const ENGINE_SWITCH_NS: u64 = 750;

// --- netperf ------------------------------------------------------------------------------------

/// A TCP request and response on loopback, with both ends on one CPU. Hardware notes: measured 7.1 us (small guest).
const TCP_ROUND_TRIP_NS: u64 = 7_100;

/// The same for UDP. Hardware notes: measured 7.4 us.
const UDP_ROUND_TRIP_NS: u64 = 7_400;

/// Part of a round trip that the engine charges. With both ends on one CPU, request and response each wake the peer
/// once, and each is followed by one context switch: 2 x (500 + 750) = 2500 ns.
const ROUND_TRIP_CHARGED_NS: u64 = 2 * (ENGINE_WAKEUP_NS + ENGINE_SWITCH_NS);

/// Assumption: the sender pays 2/3 of a message's CPU time (system call, the protocol down, and on loopback also the
/// receiving half of the protocol in its softirq). The receiver pays 1/3 (queue to user).
const fn sender_share(message_ns: u64) -> u64 {
    message_ns * 2 / 3
}

/// One of a round trip's two messages, without what the engine charges.
const TCP_MESSAGE_NS: u64 = (TCP_ROUND_TRIP_NS - ROUND_TRIP_CHARGED_NS) / 2;
const UDP_MESSAGE_NS: u64 = (UDP_ROUND_TRIP_NS - ROUND_TRIP_CHARGED_NS) / 2;

/// Sending 1 byte over loopback TCP: (7100 - 2500) / 2 = 2300, of which 2/3 = 1533 ns.
pub const TCP_SEND_NS: u64 = sender_share(TCP_MESSAGE_NS);
/// Receiving 1 byte over loopback TCP: the remaining 767 ns.
pub const TCP_RECEIVE_NS: u64 = TCP_MESSAGE_NS - TCP_SEND_NS;
/// Sending 1 byte over loopback UDP: (7400 - 2500) / 2 = 2450, of which 2/3 = 1633 ns.
pub const UDP_SEND_NS: u64 = sender_share(UDP_MESSAGE_NS);
/// Receiving 1 byte over loopback UDP: the remaining 817 ns.
pub const UDP_RECEIVE_NS: u64 = UDP_MESSAGE_NS - UDP_SEND_NS;

/// The part of sending that is the receiving half of the protocol, in thousandths. The kernel does it in a softirq
/// (`net_rx_action()`). Measured on 2026-11-27 (Xeon, Linux 6.18, one task that writes a byte and reads it, cpu-clock
/// samples with their stacks; docs/notes/2026-11-26-softirq.md).
const TCP_SOFTIRQ_THOUSANDTHS: u64 = 357;
const UDP_SOFTIRQ_THOUSANDTHS: u64 = 353;

/// Of [`TCP_SEND_NS`]: 547 ns. A posted share of softirqs gives 530 ns (same note).
pub const TCP_SOFTIRQ_NS: u64 = TCP_SEND_NS * TCP_SOFTIRQ_THOUSANDTHS / 1_000;
/// Of [`UDP_SEND_NS`]: 576 ns.
pub const UDP_SOFTIRQ_NS: u64 = UDP_SEND_NS * UDP_SOFTIRQ_THOUSANDTHS / 1_000;

/// The largest packet on loopback (`GSO_LEGACY_MAX_SIZE`).
const LARGEST_PACKET_BYTES: u64 = 65_536;

/// The receiving half of `bytes` over TCP. It copies nothing, so it takes each packet of a message as long as a byte.
pub const fn tcp_softirq_ns(bytes: u64) -> u64 {
    TCP_SOFTIRQ_NS * bytes.div_ceil(LARGEST_PACKET_BYTES)
}

// --- hackbench ----------------------------------------------------------------------------------

/// CPU time of one 100-byte message at 4 groups over sockets. Hardware notes: 2.1 us.
const HACKBENCH_SOCKET_MESSAGE_NS: u64 = 2_100;

/// The same over pipes. Hardware notes: 1.5 us.
const HACKBENCH_PIPE_MESSAGE_NS: u64 = 1_500;

/// Number of messages per wakeup and context switch. Assumption: 160 tasks share few CPUs, so most messages find their
/// receiver already runnable; 10 messages are half of a sender's round through its group. The engine charges (500 +
/// 750) / 10 = 125 ns per message.
const HACKBENCH_MESSAGES_PER_WAKEUP: u64 = 10;
const HACKBENCH_CHARGED_NS: u64 =
    (ENGINE_WAKEUP_NS + ENGINE_SWITCH_NS) / HACKBENCH_MESSAGES_PER_WAKEUP;

/// A message without what the engine charges: 1975 ns through a socket, 1375 ns through a pipe.
const SOCKET_BOTH_ENDS_NS: u64 = HACKBENCH_SOCKET_MESSAGE_NS - HACKBENCH_CHARGED_NS;
const PIPE_BOTH_ENDS_NS: u64 = HACKBENCH_PIPE_MESSAGE_NS - HACKBENCH_CHARGED_NS;

/// The sender's part of it, in thousandths. Measured on 2026-11-27 (Xeon, Linux 6.18, a task that writes 50 to 500
/// messages of 100 bytes and then reads them; docs/notes/2026-11-27-workloads.md): 298 and 316 ns through a Unix
/// socket, 122 and 127 ns through a pipe.
const SOCKET_SENDER_THOUSANDTHS: u64 = 485;
const PIPE_SENDER_THOUSANDTHS: u64 = 490;

/// Sending a message through a socket: 957 ns.
pub const HACKBENCH_SOCKET_SEND_NS: u64 = SOCKET_BOTH_ENDS_NS * SOCKET_SENDER_THOUSANDTHS / 1_000;
/// Receiving it: 1018 ns.
pub const HACKBENCH_SOCKET_RECEIVE_NS: u64 = SOCKET_BOTH_ENDS_NS - HACKBENCH_SOCKET_SEND_NS;

/// The part of each end outside of the pipe's mutex: system call entry and exit. Assumption.
pub const HACKBENCH_PIPE_OUTSIDE_NS: u64 = 150;

/// The sender's part under the pipe's mutex, the copy and the buffer's bookkeeping: 523 ns.
pub const HACKBENCH_PIPE_WRITE_NS: u64 =
    PIPE_BOTH_ENDS_NS * PIPE_SENDER_THOUSANDTHS / 1_000 - HACKBENCH_PIPE_OUTSIDE_NS;
/// The receiver's part: 552 ns.
pub const HACKBENCH_PIPE_READ_NS: u64 =
    PIPE_BOTH_ENDS_NS - 2 * HACKBENCH_PIPE_OUTSIDE_NS - HACKBENCH_PIPE_WRITE_NS;

/// The figures were measured with messages of this size (`-s 100`).
const HACKBENCH_MEASURED_BYTES: u64 = 100;

/// Speed of a kernel copy between user space and a buffer, in bytes per ns (8 GB/s). Assumption for data in L2 or L3.
/// Hardware notes have 23 to 37 GB/s for one core that streams reads; a copy through a buffer that the other end has
/// just touched is slower.
const COPY_BYTES_PER_NS: u64 = 8;

/// CPU time of copying `bytes` once.
pub const fn copy_ns(bytes: u64) -> u64 {
    bytes.div_ceil(COPY_BYTES_PER_NS)
}

/// Additional cost at each end for a hackbench message of `bytes`, beyond the measured 100 bytes.
pub const fn hackbench_extra_copy_ns(bytes: u64) -> u64 {
    copy_ns(bytes.saturating_sub(HACKBENCH_MEASURED_BYTES))
}

/// A page of a pipe's ring; small writes share one (`pipe_write()` in Linux's fs/pipe.c).
pub const PIPE_PAGE_BYTES: u32 = 4_096;

/// A pipe's capacity: 16 pages (`pipe(7)`).
pub const PIPE_CAPACITY_BYTES: u32 = 16 * PIPE_PAGE_BYTES;

/// `net.core.wmem_default`: limit of a socket's unread bytes, including overhead: 256 packets of 256 bytes, each with
/// 576 bytes beside its data (`SK_WMEM_MAX` in Linux's include/net/sock.h).
pub const SOCKET_BUFFER_BYTES: u32 = 256 * (256 + SKB_HEADER_BYTES + SKB_SHARED_INFO_BYTES);

/// A packet's `sk_buff` (232 bytes) and its `skb_shared_info` (320), each in whole cache lines.
const SKB_HEADER_BYTES: u32 = 256;
const SKB_SHARED_INFO_BYTES: u32 = 320;

/// Smallest allocation for a packet's data: the object of `skb_small_head_cache` (Linux since 6.3,
/// net/core/skbuff.c). It holds `GRO_MAX_HEAD_PAD` bytes, 128 + 64 + the longest header, in whole cache lines, and the
/// shared info: 384 + 320. The longest header is 176 in distributions' configurations (include/linux/netdevice.h).
const SKB_SMALL_HEAD_BYTES: u32 = 704;

/// Data that goes into a packet's first allocation (`SKB_MAX_HEAD(0)`); the rest is in whole pages.
const SKB_LINEAR_BYTES: u32 = PIPE_PAGE_BYTES - SKB_SHARED_INFO_BYTES;

/// Bytes that a message takes of the buffer of a Unix stream socket: its `truesize`. Assumption: one packet a message;
/// the kernel cuts those of more than 36 KB.
pub const fn unix_message_bytes(bytes: u32) -> u32 {
    let paged = bytes.saturating_sub(SKB_LINEAR_BYTES).div_ceil(PIPE_PAGE_BYTES) * PIPE_PAGE_BYTES;
    let linear = bytes.saturating_sub(paged) + SKB_SHARED_INFO_BYTES;
    let small = linear <= SKB_SMALL_HEAD_BYTES;
    let allocated = if small { SKB_SMALL_HEAD_BYTES } else { linear.next_power_of_two() };
    allocated + paged + SKB_HEADER_BYTES
}

/// Space that a small message takes in the socket buffer beyond its bytes: 668. So a 100-byte message takes 768 (512
/// for the data's slab with the shared info, 256 for the header; recalled).
const SOCKET_OVERHEAD_BYTES: u32 = 668;

/// Bytes that a socket holds before writers block, in messages of `bytes` each.
pub const fn socket_capacity_bytes(bytes: u32) -> u32 {
    let messages = SOCKET_BUFFER_BYTES / (bytes.saturating_add(SOCKET_OVERHEAD_BYTES));
    let capacity = messages.saturating_mul(bytes);
    if capacity < bytes { bytes } else { capacity }
}

// --- tbench -------------------------------------------------------------------------------------

/// Bytes that a file-server operation moves on average: about 5.4 KB. Assumption, recalled from the mix of the dbench
/// load file (per 1,000 operations about 270 reads and 86 writes; the others carry names and attributes).
pub const TBENCH_BYTES: u64 = 5_400;
/// Of these, the request: writes and headers. Assumption.
pub const TBENCH_REQUEST_BYTES: u32 = 1_400;
/// Of these, the response: reads and attributes. Assumption.
pub const TBENCH_RESPONSE_BYTES: u32 = 4_000;
/// CPU time of the client, and of the server, per operation: building and parsing packets. Assumption.
pub const TBENCH_USER_NS: u64 = 2_000;
/// Sending `bytes`: a TCP message and its copy.
pub const fn tcp_send_ns(bytes: u64) -> u64 {
    TCP_SEND_NS + copy_ns(bytes)
}
/// Receiving `bytes`.
pub const fn tcp_receive_ns(bytes: u64) -> u64 {
    TCP_RECEIVE_NS + copy_ns(bytes)
}

// --- iperf3 -------------------------------------------------------------------------------------

/// iperf3's default block size for TCP: 128 KB.
pub const IPERF3_BLOCK_BYTES: u32 = 131_072;
/// Bytes that a loopback connection holds before the writer blocks: half of `tcp_wmem`'s default maximum of 4 MB,
/// because the other half is overhead. Assumption.
pub const IPERF3_CAPACITY_BYTES: u32 = 2_097_152;
/// Period of a noise thread. The kernel's housekeeping runs at ticks. Assumption.
pub const NOISE_PERIOD_NS: u64 = 4_000_000;
/// Length of its burst: "tens of us". Assumption.
pub const NOISE_RUN_NS: u64 = 30_000;

// --- coremark -----------------------------------------------------------------------------------

/// One iteration of CoreMark at 3.5 GHz: 32,800 ns. Derived from the best published score of 16 threads on Zen3:
/// 480,012 / 16 = 30,001 iterations/s per thread. Its 8 busy cores a package have 3444 MHz (`power.rs` of
/// crate `machine`).
pub const COREMARK_ITERATION_NS: u64 = 32_800;
/// Iterations computed between two counts: about 1 ms.
pub const COREMARK_BATCH: u64 = 30;

// --- stream -------------------------------------------------------------------------------------

/// How long a libgomp thread spins in a barrier before it sleeps: 300,000 rounds (libgomp's manual, GOMP_SPINCOUNT if
/// OMP_WAIT_POLICY is undefined). Assumption: 10 ns per round.
pub const GOMP_SPIN_NS: u64 = 300_000 * 10;

/// A cycle of a loop of scalar code, in ps. Measured on a Zen 4 EPYC with arrays of 4 MiB
/// (docs/notes/2026-11-25-results.md): loops of one cycle per element took 272 to 278 ps, loops of two cycles 542 to
/// 547 ps.
pub const CYCLE_PS: u64 = 272;

// --- rt-app -------------------------------------------------------------------------------------

/// write() to /dev/null, which does not read the buffer: one system call. Assumption: 0.2 us, entry and exit with the
/// usual mitigations.
pub const NULL_WRITE_NS: u64 = 200;

// --- sysbench oltp_read_write -------------------------------------------------------------------

/// Statements of a transaction: begin, 10 point selects, 4 range selects, 2 updates, delete, insert and commit. Client
/// and server hand over at each statement.
pub const OLTP_STATEMENTS: u64 = 20;

/// CPU time of a transaction at full speed, client and server together: 1,231 us. Derived from the base of the
/// published row of 8 instances with 72 threads each (published/001-oltp.csv), assuming that all CPUs were busy: 8 x
/// 5605.20 transactions/s on 96 CPUs are 2,141 us each, and a CPU whose SMT sibling is busy runs at 589 of 1024. This
/// sets the level of all rows. The gain by cling is predicted.
const OLTP_TRANSACTION_NS: u64 = 2_141_000 * 589 / 1024;

/// The part that the engine charges, two wakeups and two switches per statement: 20 x 2500 = 50 us.
const OLTP_CHARGED_NS: u64 = OLTP_STATEMENTS * 2 * (ENGINE_WAKEUP_NS + ENGINE_SWITCH_NS);

/// Cache lines of the buffer pool that a transaction needs one after the other, from B-tree pages and rows: 2,048
/// lines, 128 KiB. Assumption: about one L3 miss per 1,000 instructions (recalled for OLTP on MySQL), at slightly less
/// than one instruction per cycle of 2.5 GHz.
pub const OLTP_LINES: u64 = 2_048;

/// Time for these lines if half of them are remote, as without NUMA balancing: 111 ns each, the middle of 78 and 144 ns
/// (published for Cascade Lake); 227 us in total.
const OLTP_MEMORY_NS: u64 = OLTP_LINES * 111;

/// CPU time of client and server for a statement: (1231 - 50 - 227) / 20 = 47.7 us.
const OLTP_STATEMENT_NS: u64 =
    (OLTP_TRANSACTION_NS - OLTP_CHARGED_NS - OLTP_MEMORY_NS) / OLTP_STATEMENTS;

/// The client's part: a tenth. Assumption: the client creates the statement and drops the rows.
pub const OLTP_CLIENT_NS: u64 = OLTP_STATEMENT_NS / 10;
/// The server's part: parsing, executing, sending.
pub const OLTP_SERVER_NS: u64 = OLTP_STATEMENT_NS - OLTP_CLIENT_NS;

/// Time that a commit waits until the redo log is on disk (`innodb_flush_log_at_trx_commit` of 1). Assumption: an SSD,
/// with several commits at once.
pub const OLTP_FLUSH_NS: u64 = 1_000_000;

/// Number of transactions in which an instance's threads use its hot rows once: 256 x 128 KiB = 32 MiB. Assumption,
/// after sysbench's default distribution "special": 75% of accesses go to 1% of the rows (recalled). These are 20 MB of
/// ten tables with a million rows of 200 bytes, and their indexes.
pub const OLTP_HOT_PIECES: u32 = 256;

/// Size of a statement with its parameters. Assumption.
pub const OLTP_REQUEST_BYTES: u32 = 100;
/// Size of a result. Most are one row of 190 bytes. Assumption: a range of 100 rows is not treated differently.
pub const OLTP_RESPONSE_BYTES: u32 = 1_000;

// --- SPECjbb ------------------------------------------------------------------------------------

/// A warehouse's live objects: 25 MiB (recalled: about 25 MB, SPECjbb2005).
pub const SPECJBB_WAREHOUSE_BYTES: u64 = 25 << 20;

/// Cache lines of live objects that a transaction needs one after the other. Assumption, see
/// [`SPECJBB_TRANSACTION_NS`].
pub const SPECJBB_LINES: u64 = 200;

/// CPU time of a transaction: 40 us. Derived: 524,000 transactions/s with 32 warehouses on 32 CPUs (posted with
/// numa/core v16, LKML 2012, v3.7 with huge pages) are 61 us each. Assumption: a third of that is waiting for memory,
/// 200 lines of 100 ns.
pub const SPECJBB_TRANSACTION_NS: u64 = 40_000;

/// Bytes of new objects per transaction. Assumption.
pub const SPECJBB_ALLOCATED_BYTES: u64 = 10 << 10;

// --- footprints ---------------------------------------------------------------------------------

/// CoreMark's data: about 2 KB.
pub const COREMARK_FOOTPRINT_BYTES: u64 = 2_048;
/// A task that talks over sockets or pipes: its kernel stack, socket and buffers in use. Assumption.
pub const TALKER_FOOTPRINT_BYTES: u64 = 16_384;
/// A tbench task: the same, and the packets that it builds. Assumption.
pub const TBENCH_FOOTPRINT_BYTES: u64 = 65_536;
/// An iperf3 end: its block and the part of the socket buffer that is in flight. Assumption.
pub const IPERF3_FOOTPRINT_BYTES: u64 = 524_288;
/// A thread that spins on registers and the clock: its stack and code. Used for schbench's worker, rt-app's `run`, and
/// a burst of a kernel worker. Assumption.
pub const SPINNER_FOOTPRINT_BYTES: u64 = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel test robot posts that softirqs take 29.1% of the time of 384 clients that share CPUs with their
    /// servers. That is 1033 of a message's 3550 ns, of which the wakeup has 500.
    #[test]
    fn the_receiving_half_is_near_what_a_posted_share_of_softirqs_leaves_for_it() {
        let message = TCP_ROUND_TRIP_NS / 2;
        let posted = message * 291 / 1_000 - ENGINE_WAKEUP_NS;
        assert!(
            TCP_SOFTIRQ_NS.abs_diff(posted) * 20 < posted,
            "{TCP_SOFTIRQ_NS} ns, posted {posted}"
        );
        assert_eq!(
            [1, 65_536, 131_072].map(|bytes| tcp_softirq_ns(bytes) / TCP_SOFTIRQ_NS),
            [1, 1, 2]
        );
    }

    #[test]
    fn an_oltp_transaction_adds_up_to_what_96_cpus_took_for_it() {
        let computed = OLTP_STATEMENTS * (OLTP_CLIENT_NS + OLTP_SERVER_NS);
        let busy = computed + OLTP_CHARGED_NS + OLTP_MEMORY_NS;
        let a_second = 96.0 * 1e9 / (busy as f64 * 1024.0 / 589.0);
        assert!((a_second / (8.0 * 5605.20) - 1.0).abs() < 0.001, "{a_second}");
    }

    #[test]
    fn a_default_socket_holds_277_messages_of_hackbench() {
        assert_eq!(socket_capacity_bytes(100) / 100, 277);
    }

    /// Linux's default for `net.core.wmem_default`. 100 bytes take the smallest packet, 960 bytes; 1,000 bytes with the
    /// shared info take 2,048; 6,000 bytes take a page, and 4,096 for the rest with the shared info.
    #[test]
    fn a_message_takes_more_of_a_unix_socket_than_its_bytes() {
        assert_eq!(SOCKET_BUFFER_BYTES, 212_992);
        assert_eq!([100, 1_000, 6_000].map(unix_message_bytes), [960, 2_304, 8_448]);
    }

    #[test]
    fn a_socket_always_holds_one_message() {
        assert_eq!(socket_capacity_bytes(500_000), 500_000);
    }
}
