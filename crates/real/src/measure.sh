#!/bin/bash
# Runs `workload.sh` under the requested settings, and writes the kernel's counts for this time to $ROOST_OUT. The same
# script is used in a guest and on this machine. It restores all changed settings, also after SIGINT and SIGTERM. Files
# in its folder:
#
#   workload.sh    the workload
#   server.sh      starts what the workload needs, and ends it: `start` and `stop`. Nothing is measured before it has
#                  started (optional)
#   knobs          settings, one per line: FILE VALUE, relative to /sys/kernel/debug/sched
#   scheduler.sh   starts a sched_ext scheduler in the foreground (optional)
#
# ROOST_STREAM_KB  size of each CPU's trace buffer for every switch and wakeup (optional)
# ROOST_WINDOW     set if the workload itself marks the measured part, with the functions `begin_window` and
#                  `end_window` of the file with this name (optional)
# ROOST_DELAY      seconds to wait before the workload; depends on the seed
# ROOST_COUNTERS   ADDRESS/PORT at which the scheduler serves its counters over HTTP (optional)
# ROOST_TASKS      a trace filter by name for the workload's tasks; wakeups, switches and migrations of other tasks are
#                  not counted (optional)
# ROOST_CALLS      SYSCALL COMM: counts these system calls of the tasks with this name (optional)
#
# Without root, nothing is set or traced. If sudo started the script, the workload runs as the user who called sudo.
#
# Output: stdout, stderr, status, begin_ns, end_ns, release, root_pid, before/ and after/ with copies from /proc and
# the scheduler's answer (counters), hist/ with counts by CPU, trace/ with the stream. `failure` has one line if the
# measurement is unusable.
set -u
out=$ROOST_OUT
sched=/sys/kernel/debug/sched
ext=/sys/kernel/sched_ext
tracing=/sys/kernel/tracing
mine=$tracing/instances/roost
events="sched_switch sched_waking sched_wakeup sched_wakeup_new sched_migrate_task
	sched_process_fork sched_process_exit sched_process_exec"
here=$PWD
root=$((EUID == 0))
restore=()
workload='' scheduler='' watch='' calls=''

fail() {
	echo "$*" >"$out/failure"
	exit 1
}

# First sends SIGINT as a terminal would, then stronger signals. (A background process of a shell may ignore SIGINT.)
end_scheduler() {
	local signal
	for signal in INT TERM KILL; do
		kill -$signal -- "-$scheduler" 2>/dev/null
		for _ in {1..30}; do
			jobs -rp | grep -qx "$scheduler" || return
			sleep 0.1
		done
	done
}

