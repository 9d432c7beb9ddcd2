//! Bandwidth shared max-min fairly between competing flows.
//!
//! A flow is a task's traffic to memory. It wants a rate up to its cap. Each of its bytes uses
//! several resources: all bytes pass its core and the link of its LLC, and a part passes each node
//! that holds its pages. The allocation is max-min fair by progressive filling (Bertsekas and
//! Gallager, Data Networks, 6.5.2). All rates rise together until a flow reaches its cap or a
//! resource its limit. The flows concerned keep their rate, and the others continue to rise. So no
//! limit is exceeded, and no flow below its cap could have more without taking it from a flow that
//! has no more than itself.
//!
//! A flow that waits for each line wants less if its resources are loaded more. Its cap depends on
//! the load that it *feels*. [`Bandwidth::solve`] iterates until that is the actual load.
//!
//! A change affects only flows that share a resource with it, directly or through others. All other
//! flows keep their rates and cost nothing.

use crate::time::Time;

/// The scale of the fraction of a flow's bytes that pass a resource.
pub(crate) const WHOLE: u32 = 1 << 16;

/// A flow's use of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub resource: u32,
    /// In units of [`WHOLE`], above 0.
    pub weight: u32,
}

/// Load of a fully used resource.
const FULL: u64 = 1024;

/// The largest load that is felt, because at [`FULL`] a wait would never end.
pub(crate) const MOST_FELT: u64 = FULL - 32;

/// Most rounds of the iteration for the loads felt. If resources depend on each other, whole
/// numbers may not converge and go round in a circle of a few 1024ths. Of 300,000 random networks
/// of four resources and up to 15 flows, all were within 16 of 1024 after 40 rounds. The average
/// was 4.4 rounds.
const ROUNDS: usize = 48;

/// Allowed difference between the load felt and the actual load.
const CLOSE: u64 = 2;

#[derive(Clone, Debug, Default)]
struct Flow {
    /// The rate it wants of idle resources.
    wanted: u64,
    /// Whether it wants less of loaded resources.
    waits: bool,
    /// The rate it wants at the present load.
    cap: u64,
    uses: Vec<Use>,
    rate: u64,
    /// The rate before the present change.
    before: u64,
}

/// One limited resource.
#[derive(Clone, Debug)]
struct Resource {
    limit: u64,
    /// Rate in use, in units of 1 / [`WHOLE`].
    used: u64,
    /// The load that waiting flows feel, in units of 1 / [`FULL`].
    felt: u64,
    /// Largest change of `felt` in a round, and whether it last rose. A change of direction halves
    /// the step. So a load that swings comes to rest, and one that has far to go still gets there.
    step: u64,
    rises: bool,
    /// A flow that uses it has changed: it is in [`Bandwidth::shared`].
    touched: bool,
    /// Sum of the weights of the members that use it.
    weight: u64,
}

/// A resource while it is shared.
#[derive(Clone, Copy, Debug, Default)]
struct Filling {
    /// What is left for flows without a rate.
    spare: u64,
    /// Sum of their weights.
    weight: u64,
    /// The rate that all of them could have, or [`UNKNOWN`].
    level: u64,
}

/// A level that has to be computed again.
const UNKNOWN: u64 = u64::MAX;

/// Flows, by number, and the resources they share. Rates are in bytes per microsecond.
#[derive(Default)]
pub(crate) struct Bandwidth {
    resources: Vec<Resource>,
    flows: Vec<Flow>,
    /// Numbers of the flows that use any resource.
    active: Vec<u32>,
    /// Buffers of [`Bandwidth::solve`]: the flows concerned, and the other ones.
    members: Vec<u32>,
    rest: Vec<u32>,
    open: Vec<Open>,
    ready: Vec<Open>,
    /// Resources to be shared again, and those of them that flows without a rate use.
    shared: Vec<u32>,
    contended: Vec<u32>,
    /// One per resource.
    filling: Vec<Filling>,
}

/// A flow without a rate.
#[derive(Clone, Copy, Debug)]
struct Open {
    cap: u64,
    number: u32,
}

impl Resource {
    /// Its load in 1024ths.
    fn load_1024(&self) -> u64 {
        (self.used >> 6) / self.limit.max(1)
    }

    /// Resource `number` is shared again: adds it to `shared`, without members as yet.
    fn touch(&mut self, number: u32, shared: &mut Vec<u32>) {
        if !self.touched {
            (self.touched, self.weight) = (true, 0);
            shared.push(number);
        }
    }

