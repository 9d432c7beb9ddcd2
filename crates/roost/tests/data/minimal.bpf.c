/* The smallest sched_ext scheduler: a name. The kernel's defaults do the rest, one queue for all. */
struct sched_ext_ops {
	char name[128];
};

__attribute__((section(".struct_ops.link"), used)) struct sched_ext_ops minimal = {
	.name = "minimal",
};

__attribute__((section("license"), used)) char _license[] = "GPL";
