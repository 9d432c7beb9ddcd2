//! The iterator over cgroups (`bpf_iter_css_new()`), in the orders of the kernel's `css_next_descendant_pre()` and
//! `css_next_descendant_post()`. Children come in the order in which they were created.

use crate::groups::Group;
use crate::interpret::Stop;
use crate::kernel::Call;

/// Orders (`enum bpf_cgroup_iter_order`).
const DESCENDANTS_PRE: u32 = 2;
const DESCENDANTS_POST: u32 = 3;
const ANCESTORS_UP: u32 = 4;

const EINVAL: u64 = -22i64 as u64;

/// An iterator stores where it began, the last one that it returned, and its order.
pub(crate) fn begin(call: &mut Call, [iterator, start, order, ..]: [u64; 5]) -> Result<u64, Stop> {
    let order = order as u32;
    let known = [DESCENDANTS_PRE, DESCENDANTS_POST, ANCESTORS_UP].contains(&order);
    let memory = &mut call.kernel.memory;
    memory.write(iterator, 8, if known { start } else { 0 })?;
    memory.write(iterator.wrapping_add(8), 8, 0)?;
    memory.write(iterator.wrapping_add(16), 4, order.into())?;
    Ok(if known { 0 } else { EINVAL })
}

/// The next `struct cgroup_subsys_state`. 0 at the end.
pub(crate) fn next(call: &mut Call, [iterator, ..]: [u64; 5]) -> Result<u64, Stop> {
    let kernel = &mut *call.kernel;
    let (start, last) =
        (kernel.memory.read(iterator, 8)?, kernel.memory.read(iterator.wrapping_add(8), 8)?);
    let order = kernel.memory.read(iterator.wrapping_add(16), 4)? as u32;
    let groups = kernel.groups.all();
    let number = |state: u64| groups.iter().position(|group| group.state == state);
    let Some(start) = number(start) else { return Ok(0) };
    let after = after(groups, order, start, number(last));
    let state = after.map_or(0, |next| groups[next].state);
    kernel.memory.write(iterator.wrapping_add(8), 8, state)?;
    Ok(state)
}

/// The group that follows `last`, in an order that begins at `start`.
fn after(groups: &[Group], order: u32, start: usize, last: Option<usize>) -> Option<usize> {
    let child = |of: usize, from: usize| {
        (from..groups.len()).find(|&child| groups[child].parent == Some(of))
    };
    let deepest = |of: usize| {
        let mut leaf = of;
        while let Some(first) = child(leaf, 0) {
            leaf = first;
        }
        leaf
    };
    let Some(last) = last else {
        return Some(if order == DESCENDANTS_POST { deepest(start) } else { start });
    };
    let sibling = |of: usize| child(groups[of].parent?, of + 1);
    match order {
        ANCESTORS_UP => groups[last].parent,
        DESCENDANTS_POST if last == start => None,
        DESCENDANTS_POST => sibling(last).map(deepest).or(groups[last].parent),
        _ => child(last, 0).or_else(|| {
            let mut up = last;
            while up != start {
                if let Some(next) = sibling(up) {
                    return Some(next);
                }
                up = groups[up].parent?;
            }
            None
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the kernel's functions lead in this tree, from the root and from `a`:
    ///
    /// ```text
    /// root 0 ─┬─ a 1 ─┬─ c 3
    ///         │       └─ d 4
    ///         └─ b 2 ─── e 5
    /// ```
    #[test]
    fn cgroups_are_visited_in_the_kernels_orders() {
        let mut groups = [Group::default(); 6];
        for (group, parent) in groups.iter_mut().skip(1).zip([0, 0, 1, 1, 2]) {
            group.parent = Some(parent);
        }
        let visited = |order, start| {
            let mut visited = Vec::new();
            while let Some(next) = after(&groups, order, start, visited.last().copied()) {
                visited.push(next);
            }
            visited
        };
        assert_eq!(visited(DESCENDANTS_PRE, 0), [0, 1, 3, 4, 2, 5]);
        assert_eq!(visited(DESCENDANTS_POST, 0), [3, 4, 1, 5, 2, 0]);
        assert_eq!(visited(DESCENDANTS_PRE, 1), [1, 3, 4]);
        assert_eq!(visited(DESCENDANTS_POST, 1), [3, 4, 1]);
        assert_eq!(visited(ANCESTORS_UP, 4), [4, 1, 0]);
        assert_eq!(visited(DESCENDANTS_POST, 5), [5]);
    }
}
