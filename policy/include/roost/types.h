/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fixed-width types of the policy headers, the same in a BPF program and in user space.
 *
 * A BPF program includes the kernel's vmlinux.h first, which defines them.
 */
#ifndef ROOST_TYPES_H
#define ROOST_TYPES_H

#ifndef __VMLINUX_H__
#include <stdbool.h>
#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64;
#endif

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* Full capacity of one CPU, and its utilisation when it always runs (SCHED_CAPACITY_SCALE). */
#define ROOST_CAPACITY 1024

#endif
