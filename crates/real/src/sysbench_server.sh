# The database instances of sysbench-oltp, each in a cgroup of its own. They listen on a socket only. $1: start or stop.
# The lines before these set:
#
#   instances  their number
#   weight     cpu.weight of the first one's cgroup; the others have 100
#
# The data are in the run's folder, which in a guest is in memory. Packages of a guest are unpacked and not installed,
# so there are no accounts: the server does not look for any. A folder is a database.
here=$PWD
groups=/sys/fs/cgroup/oltp

# $1: the number of an instance, $2: the weight of its cgroup.
start_instance() {
	mkdir -p "$groups/$1" "data.$1/sbtest"
	echo "$2" >"$groups/$1/cpu.weight"
	(
		echo $BASHPID >"$groups/$1/cgroup.procs"
		exec mariadbd --no-defaults --user=root --datadir="$here/data.$1" --socket="$here/socket.$1" \
			--pid-file="$here/pid.$1" --skip-networking --skip-grant-tables >"log.$1" 2>&1
	) &
	until [ -S "socket.$1" ]; do
		kill -0 $! 2>/dev/null || { tail -n 1 "log.$1" >&2; exit 1; }
		sleep 0.1
	done
	sysbench oltp_read_write --mysql-socket="$here/socket.$1" --mysql-user=root prepare >&2 || exit
}

start() {
	mkdir -p $groups && echo +cpu >/sys/fs/cgroup/cgroup.subtree_control &&
		echo +cpu >$groups/cgroup.subtree_control ||
		{ echo "only root can make the cgroups of the instances; ask a guest with --on vm" >&2; exit 1; }
	for ((one = 0; one < instances; one++)); do
		start_instance $one $((one == 0 ? weight : 100))
	done
}

stop() {
	for group in $groups/*/; do
		echo 1 >"$group/cgroup.kill"
		for _ in {1..100}; do
			rmdir "$group" && break
			sleep 0.1
		done
	done
	rmdir $groups
	rm -rf data.*
} 2>/dev/null

$1
