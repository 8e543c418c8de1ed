use super::{super::root::pretend::Pretend, *};

fn read(machine: &Pretend, pairs: &[(&str, &str)]) -> Devices {
    let env = Environment::from_pairs(pairs.iter().copied());
    Devices::read(&machine.root(), &env).unwrap()
}

fn information(name: &str, uuid: &str, minor: usize) -> String {
    format!(
        "Model: \t\t {name}\nIRQ:   \t\t 99\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\n\
         Device Minor: \t {minor}\n"
    )
}

/// Two NVIDIA devices; the one with the lower address has the higher number.
fn nvidia() -> Pretend {
    Pretend::with(&[
        ("dev/nvidia0", ""),
        ("dev/nvidia1", ""),
        ("dev/nvidiactl", ""),
        ("dev/nvidia-uvm", ""),
        (
            "proc/driver/nvidia/gpus/0000:19:00.0/information",
            &information("NVIDIA H200", "GPU-1111", 1),
        ),
        (
            "proc/driver/nvidia/gpus/0000:3b:00.0/information",
            &information("Tesla T4", "GPU-????????", 0),
        ),
    ])
}

#[test]
fn a_machine_without_devices_has_none() {
    let devices = read(&Pretend::with(&[("dev/null", "")]), &[]);
    if cfg!(target_os = "linux") {
        assert_eq!(devices, Devices::default());
        assert_eq!(devices.bf16(), Bf16::Unknown);
        assert_eq!(devices.visible_variable().name(), "CUDA_VISIBLE_DEVICES");
    }
}

#[test]
fn nvidia_devices_are_described_in_the_order_of_their_addresses() {
    let devices = read(&nvidia(), &[]);
    assert_eq!(devices.kind, Some(Kind::Cuda));
    let names: Vec<_> = devices
        .usable
        .iter()
        .map(|device| device.name.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["NVIDIA H200", "Tesla T4"]);
    assert_eq!(devices.usable[0].uuid.as_deref(), Some("GPU-1111"));
    assert_eq!(devices.usable[1].uuid, None);
    assert_eq!(devices.usable[1].pci.as_deref(), Some("0000:3b:00.0"));
    assert_eq!(devices.bf16(), Bf16::Emulated, "the weakest counts");
}

#[test]
fn a_variable_hides_devices_but_they_stay_present() {
    let devices = read(&nvidia(), &[("CUDA_VISIBLE_DEVICES", "0")]);
    assert_eq!((devices.count(), devices.present.len()), (1, 2));
    assert_eq!(devices.bf16(), Bf16::Native);
    assert_eq!(devices.visible.unwrap().variable, "CUDA_VISIBLE_DEVICES");
    let hidden = read(&nvidia(), &[("CUDA_VISIBLE_DEVICES", "")]);
    assert_eq!((hidden.count(), hidden.kind), (0, Some(Kind::Cuda)));
}

#[test]
fn a_container_has_the_devices_whose_files_it_has() {
    let machine = Pretend::with(&[
        ("dev/nvidia1", ""),
        ("dev/nvidia7", ""),
        (
            "proc/driver/nvidia/gpus/0000:19:00.0/information",
            &information("NVIDIA H200", "GPU-1", 1),
        ),
        (
            "proc/driver/nvidia/gpus/0000:1a:00.0/information",
            &information("NVIDIA H200", "GPU-2", 2),
        ),
    ]);
    let devices = read(&machine, &[]);
    let uuids: Vec<_> = devices
        .usable
        .iter()
        .map(|device| device.uuid.as_deref())
        .collect();
    assert_eq!(
        uuids,
        [Some("GPU-1"), None],
        "one of them without description"
    );
}

#[test]
fn systems_of_nvidia_without_device_files_have_one_device() {
    let windows = Pretend::with(&[("dev/dxg", ""), ("usr/lib/wsl/lib/libcuda.so.1", "")]);
    assert_eq!(read(&windows, &[]).count(), 1);
    let board = Pretend::with(&[
        ("dev/nvhost-gpu", ""),
        ("proc/device-tree/model", "NVIDIA Jetson AGX Orin\0"),
    ]);
    let devices = read(&board, &[]);
    assert_eq!(
        devices.usable[0].name.as_deref(),
        Some("NVIDIA Jetson AGX Orin")
    );
}

