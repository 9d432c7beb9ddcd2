// SPDX-License-Identifier: GPL-2.0-only
/* The inline functions of the policy headers as symbols that Rust can call. own_rule.c watches how long each takes. */
#include <roost/cling.h>
#include <roost/consolidate.h>
#include <roost/llc_imbalance.h>
#include <roost/numa_imbalance.h>
#include <roost/sis_util.h>
#include <roost/utilisation.h>

#ifndef WATCHED
#define WATCHED do {} while (0)
#endif

u32 policy_nr_idle_scan(u64 sum_util, u32 llc_weight, u32 imbalance_pct)
{
	WATCHED;
	return roost_nr_idle_scan(sum_util, llc_weight, imbalance_pct);
}

u32 policy_llc_imbalance_allowed(u32 child_span)
{
	WATCHED;
	return roost_llc_imbalance_allowed(child_span);
}

u64 policy_llc_imbalance_adjust(u64 amount, u32 span, u32 child_span)
{
	WATCHED;
	return roost_llc_imbalance_adjust(amount, span, child_span);
}

u32 policy_numa_step(u32 rule, struct roost_numa_walk *walk, const struct roost_numa_level *level)
{
	WATCHED;
	return roost_numa_step(rule, walk, level);
}

u64 policy_numa_adjust_periodic(u32 rule, u64 imbalance, u32 busiest_running, u32 busiest_weight,
				u32 local_running, u32 imb_numa_nr)
{
	WATCHED;
	return roost_numa_adjust_periodic(rule, imbalance, busiest_running, busiest_weight,
					  local_running, imb_numa_nr);
}

u64 policy_numa_adjust_placement(u32 rule, u64 imbalance, u32 dst_running, u32 dst_weight,
				 u32 imb_numa_nr)
{
	WATCHED;
	return roost_numa_adjust_placement(rule, imbalance, dst_running, dst_weight, imb_numa_nr);
}

bool policy_numa_stay_local(u32 rule, u32 local_running, u32 idle_difference, u32 span_weight,
			    u32 allowed, u32 imb_numa_nr)
{
	WATCHED;
	return roost_numa_stay_local(rule, local_running, idle_difference, span_weight, allowed,
				     imb_numa_nr);
}

u64 policy_util_advance(u64 kept, u64 elapsed_ns, bool busy)
{
	WATCHED;
	return roost_util_advance(kept, elapsed_ns, busy);
}

void policy_cling_attempt(struct roost_cling_node *node, bool failed)
{
	WATCHED;
	roost_cling_attempt(node, failed);
}

void policy_cling_decay(struct roost_cling_node *node, u32 nid, struct roost_cling_walk *walk)
{
	WATCHED;
	roost_cling_decay(node, nid, walk);
}

bool policy_cling_busy(const struct roost_cling_node *node, u32 nid, u32 busiest, u32 degree)
{
	WATCHED;
	return roost_cling_busy(node, nid, busiest, degree);
}

bool policy_cling(bool do_cling, u32 preferred, u32 src, u32 dst, bool src_busy)
{
	WATCHED;
	return roost_cling(do_cling, preferred, src, dst, src_busy);
}

bool policy_cling_prefers(bool do_cling, u64 faults, u64 most, bool busy)
{
	WATCHED;
	return roost_cling_prefers(do_cling, faults, most, busy);
}

u32 policy_cling_page(bool do_cling, bool dst_busy, bool src_busy)
{
	WATCHED;
	return roost_cling_page(do_cling, dst_busy, src_busy);
}

u32 policy_cling_bucket(u64 local, u64 remote)
{
	WATCHED;
	return roost_cling_bucket(local, remote);
}

u64 policy_cling_score(u64 memory, u64 all_memory, u64 cpu_time, u64 all_cpu_time)
{
	WATCHED;
	return roost_cling_score(memory, all_memory, cpu_time, all_cpu_time);
}

bool policy_cling_fits(u64 claimed, u64 demand, u32 nr_cpus)
{
	WATCHED;
	return roost_cling_fits(claimed, demand, nr_cpus);
}

bool policy_consolidate_local(u32 weight, u32 nodes, u32 total)
{
	WATCHED;
	return roost_consolidate_local(weight, nodes, total);
}

int policy_consolidate_benefit(u32 total, u32 dst_nr, u32 dst_weight, u32 src_nr, u32 src_weight)
{
	WATCHED;
	return roost_consolidate_benefit(total, dst_nr, dst_weight, src_nr, src_weight);
}

bool policy_consolidate_may_wake(int benefit)
{
	WATCHED;
	return roost_consolidate_may_wake(benefit);
}

bool policy_consolidate_ignores_heat(bool across_nodes, int benefit, u32 failed, u32 tries)
{
	WATCHED;
	return roost_consolidate_ignores_heat(across_nodes, benefit, failed, tries);
}

bool policy_consolidate_two_passes(bool posted, u32 dst_node, u32 src_node, u32 first_cpu_node)
{
	WATCHED;
	return roost_consolidate_two_passes(posted, dst_node, src_node, first_cpu_node);
}

bool policy_consolidate_first_pass(bool posted, bool across_nodes, int benefit)
{
	WATCHED;
	return roost_consolidate_first_pass(posted, across_nodes, benefit);
}

bool policy_consolidate_second_pass(bool posted, bool across_nodes, u32 *migrate_seq)
{
	WATCHED;
	return roost_consolidate_second_pass(posted, across_nodes, migrate_seq);
}

bool policy_consolidate_worth(const struct roost_consolidate *here)
{
	WATCHED;
	return roost_consolidate_worth(here);
}

bool policy_consolidate_from(const struct roost_consolidate *here,
			     const struct roost_consolidate_node *other, u32 least)
{
	WATCHED;
	return roost_consolidate_from(here, other, least);
}

bool policy_consolidate_take(u32 *limit, u32 weight)
{
	WATCHED;
	return roost_consolidate_take(limit, weight);
}