# Ends what was started, and undoes the changes, the last one first. Also removes this folder if roost has ended.
finish() {
	trap '' INT TERM
	local last parent
	[ -n "$watch" ] && kill "$watch" 2>/dev/null
	[ -n "$workload" ] && kill -KILL -- "-$workload" 2>/dev/null
	[ -n "$scheduler" ] && end_scheduler
	for ((last = ${#restore[@]} - 1; last >= 0; last--)); do
		eval "${restore[last]}"
	done
	read -r _ _ _ parent _ </proc/$$/stat
	[ "$parent" = $PPID ] || rm -rf "$here"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# $1: a file, $2: its new value, $3: the value to restore.
set_file() {
	restore+=("echo '$3' >'$1'")
	echo "$2" 2>/dev/null >"$1" || fail "$1: the kernel refuses $2"
}

# A setting that reads as a list of choices shows the current one in parentheses.
value_of() {
	local text
	text=$(cat "$1")
	case $text in
	*'('*')'*) text=${text#*(} && text=${text%%)*} ;;
	esac
	echo "$text"
}

set_knobs() {
	local file value old
	while read -r file value; do
		case $file in
		features)
			old=$(grep -ow "\(NO_\)\?${value#NO_}" $sched/features)
			set_file $sched/features "$value" "$old"
			;;
		*) set_file "$sched/$file" "$value" "$(value_of "$sched/$file")" ;;
		esac
	done <knobs
}

enabled() {
	[ "$(cat $ext/state)" = enabled ] && [ "$(cat $ext/root/ops)" = "$1" ] &&
		[ "$(cat $ext/enable_seq)" = "$2" ]
}

# The last output of a scheduler that has ended.
last_words() {
	grep -v '^[[:space:]]*$' "$out/scheduler.log" | tail -n 1
}

start_scheduler() {
	[ -d $ext ] || fail "this kernel has no sched_ext: CONFIG_SCHED_CLASS_EXT is off"
	[ "$(cat $ext/state)" = disabled ] ||
		fail "the sched_ext scheduler $(cat $ext/root/ops) is loaded already: end it first"
	setsid bash ./scheduler.sh >"$out/scheduler.log" 2>&1 </dev/null &
	scheduler=$!
	for _ in {1..300}; do
		[ "$(cat $ext/state)" = enabled ] && break
		jobs -rp | grep -qx $scheduler || fail "the scheduler ended before it ran: $(last_words)"
		sleep 0.1
	done
	[ "$(cat $ext/state)" = enabled ] || fail "the scheduler was not enabled within 30 s"
	ops=$(cat $ext/root/ops) sequence=$(cat $ext/enable_seq)
	echo "$ops" >"$out/ops"
}

# Ends the workload when the scheduler is no longer enabled.
watch_scheduler() {
	while sleep 1; do
		enabled "$ops" "$sequence" || kill -KILL -- "-$workload"
	done
}

# Every user may read these.
check_statistics() {
	[ -r /proc/schedstat ] ||
		fail "this kernel keeps no scheduling statistics (CONFIG_SCHEDSTATS): ask a guest with --on vm"
}

set_statistics() {
	local file=/proc/sys/kernel/sched_schedstats
	set_file $file 1 "$(cat $file)"
}

set_tracing() {
	[ -d $tracing/instances ] ||
		{ mount -t tracefs tracing $tracing 2>/dev/null && restore+=("umount $tracing"); }
	[ -d $tracing/instances ] || fail "this kernel has no tracing (CONFIG_EVENT_TRACING): ask a guest with --on vm"
	mkdir $mine || fail "$mine exists: another measurement runs, or rmdir it"
	restore+=("rmdir $mine")
	echo 0 >$mine/tracing_on
	echo mono >$mine/trace_clock
	set_histograms "unsigned int waker; int target; int moved" "${ROOST_TASKS:+ if $ROOST_TASKS}"
	[ -n "${ROOST_CALLS:-}" ] && count_calls $ROOST_CALLS
	[ -n "${ROOST_STREAM_KB:-}" ] && set_stream
}

# $1: a system call, $2: the name of the tasks. A system call has no field with the name, but every event can be
# filtered by it.
count_calls() {
	calls=$mine/events/syscalls/sys_enter_$1
	[ -d "$calls" ] || fail "this kernel does not trace system calls: CONFIG_FTRACE_SYSCALLS is off"
	trigger "syscalls/sys_enter_$1" "hist:keys=common_cpu if comm == \"$2\""
}

# Sets up histograms: how far each wakeup moved its task, the waker's and the target CPU of each wakeup (for the
# workload's tasks only), and all migrations; and in which state tasks leave their CPU. $1: fields of a wakeup, $2: the
# filter.
set_histograms() {
	restore+=("echo '!roost_wakeup $1' >>$tracing/synthetic_events")
	echo "roost_wakeup $1" >>$tracing/synthetic_events ||
		fail "this kernel has no synthetic trace events: CONFIG_HIST_TRIGGERS is off"
	trigger sched/sched_waking "hist:keys=pid:prev=target_cpu,waker=common_cpu:size=65536$2"
	local woken='onmatch(sched.sched_waking).trace(roost_wakeup,$waker,$target,$moved)'
	trigger sched/sched_wakeup "hist:keys=pid:moved=target_cpu-\$prev,target=target_cpu:size=65536:$woken$2"
	trigger synthetic/roost_wakeup 'hist:keys=moved'
	[ -n "$2" ] && trigger synthetic/roost_wakeup 'hist:keys=waker,target:size=131072'
	trigger sched/sched_migrate_task "hist:keys=orig_cpu,dest_cpu:size=131072$2"
	[ -n "$2" ] && trigger sched/sched_switch "hist:keys=prev_state${2//comm ~/prev_comm ~}"
}

# Triggers are removed before the events that they read, the last one first. (Opening the file with > would remove its
# other triggers.)
trigger() {
	restore+=("echo '!$2' >>$mine/events/$1/trigger")
	echo "$2" >>$mine/events/$1/trigger || fail "the kernel refuses the trigger $2"
}

set_stream() {
	local event
	mkdir -p "$out/trace/format"
	echo 0 >$mine/options/overwrite
	echo 1 >$mine/options/record-tgid
	echo "$ROOST_STREAM_KB" >$mine/buffer_size_kb || fail "no memory for the trace's buffers"
	cp $tracing/events/header_page $tracing/events/header_event "$out/trace/"
	for event in $events; do
		cat $mine/events/sched/$event/format >"$out/trace/format/$event"
		echo 1 >$mine/events/sched/$event/enable
	done
}

# The functions at the beginning and end of a window use only bash: starting a program takes emulated CPUs tens of
# milliseconds, on CPUs that would be idle.

# $1: `before` or `after`; the other arguments are files of /proc.
snapshot() {
	local file text moment=$1
	shift
	for file; do
		mapfile -d '' text <"/proc/$file"
		printf '%s' "${text[0]}" >"$out/$moment/$file"
	done
}

# Sets `now` to the real time in ns.
look_at_clock() {
	now=${EPOCHREALTIME//[!0-9]/}000
}

# Asks the scheduler for its counters. $1: `before` or `after`.
ask_scheduler() {
	local text
	exec 8<>"/dev/tcp/$ROOST_COUNTERS" || return
	printf 'GET /metrics HTTP/1.0\r\n\r\n' >&8
	read -rN 100000 -t 10 -u 8 text
	exec 8>&-
	printf '%s' "$text" >"$out/$1/counters"
}

# On busy emulated CPUs, reading the counters takes tens of milliseconds. The middle of that time is written down.
# $1: as in `snapshot`, $2: the file for the time.
look() {
	local now since
	look_at_clock
	since=$now
	snapshot "$1" schedstat
	[ -z "${ROOST_COUNTERS:-}" ] || ask_scheduler "$1"
	look_at_clock
	echo $(((since + now) / 2)) >"$out/$2"
}

begin_window() {
	look before begin_ns
}

# The stream ends with the window. (It begins with the measurement, because all forks must be known.)
end_window() {
	((root)) && echo 0 >$mine/tracing_on
	look after end_ns
}

save_tracing() {
	local cpu
	mkdir -p "$out/hist"
	cat $mine/events/sched/sched_migrate_task/hist >"$out/hist/migrations"
	cat $mine/events/synthetic/roost_wakeup/hist >"$out/hist/wakeups"
	[ -n "${ROOST_TASKS:-}" ] && cat $mine/events/sched/sched_switch/hist >"$out/hist/switches"
	[ -n "${ROOST_CALLS:-}" ] && cat "$calls/hist" >"$out/hist/calls"
	[ -n "${ROOST_STREAM_KB:-}" ] || return
	mkdir -p "$out/trace/stats"
	cp $tracing/saved_tgids $tracing/saved_cmdlines "$out/trace/"
	for cpu in $mine/per_cpu/cpu*; do
		cat "$cpu/stats" >"$out/trace/stats/${cpu##*/}"
		# The pipe never ends. When reading would block, everything has been read.
		dd if="$cpu/trace_pipe_raw" of="$out/trace/${cpu##*/}" bs=4096 iflag=nonblock status=none 2>/dev/null
	done
}

# Replaces this shell by a script of the workload, in a folder of its own, as the user who called sudo. $1: the script,
# then its arguments.
become() {
	local as=()
	mkdir -p "$out/work"
	if ((root)) && [ -n "${SUDO_UID:-}" ]; then
		chown "$SUDO_UID:$SUDO_GID" "$out/work"
		as=(setpriv "--reuid=$SUDO_UID" "--regid=$SUDO_GID" --init-groups)
	fi
	cd "$out/work" || fail "$out/work: cannot be entered"
	ROOST_HERE=$here exec setsid "${as[@]}" bash "$here/$1" "${@:2}" </dev/null
}

# A server that does not start is a workload that failed.
start_server() {
	restore+=("(become server.sh stop)")
	(become server.sh start) >"$out/stdout" 2>"$out/stderr" && return
	echo $? >"$out/status"
	exit 0
}

run_workload() {
	become workload.sh >"$out/stdout" 2>"$out/stderr" &
	workload=$!
	echo $workload >"$out/root_pid"
}

# Takes the last CPU offline and back online. The kernel then rebuilds the scheduling domains, without what balancing
# learnt in earlier runs (costs, and how often newly idle balancing succeeds).
rebuild_domains() {
	local last=/sys/devices/system/cpu/cpu$(($(nproc --all) - 1))/online
	echo 0 >"$last" && echo 1 >"$last" || fail "$last: the kernel does not take a CPU away"
}

uname -r >"$out/release"
mkdir -p "$out/before" "$out/after"
check_statistics
[ -f server.sh ] && start_server
if ((root)); then
	set_knobs
	set_statistics
	[ -n "${ROOST_WINDOW:-}" ] && rebuild_domains
	[ -f scheduler.sh ] && start_scheduler
	set_tracing
fi
cat /proc/sys/kernel/sched_schedstats >"$out/schedstats"
sleep "${ROOST_DELAY:-0}"
snapshot before vmstat stat
((root)) && echo 1 >$mine/tracing_on
if [ -n "${ROOST_WINDOW:-}" ]; then
	export ROOST_WINDOW=$here/window.sh
	declare -p out mine root >"$ROOST_WINDOW"
	declare -f snapshot ask_scheduler look_at_clock look begin_window end_window >>"$ROOST_WINDOW"
else
	begin_window
fi
run_workload
# With a window, nothing else shall run in it. It is short, and the scheduler is checked after it.
[ -n "$scheduler" ] && [ -z "${ROOST_WINDOW:-}" ] && { watch_scheduler & watch=$!; }
wait $workload
echo $? >"$out/status"
[ -n "${ROOST_WINDOW:-}" ] || end_window
snapshot after vmstat stat
workload=''
if [ -n "$scheduler" ] && ! enabled "$ops" "$sequence"; then
	fail "the kernel disabled the scheduler $ops: $(last_words)"
fi
((root)) && save_tracing
exit 0
