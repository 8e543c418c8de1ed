//! Which CPUs are close to which memory and devices, and where processes are placed.

use super::{CpuList, Devices, Root, cores::siblings};

/// The memory nodes of this machine, as far as this process may use their CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Numa {
    /// All nodes with at least one CPU for us.
    pub(crate) nodes: Vec<Node>,
    /// For each usable device, in order, the number of its node; `None` if it is not known.
    pub(crate) devices: Vec<Option<usize>>,
}

/// A memory node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its number.
    pub(crate) id: usize,
    /// CPUs close to it, grouped by physical core.
    cores: Vec<CpuList>,
}

impl Node {
    /// CPUs close to it.
    pub(crate) fn cpus(&self) -> CpuList {
        CpuList::union(&self.cores)
    }
}

impl Numa {
    /// Reads the nodes of this machine. `allowed` are the CPUs that this process may use.
    pub(crate) fn read(root: &Root, allowed: &CpuList, devices: &Devices) -> Self {
        let folder = "/sys/devices/system/node";
        let nodes = root.numbers(folder, "node").into_iter().filter_map(|id| {
            let list = root.text(format!("{folder}/node{id}/cpulist"))?;
            node(root, id, &CpuList::parse(&list)?.common(allowed))
        });
        let mut nodes: Vec<_> = nodes.collect();
        if nodes.is_empty() {
            nodes.extend(node(root, 0, allowed));
        }
        let devices = devices.usable.iter().map(|device| {
            let pci = device.pci.as_deref()?;
            let node = root.text(format!("/sys/bus/pci/devices/{pci}/numa_node"))?;
            // -1 stands for "not known".
            node.parse().ok()
        });
        Self {
            devices: devices.collect(),
            nodes,
        }
    }

    /// The CPUs of each process on this machine; empty lists if the CPUs are not known.
    ///
    /// - With devices, local rank i uses device i (counted round), and gets all CPUs of the node
    ///   next to it: the device waits for memory more than for cores. Where the node is not known,
    ///   the process may use every CPU.
    /// - Without devices, the nodes are dealt out evenly. Processes on one node get whole physical
    ///   cores of their own, as long as there are enough of them.
    pub(crate) fn placement(&self, processes: usize) -> Vec<CpuList> {
        (0..processes)
            .map(|rank| match self.devices.len() {
                0 => self.share(rank, processes),
                count => self.next_to_device(rank % count),
            })
            .collect()
    }

    fn next_to_device(&self, device: usize) -> CpuList {
        let id = self.devices[device];
        let node = self.nodes.iter().find(|node| Some(node.id) == id);
        node.map_or_else(|| self.all_cpus(), Node::cpus)
    }

    fn all_cpus(&self) -> CpuList {
        let lists: Vec<_> = self.nodes.iter().map(Node::cpus).collect();
        CpuList::union(&lists)
    }

    /// An even share of the nodes, or of the cores of one node.
    fn share(&self, rank: usize, processes: usize) -> CpuList {
        let nodes = self.nodes.len();
        if nodes == 0 {
            return CpuList::default();
        }
        if processes <= nodes {
            let lists: Vec<_> = self.nodes[part(rank, processes, nodes)]
                .iter()
                .map(Node::cpus)
                .collect();
            return CpuList::union(&lists);
        }
        let index = node_of(rank, processes, nodes);
        let on_node = |rank: &usize| node_of(*rank, processes, nodes) == index;
        let neighbours = (0..processes).filter(on_node).count();
        let position = (0..rank).filter(on_node).count();
        let cores = &self.nodes[index].cores;
        match neighbours <= cores.len() {
            true => CpuList::union(&cores[part(position, neighbours, cores.len())]),
            false => cores[position % cores.len()].clone(),
        }
    }
}

/// The node of a process if there are more processes than nodes.
fn node_of(rank: usize, processes: usize, nodes: usize) -> usize {
    rank * nodes / processes
}

/// The part of `total` things that number `index` of `count` takers gets. Parts differ by one at
/// most.
fn part(index: usize, count: usize, total: usize) -> std::ops::Range<usize> {
    index * total / count..(index + 1) * total / count
}

