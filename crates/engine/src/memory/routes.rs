//! The links between packages through which memory is reached.

use roost_machine::Machine;

use super::bandwidth::{Use, WHOLE};

/// Distances between packages, as the firmware reports them.
struct Distances {
    /// `None` for a package without a node.
    between: Vec<Vec<Option<u32>>>,
    /// The smallest distance between two different packages.
    least: Option<u32>,
}

impl Distances {
    /// The distances of `machine`. Of the nodes of two packages the nearest pair counts.
    fn of(machine: &Machine, package: &[usize], packages: usize) -> Self {
        let mut between: Vec<Vec<Option<u32>>> = vec![vec![None; packages]; packages];
        for (from, &a) in package.iter().enumerate() {
            for (to, &b) in package.iter().enumerate() {
                let (known, found) = (between[a][b], machine.distance(from, to));
                between[a][b] = Some(known.map_or(found, |known| known.min(found)));
            }
        }
        Self::new(between)
    }

    fn new(between: Vec<Vec<Option<u32>>>) -> Self {
        let rows = between.iter().enumerate();
        let others = rows.flat_map(|(from, row)| {
            row.iter().enumerate().filter_map(move |(to, &there)| there.filter(|_| to != from))
        });
        Self { least: others.min(), between }
    }
}

/// The links through which the CPUs of a package (rows) reach the memory of another one (columns),
/// row after row. Each link has the share of the traffic that passes it, in units of [`WHOLE`].
/// Links are numbered like the pairs that they join. `package` has the package of each node.
///
/// Two packages have a direct link, unless other packages lie between them, nearer to both:
/// firmware that reports three or more distances counts hops. Then the traffic goes through those
/// packages, in equal parts.
/// tells three distances or more counts hops. Then it goes through those, evenly.
pub(super) fn between(machine: &Machine, package: &[usize], packages: usize) -> Vec<Vec<Use>> {
    let distances = Distances::of(machine, package, packages);
    let mut all = Vec::new();
    for from in 0..packages {
        for to in 0..packages {
            let mut route = Vec::new();
            if from != to {
                add(&distances, (from, to), WHOLE, &mut route);
            }
            all.push(route);
        }
    }
    all
}

/// Adds the way of `weight` of the traffic from one package to another. The recursion ends because
/// each part is nearer.
fn add(distances: &Distances, (from, to): (usize, usize), weight: u32, route: &mut Vec<Use>) {
    let Distances { between, least } = distances;
    let all = between.len();
    let whole = between[from][to];
    let nearer = |a: usize, b: usize| between[a][b].filter(|&part| a != b && Some(part) < whole);
    let through = |via: usize| Some(nearer(from, via)? + nearer(via, to)?);
    // No distance is smaller than the smallest.
    let stops = if whole > *least { 0..all } else { 0..0 };
    let Some(shortest) = stops.filter_map(through).min() else {
        route.push(Use { resource: (from * all + to) as u32, weight });
        return;
    };
    let stops: Vec<usize> = (0..all).filter(|&via| through(via) == Some(shortest)).collect();
    for &via in &stops {
        let part = weight / stops.len() as u32;
        add(distances, (from, via), part, route);
        add(distances, (via, to), part, route);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The links from one package to another, with their shares.
    fn route(distances: &[&[u32]], from: usize, to: usize) -> Vec<((usize, usize), u32)> {
        let known = |row: &&[u32]| row.iter().copied().map(Some).collect();
        let distances = Distances::new(distances.iter().map(known).collect());
        let mut route = Vec::new();
        add(&distances, (from, to), WHOLE, &mut route);
        let all = distances.between.len();
        let named = |used: &Use| {
            let link = used.resource as usize;
            ((link / all, link % all), used.weight)
        };
        route.iter().map(named).collect()
    }

    #[test]
    fn in_a_ring_of_four_the_opposite_one_is_reached_both_ways_round() {
        let ring: &[&[u32]] =
            &[&[10, 11, 11, 12], &[11, 10, 12, 11], &[11, 12, 10, 11], &[12, 11, 11, 10]];
        assert_eq!(route(ring, 0, 1), [((0, 1), WHOLE)]);
        let half = WHOLE / 2;
        let around = [((0, 1), half), ((1, 3), half), ((0, 2), half), ((2, 3), half)];
        assert_eq!(route(ring, 0, 3), around);
    }

    #[test]
    fn where_all_are_as_far_each_has_its_own() {
        let mesh: &[&[u32]] = &[&[10, 20, 20], &[20, 10, 20], &[20, 20, 10]];
        assert_eq!(route(mesh, 2, 0), [((2, 0), WHOLE)]);
    }

    #[test]
    fn memory_behind_another_package_is_reached_through_it() {
        // The third package is memory without CPUs, attached to the first one.
        let attached: &[&[u32]] = &[&[10, 21, 14], &[21, 10, 24], &[14, 24, 10]];
        assert_eq!(route(attached, 0, 2), [((0, 2), WHOLE)]);
        assert_eq!(route(attached, 1, 2), [((1, 0), WHOLE), ((0, 2), WHOLE)]);
    }

    #[test]
    fn three_hops_are_three_links() {
        let line: &[&[u32]] =
            &[&[10, 20, 30, 40], &[20, 10, 20, 30], &[30, 20, 10, 20], &[40, 30, 20, 10]];
        let mut links: Vec<_> = route(line, 0, 3).into_iter().map(|(link, _)| link).collect();
        links.sort_unstable();
        links.dedup();
        assert_eq!(links, [(0, 1), (1, 2), (2, 3)]);
    }
}
