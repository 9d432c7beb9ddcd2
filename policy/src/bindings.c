// SPDX-License-Identifier: GPL-2.0-only
/* The inline functions of the policy headers as symbols that Rust can call. */
#include <roost/llc_imbalance.h>
#include <roost/numa_imbalance.h>
#include <roost/sis_util.h>
#include <roost/utilisation.h>

u32 policy_nr_idle_scan(u64 sum_util, u32 llc_weight, u32 imbalance_pct)
{
	return roost_nr_idle_scan(sum_util, llc_weight, imbalance_pct);
}

u32 policy_llc_imbalance_allowed(u32 child_span)
{
	return roost_llc_imbalance_allowed(child_span);
}

u64 policy_llc_imbalance_adjust(u64 amount, u32 span, u32 child_span)
{
	return roost_llc_imbalance_adjust(amount, span, child_span);
}

u32 policy_numa_step(u32 rule, struct roost_numa_walk *walk, const struct roost_numa_level *level)
{
	return roost_numa_step(rule, walk, level);
}

u64 policy_numa_adjust_periodic(u32 rule, u64 imbalance, u32 busiest_running, u32 busiest_weight,
				u32 local_running, u32 imb_numa_nr)
{
	return roost_numa_adjust_periodic(rule, imbalance, busiest_running, busiest_weight,
					  local_running, imb_numa_nr);
}

u64 policy_numa_adjust_placement(u32 rule, u64 imbalance, u32 dst_running, u32 dst_weight,
				 u32 imb_numa_nr)
{
	return roost_numa_adjust_placement(rule, imbalance, dst_running, dst_weight, imb_numa_nr);
}

bool policy_numa_stay_local(u32 rule, u32 local_running, u32 idle_difference, u32 span_weight,
			    u32 allowed, u32 imb_numa_nr)
{
	return roost_numa_stay_local(rule, local_running, idle_difference, span_weight, allowed,
				     imb_numa_nr);
}

u64 policy_util_advance(u64 kept, u64 elapsed_ns, bool busy)
{
	return roost_util_advance(kept, elapsed_ns, busy);
}