#[test]
fn amd_devices_are_nodes_with_compute_units() {
    let nodes = "sys/class/kfd/kfd/topology/nodes";
    let gpu = |minor, id| {
        format!(
            "cpu_cores_count 0\nsimd_count 1216\ngfx_target_version 90402\ndomain 0\n\
             location_id 6400\ndrm_render_minor {minor}\nunique_id {id}\n"
        )
    };
    let machine = Pretend::with(&[
        ("dev/kfd", ""),
        ("dev/dri/renderD128", ""),
        ("dev/dri/renderD130", ""),
        (
            &format!("{nodes}/0/properties"),
            "cpu_cores_count 96\nsimd_count 0\n",
        ),
        (&format!("{nodes}/1/properties"), &gpu(128, 255)),
        (&format!("{nodes}/2/properties"), &gpu(129, 1)),
        (&format!("{nodes}/10/properties"), &gpu(130, 0)),
        (
            "sys/class/drm/renderD128/device/product_name",
            "AMD Instinct MI300X\n",
        ),
    ]);
    let devices = read(&machine, &[]);
    assert_eq!(devices.kind.unwrap().torch_name(), "CUDA");
    let first = Device {
        name: Some("AMD Instinct MI300X".to_owned()),
        uuid: Some("GPU-00000000000000ff".to_owned()),
        pci: Some("0000:19:00.0".to_owned()),
        bf16: Bf16::Native,
    };
    assert_eq!(devices.usable[0], first);
    assert_eq!(devices.usable[1].name.as_deref(), Some("gfx942"));
    assert_eq!(devices.count(), 2, "the file of one is not here");
}

#[test]
fn other_makers_are_known_by_their_device_files() {
    let kind_of = |files: &[&str]| {
        let files: Vec<_> = files.iter().map(|path| (*path, "")).collect();
        let devices = read(&Pretend::with(&files), &[]);
        (devices.kind, devices.count())
    };
    for (files, kind, count) in [
        (
            vec!["dev/cambricon_dev0", "dev/cambricon_ctl"],
            Kind::Mlu,
            1,
        ),
        (vec!["dev/tcaicard0", "dev/tcaicard1"], Kind::Sdaa, 2),
        (vec!["dev/mtgpu.0", "dev/mtgpu.1"], Kind::Musa, 2),
        (
            vec!["dev/davinci0", "dev/davinci3", "dev/davinci_manager"],
            Kind::Npu,
            2,
        ),
        (vec!["dev/hl0", "dev/hl1", "dev/hl_controlD0"], Kind::Hpu, 2),
        (vec!["dev/neuron0"], Kind::Neuron, 1),
    ] {
        assert_eq!(kind_of(&files), (Some(kind), count), "{files:?}");
    }
}

#[test]
fn intel_cards_are_told_from_graphics_inside_the_processor() {
    let inside = [
        ("dev/dri/renderD128", ""),
        ("sys/class/drm/renderD128/device/vendor", "0x8086\n"),
        (
            "sys/class/drm/renderD128/device/uevent",
            "DRIVER=i915\nPCI_SLOT_NAME=0000:00:02.0\n",
        ),
    ];
    let machine = Pretend::with(&inside);
    assert_eq!(read(&machine, &[]).count(), 0);
    machine.add("dev/dri/renderD129", "");
    machine.add("sys/class/drm/renderD129/device/vendor", "0x8086\n");
    machine.add(
        "sys/class/drm/renderD129/device/uevent",
        "DRIVER=xe\nPCI_SLOT_NAME=0000:03:00.0\n",
    );
    let devices = read(&machine, &[]);
    assert_eq!((devices.kind, devices.count()), (Some(Kind::Xpu), 1));
}

#[test]
fn gaudi_shares_a_folder_with_other_makers() {
    let machine = Pretend::with(&[
        ("dev/accel/accel0", ""),
        ("dev/accel/accel1", ""),
        ("dev/accel/accel_controlD1", ""),
        ("sys/class/accel/accel0/device/vendor", "0x8086\n"),
        ("sys/class/accel/accel1/device/vendor", "0x1da3\n"),
    ]);
    let devices = read(&machine, &[]);
    assert_eq!((devices.kind, devices.count()), (Some(Kind::Hpu), 1));
}

#[test]
fn cores_of_neuron_devices_are_devices() {
    let machine = Pretend::with(&[
        ("dev/neuron0", ""),
        ("dev/neuron1", ""),
        (
            "sys/devices/virtual/neuron_device/neuron0/core_count",
            "2\n",
        ),
        (
            "sys/devices/virtual/neuron_device/neuron1/neuron_core0/info",
            "",
        ),
        (
            "sys/devices/virtual/neuron_device/neuron1/neuron_core1/info",
            "",
        ),
    ]);
    assert_eq!(read(&machine, &[]).count(), 4);
    let hidden = read(&machine, &[("NEURON_RT_VISIBLE_CORES", "0-2")]);
    assert_eq!(hidden.count(), 3);
}
