//! Bandwidth shared max-min fairly between those that compete for it.
//!
//! A flow is a task's traffic to memory. It wants up to its cap, and each of its bytes takes some
//! share of several resources: all of it passes its core and the link of its LLC, a part of it each
//! node that holds its pages. The allocation is max-min fair by progressive filling (Bertsekas and
//! Gallager, Data Networks, 6.5.2): all rates rise together until a flow reaches its cap or a
//! resource its limit; those flows keep their rate, the others go on. So no limit is exceeded, and
//! no flow below its cap could have more without taking it from one that has no more than it.
//!
//! A change reaches only flows that share a resource with it, directly or through others: the
//! others keep their rates without being looked at twice.

/// Fraction of a flow's bytes that a resource sees, in these parts.
pub(crate) const WHOLE: u32 = 1 << 16;

/// What a flow takes of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub resource: u32,
    /// Of [`WHOLE`], above 0.
    pub weight: u32,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    cap: u64,
    uses: Vec<Use>,
    rate: u64,
}

/// One limited resource.
#[derive(Clone, Debug)]
struct Resource {
    limit: u64,
    /// Rate in use, in [`WHOLE`]ths.
    used: u64,
    /// A flow that uses it has changed.
    touched: bool,
    /// While filling: what is left for flows without a rate, and their weights.
    spare: u64,
    weight: u64,
}

/// Flows, by number, and the resources they share. Rates are bytes per microsecond.
pub(crate) struct Bandwidth {
    resources: Vec<Resource>,
    flows: Vec<Flow>,
    /// Numbers of the flows that use anything.
    active: Vec<u32>,
    /// Buffers of [`Bandwidth::solve`].
    members: Vec<u32>,
    open: Vec<u32>,
    ready: Vec<u32>,
}