    /// Resets the load felt to 0.
    fn unfelt(&mut self) {
        (self.felt, self.step, self.rises) = (0, FULL, true);
    }

    /// Moves the load felt towards the actual load. Returns whether they were close.
    fn approach(&mut self) -> bool {
        let load = self.load_1024().min(MOST_FELT);
        let close = load.abs_diff(self.felt) <= CLOSE;
        if load != self.felt && (load > self.felt) != self.rises {
            self.rises = !self.rises;
            self.step = (self.step / 2).max(1);
        }
        self.felt = load.clamp(self.felt.saturating_sub(self.step), self.felt + self.step);
        close
    }
}

impl Bandwidth {
    /// No flows yet, but room for `flows`, over resources with these limits.
    pub(crate) fn new(limits: impl IntoIterator<Item = u64>, flows: usize) -> Self {
        let resource = |limit| Resource {
            limit,
            used: 0,
            felt: 0,
            step: 0,
            rises: false,
            touched: false,
            weight: 0,
        };
        let resources: Vec<Resource> = limits.into_iter().map(resource).collect();
        Self {
            filling: vec![Filling::default(); resources.len()],
            resources,
            flows: vec![Flow::default(); flows],
            ..Self::default()
        }
    }

    /// Changes the rate that a flow wants of idle resources, and whether it wants less of loaded
    /// ones. Without uses the flow ends. Takes effect at the next `solve`.
    pub(crate) fn set(&mut self, number: usize, wanted: u64, waits: bool, uses: &[Use]) {
        let flow = &mut self.flows[number];
        if (flow.wanted, flow.waits) == (wanted, waits) && flow.uses == uses {
            return;
        }
        for used in flow.uses.iter().chain(uses) {
            self.resources[used.resource as usize].touch(used.resource, &mut self.shared);
        }
        match (flow.uses.is_empty(), uses.is_empty()) {
            (true, false) => self.active.push(number as u32),
            (false, true) => self.active.retain(|&other| other != number as u32),
            _ => {}
        }
        (flow.wanted, flow.waits) = (wanted, waits);
        flow.uses.clear();
        flow.uses.extend_from_slice(uses);
    }

    /// The rate of a flow.
    pub(crate) fn rate(&self, number: usize) -> u64 {
        self.flows[number].rate
    }

    /// The least rate that one more flow with these uses would have if nothing else limited it,
    /// while the flow `idle` pauses. Flows with more than that come down to it, and none rises.
    pub(crate) fn share_of_another(&self, uses: &[Use], idle: usize) -> u64 {
        let of = |wanted: &Use| {
            let others = self.active.iter().filter(|&&number| number as usize != idle);
            let mut rates: Vec<(u64, u64)> = (others.map(|&number| &self.flows[number as usize]))
                .filter_map(|flow| {
                    let used = flow.uses.iter().find(|used| used.resource == wanted.resource)?;
                    Some((flow.rate, u64::from(used.weight)))
                })
                .collect();
            rates.sort_unstable();
            let mut spare = self.resources[wanted.resource as usize].limit << 16;
            let all: u64 = rates.iter().map(|(_, weight)| weight).sum();
            let mut open = all + u64::from(wanted.weight);
            for (rate, weight) in rates {
                if rate * open > spare {
                    break;
                }
                spare -= rate * weight;
                open -= weight;
            }
            spare / open
        };
        uses.iter().map(of).min().unwrap_or(u64::MAX)
    }

    /// The load of a resource that waiting flows feel, in 1024ths.
    pub(crate) fn felt_1024(&self, resource: u32) -> u64 {
        self.resources[resource as usize].felt
    }

    /// Shares bandwidth again where something changed. Appends to `concerned` the flows whose rate or
    /// loads felt may have changed.
    /// `wanted` is the rate that a waiting flow wants at the loads it feels ([`Self::felt_1024`]).
    /// It must fall when these rise.
    ///
    /// The loads felt are found by steps towards the resulting loads. The first round has no waits,
    /// so its loads are the highest possible. A single resource has exactly one solution. If
    /// several depend on each other, it is found to a few 1024ths.
    pub(crate) fn solve(
        &mut self,
        concerned: &mut Vec<usize>,
        wanted: impl Fn(&Self, usize) -> u64,
    ) {
        self.find_members();
        for &number in &self.shared {
            self.resources[number as usize].unfelt();
        }
        self.share();
        if self.members.iter().any(|&member| self.flows[member as usize].waits) {
            self.feel(wanted);
        }
        let members = self.members.iter().map(|&member| member as usize);
        concerned.extend(members.filter(|&member| {
            let flow = &self.flows[member];
            flow.rate != flow.before || flow.waits
        }));
        for number in self.shared.drain(..) {
            self.resources[number as usize].touched = false;
        }
    }

