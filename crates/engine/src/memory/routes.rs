//! Which links between packages memory is reached by.

use roost_machine::Machine;

use super::bandwidth::{Use, WHOLE};

/// Distances between packages as firmware tells.
struct Distances {
    /// `None` of one without a node.
    between: Vec<Vec<Option<u32>>>,
    /// The least of two different ones.
    least: Option<u32>,
}

impl Distances {
    /// Those of `machine`: of the nodes of two packages the nearest count.
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

/// The links that the memory of a package (columns) is reached by from the CPUs of another one (rows), and how
/// much of what goes there passes each, of [`WHOLE`]; row after row. Links are numbered like the pairs that they
/// join. `package` has that of each node.
///
/// Two packages have a link of their own, unless others lie between them that are nearer to both: firmware that
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

/// Adds the way that `weight` of what goes from a package to another one takes. It ends, as each part is nearer.
fn add(distances: &Distances, (from, to): (usize, usize), weight: u32, route: &mut Vec<Use>) {
    let Distances { between, least } = distances;
    let all = between.len();
    let whole = between[from][to];
    let nearer = |a: usize, b: usize| between[a][b].filter(|&part| a != b && Some(part) < whole);
    let through = |via: usize| Some(nearer(from, via)? + nearer(via, to)?);
    // Nothing is nearer than the least.
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

    /// The links from one package to another one and their shares.
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
        // The third is memory without CPUs, attached to the first.
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
