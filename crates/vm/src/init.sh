#!/bin/bash
# The guest's first process. It reports to roost over the second serial line (ttyS1):
#
#   roost: ready                    the guest has booted, and its survey is written
#   roost: done NUMBER STATUS       a job has ended
#   roost: alive                    every 10 s while a job runs (in the host's time)
#
# In the host's time, roost writes `job NUMBER MEBIBYTES` or `shell ROWS COLUMNS` to the line. A job is a tar archive of
# that size on the second NVMe namespace. The survey, and later each job's results, are archives on the third.
# With exact time (there is a folder /jobs), all jobs are run. Archives are written to the line, compressed because the
# line is slow, after
#
#   roost: archive BYTES
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=${TERM:-linux} LC_ALL=C
umask 022

mount_all() {
	mount -t proc proc /proc
	mount -t sysfs sysfs /sys
	mountpoint -q /dev || mount -t devtmpfs dev /dev
	mkdir -p /dev/pts /dev/shm
	mount -t devpts devpts /dev/pts
	mount -t tmpfs shm /dev/shm
	mount -t tmpfs tmp /tmp
	mountpoint -q /run || mount -t tmpfs run /run
	mount -t debugfs debug /sys/kernel/debug
	mount -t tracefs tracing /sys/kernel/tracing
	mount -t cgroup2 cgroup /sys/fs/cgroup
	mount -t bpf bpf /sys/fs/bpf
	# Folders in which programs expect to be able to write. The root itself is read-only.
	for dir in /var/tmp /var/log /var/lib /root; do mount -t tmpfs tmp $dir; done
	mount --bind /run /var/run # where schedulers put the socket of scx_stats
	ip link set lo up
	# Some programs (netperf) think that a machine without any other address has no network.
	ip addr add 192.0.2.1/32 dev lo
	hostname guest
}

# Several sched_ext schedulers read the kernel's configuration from here.
place_config() {
	if [ -f "$roost/config" ]; then
		mount -t tmpfs boot /boot
		cp "$roost/config" "/boot/config-$(uname -r)"
	fi
}

# Prints all files that describe the machine, line by line, as PATH:LINE.
survey() {
	cd /
	grep -rsH '' sys/devices/system/cpu/{online,present} \
		sys/devices/system/cpu/cpu*/topology \
		sys/devices/system/cpu/cpu*/cache/index*/{level,type,size,shared_cpu_list} \
		sys/devices/system/node/node*/{cpulist,distance,meminfo} \
		sys/kernel/debug/sched --exclude=debug proc/schedstat proc/cpuinfo
	dmesg | grep -E 'attaching sched-domain|domain-[0-9]+: span=|groups:' |
		sed 's/^\[[^]]*\]/kernel-log:/'
	uname -r | sed 's/^/release:/'
}

# $1: the job's number, $2: its folder, which contains `job.sh`. Writes `result` with status, stdout, stderr and the
# folder `out`.
run_job() {
	mkdir -p "$2/result/out"
	(
		cd "$2" || exit 127
		export ROOST_OUT="$2/result/out"
		exec setsid -w bash ./job.sh </dev/null >result/stdout 2>result/stderr
	)
	echo $? >"$2/result/status"
}

# $1: a namespace's number. Prints its device. The device's name does not contain this number.
disk() {
	local block
	while true; do
		for block in /sys/block/nvme0n?; do
			[ "$(cat "$block/nsid")" = "$1" ] && echo "/dev/${block##*/}" && return
		done
		sleep 0.1
	done
}

# Shows that the guest lives, whatever a job does to ordinary tasks. It sleeps by waiting for a line that never comes,
# because a program that sleeps would have to be started each time.
beat() {
	chrt -f -p 1 $BASHPID
	while :; do
		read -rt 10 <>/run/never
		echo "roost: alive"
	done
}

load_lane() {
	jobs=$(disk 2) results=$(disk 3)
	mkdir -p /run/survey
	mkfifo /run/never
	survey >/run/survey/survey
	send /run/survey
	echo "roost: ready"
	while read -r what first second; do
		case $what in
		job)
			rm -rf /run/job
			mkdir -p /run/job
			# Bypasses the cache, which may hold an earlier job.
			dd if="$jobs" iflag=direct bs=1M count="$second" status=none |
				tar x -C /run/job
			beat &
			run_job "$first" /run/job
			{ kill $! && wait $!; } 2>/dev/null
			send /run/job/result
			echo "roost: done $first $(cat /run/job/result/status)"
			;;
		shell)
			stty sane rows "$first" cols "$second"
			cd /root
			setsid -w -c bash -i </dev/ttyS1 >/dev/ttyS1 2>&1
			break
			;;
		esac
	done
}

# $1: a folder. Its contents become the archive on the third namespace.
send() {
	tar c -C "$1" . | dd of="$results" oflag=direct iflag=fullblock bs=1M conv=notrunc status=none
}

# $1: a folder. Its contents are written to the line.
emit() {
	tar cz -C "$1" . >/run/archive
	echo "roost: archive $(stat -c %s /run/archive)"
	cat /run/archive
}

exact_lane() {
	mkdir -p /run/survey
	survey >/run/survey/survey
	emit /run/survey
	echo "roost: ready"
	for job in /jobs/*/; do
		job=${job%/}
		run_job "${job##*/}" "$job"
		emit "$job/result"
		echo "roost: done ${job##*/} $(cat "$job/result/status")"
		rm -rf "$job"
	done
}

mount_all 2>/dev/null
roost=/run
[ -d /jobs ] && roost=/jobs
place_config
exec </dev/ttyS1 >/dev/ttyS1 2>/dev/console
stty raw -echo
if [ -d /jobs ]; then exact_lane; else load_lane; fi
# QEMU ends when the guest restarts.
sync
echo b >/proc/sysrq-trigger