impl Bandwidth {
    /// No flow, up to `flows` of them, over resources of these limits.
    pub(crate) fn new(limits: impl IntoIterator<Item = u64>, flows: usize) -> Self {
        let resource = |limit| Resource { limit, used: 0, touched: false, spare: 0, weight: 0 };
        Self {
            resources: limits.into_iter().map(resource).collect(),
            flows: vec![Flow::default(); flows],
            active: Vec::new(),
            members: Vec::new(),
            open: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// Changes what a flow wants; no uses: it ends. Takes effect with the next `solve`.
    pub(crate) fn set(&mut self, number: usize, cap: u64, uses: &[Use]) {
        let flow = &mut self.flows[number];
        if flow.cap == cap && flow.uses == uses {
            return;
        }
        for used in flow.uses.iter().chain(uses) {
            self.resources[used.resource as usize].touched = true;
        }
        match (flow.uses.is_empty(), uses.is_empty()) {
            (true, false) => self.active.push(number as u32),
            (false, true) => self.active.retain(|&other| other != number as u32),
            _ => {}
        }
        flow.cap = cap;
        flow.uses.clear();
        flow.uses.extend_from_slice(uses);
    }

    /// The rate a flow has.
    pub(crate) fn rate(&self, number: usize) -> u64 {
        self.flows[number].rate
    }

    /// How much of a resource is in use, in 1024ths.
    pub(crate) fn load_1024(&self, resource: u32) -> u64 {
        let resource = &self.resources[resource as usize];
        (resource.used >> 6) / resource.limit.max(1)
    }

    /// Shares bandwidth again where something changed; appends the flows concerned to `concerned`.
    pub(crate) fn solve(&mut self, concerned: &mut Vec<usize>) {
        self.find_members();
        for resource in self.resources.iter_mut().filter(|resource| resource.touched) {
            resource.touched = false;
            resource.spare = resource.limit << 16;
            resource.used = 0;
            resource.weight = 0;
        }
        for &member in &self.members {
            for used in &self.flows[member as usize].uses {
                self.resources[used.resource as usize].weight += u64::from(used.weight);
            }
        }
        self.open.clone_from(&self.members);
        while !self.open.is_empty() {
            self.fill();
        }
        concerned.extend(self.members.iter().map(|&member| member as usize));
    }

    /// Flows that use a touched resource, which touches all of their resources.
    fn find_members(&mut self) {
        self.members.clear();
        let mut rest = std::mem::take(&mut self.open);
        rest.clone_from(&self.active);
        loop {
            let before = rest.len();
            rest.retain(|&number| {
                let uses = &self.flows[number as usize].uses;
                if !uses.iter().any(|used| self.resources[used.resource as usize].touched) {
                    return true;
                }
                for used in uses {
                    self.resources[used.resource as usize].touched = true;
                }
                self.members.push(number);
                false
            });
            if rest.len() == before {
                break;
            }
        }
        self.open = rest;
    }

    /// The rate that every flow without one could have if none were at its cap.
    fn level(&self, flow: &Flow) -> u64 {
        let of = |used: &Use| {
            let resource = &self.resources[used.resource as usize];
            resource.spare / resource.weight.max(1)
        };
        flow.uses.iter().map(of).min().unwrap_or(flow.cap)
    }

    /// Gives those their rate that reach their cap below the lowest level of any resource; if none
    /// do, those that use the resource of that level.
    fn fill(&mut self) {
        let level = |number: &u32| self.level(&self.flows[*number as usize]);
        let lowest = self.open.iter().map(level).min().unwrap_or(0);
        let capped = |number: &u32| self.flows[*number as usize].cap <= lowest;
        let any_capped = self.open.iter().any(capped);
        let mut open = std::mem::take(&mut self.open);
        let mut ready = std::mem::take(&mut self.ready);
        open.retain(|number| {
            let flow = &self.flows[*number as usize];
            let now = if any_capped { flow.cap <= lowest } else { self.level(flow) == lowest };
            if now {
                ready.push(*number);
            }
            !now
        });
        for number in ready.drain(..) {
            let flow = &mut self.flows[number as usize];
            flow.rate = flow.cap.min(lowest);
            for used in &flow.uses {
                let taken = flow.rate * u64::from(used.weight);
                let resource = &mut self.resources[used.resource as usize];
                resource.spare -= taken;
                resource.used += taken;
                resource.weight -= u64::from(used.weight);
            }
        }
        (self.open, self.ready) = (open, ready);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Rates of flows given by cap and (resource, share of the bytes in percent).
    fn rates(limits: &[u64], flows: &[(u64, &[(u32, u32)])]) -> Vec<u64> {
        let mut bandwidth = Bandwidth::new(limits.iter().copied(), flows.len());
        for (number, (cap, uses)) in flows.iter().enumerate() {
            let uses: Vec<Use> = uses
                .iter()
                .map(|&(resource, percent)| Use { resource, weight: WHOLE * percent / 100 })
                .collect();
            bandwidth.set(number, *cap, &uses);
        }
        bandwidth.solve(&mut Vec::new());
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

    #[test]
    fn flows_that_share_nothing_with_a_change_are_not_concerned() {
        let mut bandwidth = Bandwidth::new([100, 100], 3);
        let on = |resource| [Use { resource, weight: WHOLE }];
        for (flow, resource) in [(0, 0), (1, 0), (2, 1)] {
            bandwidth.set(flow, 80, &on(resource));
        }
        bandwidth.solve(&mut Vec::new());
        assert_eq!([0, 1, 2].map(|flow| bandwidth.rate(flow)), [50, 50, 80]);
        let mut concerned = Vec::new();
        bandwidth.set(0, 80, &[]);
        bandwidth.solve(&mut concerned);
        assert_eq!((concerned, bandwidth.rate(1)), (vec![1], 80));
        assert_eq!(bandwidth.load_1024(0), 80 * 1024 / 100);
        bandwidth.set(1, 80, &on(0));
        let mut concerned = Vec::new();
        bandwidth.solve(&mut concerned);
        assert!(concerned.is_empty(), "nothing changed");
    }

    /// Cap, and weight by resource.
    type Wanted = (u64, Vec<(u32, u32)>);

    fn flow() -> impl Strategy<Value = Wanted> {
        let uses = prop::collection::btree_map(0u32..6, 1u32..=WHOLE, 1..5);
        (1u64..100_000, uses.prop_map(|uses| uses.into_iter().collect()))
    }

    proptest! {
        /// No limit is exceeded, and whoever has less than its cap is held back by a resource that
        /// is used up and of which nobody with more than it has a part.
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
                bandwidth.set(number, cap, &uses);
                bandwidth.solve(&mut Vec::new());
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
                // A rate of 1 more for all sharers would be too much: rates are whole.
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