    /// Finds the loads that waiting flows feel. At first they feel none.
    fn feel(&mut self, wanted: impl Fn(&Self, usize) -> u64) {
        for _ in 0..ROUNDS {
            let mut close = true;
            for &number in &self.shared {
                close &= self.resources[number as usize].approach();
            }
            if close {
                return;
            }
            let mut changed = false;
            for index in 0..self.members.len() {
                let number = self.members[index] as usize;
                let flow = &self.flows[number];
                if flow.waits {
                    let cap = wanted(self, number).min(flow.wanted);
                    changed |= cap != flow.cap;
                    self.flows[number].cap = cap;
                }
            }
            if changed {
                self.share();
            }
        }
    }

    /// Shares the bandwidth of [`Self::shared`] among the members.
    fn share(&mut self) {
        self.contended.clear();
        for &number in &self.shared {
            let Resource { limit, weight, .. } = self.resources[number as usize];
            self.filling[number as usize] = Filling { spare: limit << 16, weight, level: UNKNOWN };
            if weight > 0 {
                self.contended.push(number);
            }
        }
        self.open.clear();
        self.open.extend(self.members.iter().map(|&number| {
            let cap = self.flows[number as usize].cap;
            Open { cap, number }
        }));
        while !self.open.is_empty() {
            self.fill();
        }
        for &number in &self.shared {
            let resource = &mut self.resources[number as usize];
            resource.used = (resource.limit << 16) - self.filling[number as usize].spare;
        }
    }

    /// Finds the flows that use a touched resource, and touches all of their resources. These flows
    /// begin to share: at first they may have the rate that they want.
    fn find_members(&mut self) {
        let Self { resources, flows, active, members, rest, shared, .. } = self;
        let (resources, flows) = (&mut resources[..], &mut flows[..]);
        members.clear();
        rest.clone_from(active);
        loop {
            let before = rest.len();
            rest.retain(|&number| {
                let flow = &mut flows[number as usize];
                // The last resources, nodes and links, are those that most flows share.
                if !flow.uses.iter().rev().any(|used| resources[used.resource as usize].touched) {
                    return true;
                }
                for used in &flow.uses {
                    let resource = &mut resources[used.resource as usize];
                    resource.touch(used.resource, shared);
                    resource.weight += u64::from(used.weight);
                }
                (flow.cap, flow.before) = (flow.wanted, flow.rate);
                members.push(number);
                false
            });
            if rest.is_empty() || rest.len() == before {
                break;
            }
        }
    }

    /// Checks that the used rate of each resource is the sum over its flows, and within the limit.
    pub(super) fn audit(&self, now: Time) {
        let mut taken = vec![0; self.resources.len()];
        for flow in &self.flows {
            for part in &flow.uses {
                taken[part.resource as usize] += flow.rate * u64::from(part.weight);
            }
        }
        for (number, (resource, taken)) in self.resources.iter().zip(taken).enumerate() {
            let Resource { used, limit, .. } = *resource;
            assert_eq!(used, taken, "use of bandwidth {number}, and by its flows, at {now:?}");
            assert!(
                used <= limit << 16,
                "{used} of bandwidth {number} used at {now:?}: limit {limit}"
            );
        }
    }

    /// Computes, for each resource, the rate that every flow without a rate could have if none
    /// reached its cap. Returns the lowest.
    fn lowest_level(&mut self) -> u64 {
        let mut lowest = u64::MAX;
        let filling = &mut self.filling[..];
        self.contended.retain(|&number| {
            let filling = &mut filling[number as usize];
            if filling.weight == 0 {
                return false;
            }
            if filling.level == UNKNOWN {
                filling.level = filling.spare / filling.weight;
            }
            lowest = lowest.min(filling.level);
            true
        });
        lowest
    }

