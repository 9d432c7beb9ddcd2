/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Lists the mappings of a process that have no memory policy: the daemon moves pages of these only
 *
 * /proc/PID/numa_maps shows policies too. But it walks through all pages of a mapping while it holds the lock of the
 * process's mappings, which takes seconds for 256 GiB. Here one call looks at MOST_LOOKED_AT mappings and at no page.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define MOST_LOOKED_AT 512

/* A mapping of huge pages from a pool (VM_HUGETLB of include/linux/mm.h). These pages are not moved. */
#define HUGE_POOL 0x00400000UL

/* A call reads the first two. It writes the others. */
u32 pid;
u64 from;
u64 next;			/* where the next call begins; 0 after the last mapping */
u32 count;
u64 starts[MOST_LOOKED_AT];	/* the first address of each mapping found */
/* How many mappings a call has looked at. In a local variable, the verifier would tell its values apart. */
u32 looked_at;

struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;
int bpf_iter_task_vma_new(struct bpf_iter_task_vma *it, struct task_struct *p, u64 addr) __ksym;
struct vm_area_struct *bpf_iter_task_vma_next(struct bpf_iter_task_vma *it) __ksym;
void bpf_iter_task_vma_destroy(struct bpf_iter_task_vma *it) __ksym;

static void look_at(struct vm_area_struct *vma)
{
	if (!vma->vm_policy && !(vma->vm_flags & HUGE_POOL) && count < MOST_LOOKED_AT)
		starts[count++] = vma->vm_start;
}

/* Returns 0, or an error if the process has ended or its lock is taken. A policy of the process counts for all. */
SEC("syscall")
int list_mappings(void *ctx)
{
	struct task_struct *p = bpf_task_from_pid(pid);
	struct bpf_iter_task_vma it;
	struct vm_area_struct *vma;
	int error = 0;

	next = 0;
	count = 0;
	looked_at = 0;
	if (!p)
		return -3; /* ESRCH */
	if (!p->mempolicy) {
		error = bpf_iter_task_vma_new(&it, p, from);
		while ((vma = bpf_iter_task_vma_next(&it))) {
			if (looked_at++ == MOST_LOOKED_AT) {
				next = vma->vm_start;
				break;
			}
			look_at(vma);
		}
		bpf_iter_task_vma_destroy(&it);
	}
	bpf_task_release(p);
	return error;
}

char LICENSE[] SEC("license") = "GPL";