/// The node with its CPUs grouped by core; `None` without CPUs.
fn node(root: &Root, id: usize, cpus: &CpuList) -> Option<Node> {
    let mut cores: Vec<CpuList> = Vec::new();
    for cpu in cpus.iter() {
        let core = siblings(root, cpu).unwrap_or_default().common(cpus);
        let core = if core.is_empty() {
            CpuList::from_iter([cpu])
        } else {
            core
        };
        if !cores.contains(&core) {
            cores.push(core);
        }
    }
    (!cores.is_empty()).then_some(Node { id, cores })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Device, root::pretend::Pretend},
        *,
    };

    /// Two nodes with two physical cores of two CPUs each: 0-1,4-5 and 2-3,6-7.
    fn machine() -> Pretend {
        let machine = Pretend::with(&[
            ("sys/devices/system/node/node0/cpulist", "0-1,4-5\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3,6-7\n"),
            // Memory without CPUs.
            ("sys/devices/system/node/node2/cpulist", "\n"),
        ]);
        for cpu in 0..8 {
            machine.add(
                &format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"),
                &format!("{},{}", cpu % 4, cpu % 4 + 4),
            );
        }
        machine
    }

    fn placement(machine: &Pretend, allowed: &str, devices: &Devices, count: usize) -> Vec<String> {
        let allowed = CpuList::parse(allowed).unwrap();
        let numa = Numa::read(&machine.root(), &allowed, devices);
        let lists = numa.placement(count);
        lists.iter().map(CpuList::to_string).collect()
    }

    fn devices(addresses: &[&str]) -> Devices {
        let usable = addresses.iter().map(|pci| Device {
            pci: Some((*pci).to_owned()),
            ..Device::default()
        });
        Devices {
            usable: usable.collect(),
            ..Devices::default()
        }
    }

    #[test]
    fn processes_without_devices_share_nodes_and_whole_cores() {
        let place = |count| placement(&machine(), "0-7", &Devices::default(), count);
        assert_eq!(place(1), ["0-7"]);
        assert_eq!(place(2), ["0-1,4-5", "2-3,6-7"]);
        assert_eq!(place(3), ["0,4", "1,5", "2-3,6-7"]);
        assert_eq!(place(4), ["0,4", "1,5", "2,6", "3,7"]);
        assert_eq!(place(6), ["0,4", "1,5", "0,4", "2,6", "3,7", "2,6"]);
    }

    #[test]
    fn processes_sit_next_to_their_device() {
        let machine = machine();
        machine.add("sys/bus/pci/devices/0000:19:00.0/numa_node", "1\n");
        machine.add("sys/bus/pci/devices/0000:3b:00.0/numa_node", "0\n");
        machine.add("sys/bus/pci/devices/0000:4c:00.0/numa_node", "-1\n");
        let two = devices(&["0000:19:00.0", "0000:3b:00.0"]);
        assert_eq!(
            placement(&machine, "0-7", &two, 3),
            ["2-3,6-7", "0-1,4-5", "2-3,6-7"]
        );
        let unknown = devices(&["0000:4c:00.0", "0000:ff:00.0"]);
        assert_eq!(placement(&machine, "0-7", &unknown, 2), ["0-7", "0-7"]);
    }

    #[test]
    fn only_allowed_cpus_are_dealt_out() {
        let place = |allowed, count| placement(&machine(), allowed, &Devices::default(), count);
        assert_eq!(place("0,4", 2), ["0,4", "0,4"]);
        assert_eq!(place("0-3", 4), ["0", "1", "2", "3"]);
        assert_eq!(place("", 2), ["", ""]);
    }

    #[test]
    fn a_system_without_nodes_is_one_node() {
        let plain = Pretend::with(&[]);
        assert_eq!(
            placement(&plain, "0-3", &Devices::default(), 2),
            ["0-1", "2-3"]
        );
    }

    #[test]
    fn every_cpu_is_dealt_out_and_no_list_is_empty() {
        for count in 1..20 {
            let lists = placement(&machine(), "0-7", &Devices::default(), count);
            let lists: Vec<_> = lists
                .iter()
                .map(|list| CpuList::parse(list).unwrap())
                .collect();
            assert!(lists.iter().all(|list| !list.is_empty()), "{count}");
            assert_eq!(CpuList::union(&lists).len(), 8, "{count}");
        }
    }
}