    /// Gives their rate to flows that reach their cap below the lowest level of any resource. If
    /// there are none, to the flows that use the resource with that level.
    fn fill(&mut self) {
        let lowest = self.lowest_level();
        let Self { filling, flows, open, ready, .. } = self;
        let (filling, flows) = (&mut filling[..], &mut flows[..]);
        let before = open.len();
        open.retain(|flow| {
            let capped = flow.cap <= lowest;
            if capped {
                flows[flow.number as usize].take(filling, flow.cap);
            }
            !capped
        });
        if open.len() < before {
            return;
        }
        open.retain(|flow| {
            let held_back = |part: &Use| filling[part.resource as usize].level == lowest;
            let held_back = flows[flow.number as usize].uses.iter().any(held_back);
            if held_back {
                ready.push(*flow);
            }
            !held_back
        });
        for flow in ready.drain(..) {
            flows[flow.number as usize].take(filling, lowest);
        }
    }
}

impl Flow {
    /// Takes its `rate` of all its resources.
    fn take(&mut self, filling: &mut [Filling], rate: u64) {
        self.rate = rate;
        for part in &self.uses {
            let filling = &mut filling[part.resource as usize];
            let weight = u64::from(part.weight);
            filling.spare -= rate * weight;
            filling.weight -= weight;
            filling.level = UNKNOWN;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rates of flows that are given by cap and (resource, share of the bytes in percent).
    fn rates(limits: &[u64], flows: &[(u64, &[(u32, u32)])]) -> Vec<u64> {
        let mut bandwidth = Bandwidth::new(limits.iter().copied(), flows.len());
        for (number, (cap, uses)) in flows.iter().enumerate() {
            let uses: Vec<Use> = uses
                .iter()
                .map(|&(resource, percent)| Use { resource, weight: WHOLE * percent / 100 })
                .collect();
            bandwidth.set(number, *cap, false, &uses);
        }
        bandwidth.solve(&mut Vec::new(), |_, _| 0);
        (0..flows.len()).map(|number| bandwidth.rate(number)).collect()
    }

    #[test]
    fn equals_share_equally_and_the_modest_keep_what_they_want() {
        let all: &[(u32, u32)] = &[(0, 100)];
        assert_eq!(rates(&[90], &[(100, all), (100, all), (100, all)]), [30, 30, 30]);
        assert_eq!(rates(&[90], &[(10, all), (100, all), (100, all)]), [10, 40, 40]);
        assert_eq!(rates(&[900], &[(10, all), (100, all)]), [10, 100]);
    }

    #[test]
    fn what_a_narrow_link_holds_back_others_may_have() {
        // Flow 0 passes a link of 10 and a node of 100, flow 1 only the node.
        let link: &[(u32, u32)] = &[(0, 100), (1, 100)];
        assert_eq!(rates(&[10, 100], &[(100, link), (100, &[(1, 100)])]), [10, 90]);
    }

    #[test]
    fn pages_on_two_nodes_take_half_of_the_flow_from_each() {
        let both: &[(u32, u32)] = &[(0, 50), (1, 50)];
        assert_eq!(rates(&[100, 100], &[(1000, both)]), [200]);
        assert_eq!(rates(&[100, 100], &[(1000, both), (1000, &[(0, 100)])]), [66, 66]);
    }

    /// One flow with its rate.
    fn solved() -> Bandwidth {
        let mut bandwidth = Bandwidth::new([90], 1);
        bandwidth.set(0, 50, false, &[Use { resource: 0, weight: WHOLE }]);
        bandwidth.solve(&mut Vec::new(), |_, _| 0);
        bandwidth.audit(Time(0));
        bandwidth
    }

    #[test]
    #[should_panic = "use of bandwidth 0, and by its flows"]
    fn the_use_of_a_resource_is_that_of_its_flows() {
        let mut bandwidth = solved();
        bandwidth.flows[0].rate += 1;
        bandwidth.audit(Time(0));
    }

    #[test]
    #[should_panic = "of bandwidth 0 used at Time(0): limit 49"]
    fn no_resource_is_used_beyond_its_limit() {
        let mut bandwidth = solved();
        bandwidth.resources[0].limit = 49;
        bandwidth.audit(Time(0));
    }

    #[test]
    fn flows_that_share_nothing_with_a_change_are_not_concerned() {
        let mut bandwidth = Bandwidth::new([100, 100], 3);
        let on = |resource| [Use { resource, weight: WHOLE }];
        for (flow, resource) in [(0, 0), (1, 0), (2, 1)] {
            bandwidth.set(flow, 80, false, &on(resource));
        }
        bandwidth.solve(&mut Vec::new(), |_, _| 0);
        assert_eq!([0, 1, 2].map(|flow| bandwidth.rate(flow)), [50, 50, 80]);
        let mut concerned = Vec::new();
        bandwidth.set(0, 80, false, &[]);
        bandwidth.solve(&mut concerned, |_, _| 0);
        assert_eq!((concerned, bandwidth.rate(1)), (vec![1], 80));
        assert_eq!(bandwidth.resources[0].load_1024(), 80 * 1024 / 100);
        bandwidth.set(1, 80, false, &on(0));
        let mut concerned = Vec::new();
        bandwidth.solve(&mut concerned, |_, _| 0);
        assert!(concerned.is_empty(), "nothing changed");
    }

    #[test]
    fn one_more_gets_as_much_as_those_that_give_way() {
        let mut bandwidth = Bandwidth::new([90, 1000], 4);
        let uses = [Use { resource: 0, weight: WHOLE }];
        assert_eq!(bandwidth.share_of_another(&uses, 3), 90);
        for (flow, wanted) in [(0, 10), (1, 100), (2, 100)] {
            bandwidth.set(flow, wanted, false, &uses);
        }
        bandwidth.solve(&mut Vec::new(), |_, _| 0);
        assert_eq!(bandwidth.share_of_another(&uses, 3), 80 / 3);
        assert_eq!(bandwidth.share_of_another(&uses, 1), 40, "in the place of another");
        let third = [Use { resource: 0, weight: WHOLE / 2 }, Use { resource: 1, weight: WHOLE }];
        assert_eq!(bandwidth.share_of_another(&third, 3), 32, "half of it passes there");
    }

    /// The rate wanted by a flow that gets a line of 64 bytes in 100 ns, plus a wait by M/D/1 with
    /// a service time of 10 ns.
    fn chase(bandwidth: &Bandwidth, number: usize) -> u64 {
        let wait = |used: &Use| {
            let load = bandwidth.felt_1024(used.resource);
            u64::from(used.weight) * 10 * load / (2 * (FULL - load))
        };
        let waits: u64 = bandwidth.flows[number].uses.iter().map(wait).sum();
        64_000_000 / (100_000 + waits * 1000 / u64::from(WHOLE))
    }

    fn chases(limits: &[u64], flows: &[Vec<Use>]) -> Bandwidth {
        let mut bandwidth = Bandwidth::new(limits.iter().copied(), flows.len());
        for (number, uses) in flows.iter().enumerate() {
            bandwidth.set(number, 640, true, uses);
        }
        bandwidth.solve(&mut Vec::new(), chase);
        bandwidth
    }

    #[test]
    fn those_that_wait_use_what_the_load_of_their_own_rates_lets_them() {
        let all = vec![Use { resource: 0, weight: WHOLE }];
        // Load u for which n * 64 bytes / (100 ns + 10 u / (2 (1 - u))) is u times the limit.
        for (flows, limit, load) in [(1, 64_000, 10), (5, 6400, 489), (8, 3840, 925)] {
            let bandwidth = chases(&[limit], &vec![all.clone(); flows]);
            let found = bandwidth.resources[0].load_1024();
            assert!(found.abs_diff(load) <= CLOSE, "{flows}: {found}");
        }
        // 16 flows want 2.7 times the limit. The load counts as 31/32, and the limit holds.
        let many = chases(&[3840], &vec![all.clone(); 16]);
        assert_eq!(many.rate(0), 3840 / 16);
        // A stream takes what the chases leave.
        let mut bandwidth = chases(&[3840], &[all.clone(), all.clone(), Vec::new()]);
        bandwidth.set(2, 100_000, false, &all);
        bandwidth.solve(&mut Vec::new(), chase);
        assert_eq!(bandwidth.felt_1024(0), MOST_FELT);
        let slow = chase(&bandwidth, 0);
        assert_eq!([0, 2].map(|flow| bandwidth.rate(flow)), [slow, 3840 - 2 * slow]);
    }

    #[test]
    fn a_load_that_hangs_on_another_is_found_after_the_other_came_to_rest() {
        // The second of these flows is limited by resource 2 while that swings between full and too
        // much.
        let flows: [&[(u32, u32)]; 5] = [
            &[(2, 38_439)],
            &[(0, 55_894), (2, 1761)],
            &[(2, 27_788)],
            &[(2, 31_864)],
            &[(2, 45_140)],
        ];
        let uses = |uses: &[(u32, u32)]| {
            uses.iter().map(|&(resource, weight)| Use { resource, weight }).collect()
        };
        let bandwidth = chases(&[1000, 1000, 1044], &flows.map(uses));
        let resource = &bandwidth.resources[0];
        assert!(resource.load_1024().abs_diff(resource.felt) <= CLOSE, "{resource:?}");
    }

    /// Cap, and weight by resource.
    type Wanted = (u64, Vec<(u32, u32)>);

    fn flow() -> impl Strategy<Value = Wanted> {
        let uses = prop::collection::btree_map(0u32..6, 1u32..=WHOLE, 1..5);
        (1u64..100_000, uses.prop_map(|uses| uses.into_iter().collect()))
    }

    proptest! {
        /// The load that waiting flows feel is the resulting load.
        #[test]
        fn loads_felt_are_loads_there_are(
            limits in prop::collection::vec(1000u64..10_000, 4),
            flows in prop::collection::vec(
                prop::collection::btree_map(0u32..4, 1u32..=WHOLE, 1..4), 1..16,
            ),
        ) {
            let uses = |uses: &std::collections::BTreeMap<u32, u32>| {
                uses.iter().map(|(&resource, &weight)| Use { resource, weight }).collect()
            };
            let flows: Vec<Vec<Use>> = flows.iter().map(uses).collect();
            let bandwidth = chases(&limits, &flows);
            for resource in &bandwidth.resources {
                let load = resource.load_1024();
                prop_assert!(load <= FULL);
                prop_assert!(
                    load.min(MOST_FELT).abs_diff(resource.felt) <= 16, "{} of {load}", resource.felt,
                );
            }
        }

        /// No limit is exceeded. Each flow with less than its cap is limited by a full resource
        /// that no flow with a higher rate uses.
        #[test]
        fn limits_hold_and_nothing_is_left_idle_while_someone_wants_it(
            limits in prop::collection::vec(1u64..200_000, 6),
            steps in prop::collection::vec((0usize..8, prop::option::of(flow())), 1..24),
        ) {
            let mut bandwidth = Bandwidth::new(limits.iter().copied(), 8);
            let mut wanted: Vec<Option<Wanted>> = vec![None; 8];
            for (number, flow) in steps {
                let (cap, uses) = flow.clone().unwrap_or_default();
                let uses: Vec<Use> =
                    uses.iter().map(|&(resource, weight)| Use { resource, weight }).collect();
                bandwidth.set(number, cap, false, &uses);
                bandwidth.solve(&mut Vec::new(), |_, _| 0);
                wanted[number] = flow;
            }
            let flows = || wanted.iter().enumerate().filter_map(|(n, f)| Some((n, f.as_ref()?)));
            let used = |resource: u32| -> u64 {
                let of = |uses: &[(u32, u32)]| uses.iter().find(|u| u.0 == resource).map_or(0, |u| u.1);
                flows().map(|(n, (_, uses))| bandwidth.rate(n) * u64::from(of(uses))).sum()
            };
            for (resource, limit) in limits.iter().enumerate() {
                prop_assert!(used(resource as u32) <= limit << 16);
            }
            for (n, (cap, uses)) in flows() {
                let rate = bandwidth.rate(n);
                prop_assert!(rate <= *cap);
                // One more byte per microsecond for all sharers would be too much, because rates
                // are whole numbers.
                let bottleneck = |&&(resource, _): &&(u32, u32)| {
                    let sharers = || flows().filter(|(_, (_, u))| u.iter().any(|u| u.0 == resource));
                    let weight: u64 = sharers()
                        .map(|(_, (_, u))| u64::from(u.iter().find(|u| u.0 == resource).map_or(0, |u| u.1)))
                        .sum();
                    let largest = sharers().map(|(m, _)| bandwidth.rate(m)).max().unwrap_or(0);
                    used(resource) + weight > limits[resource as usize] << 16 && largest <= rate
                };
                prop_assert!(rate == *cap || uses.iter().any(|u| bottleneck(&u)), "flow {n}");
            }
        }
    }
}
