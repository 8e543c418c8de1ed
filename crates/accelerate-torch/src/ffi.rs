//! The entry points of the shim, as `cxx/` defines them.
//!
//! Nothing here is public. Every function is called through a module beside this one,
//! which upholds what its pointers need: tensors are alive for the call, lengths
//! belong to their pointers, and each `*mut T` handed out is given back to its `_free`.

use std::ffi::{c_char, c_int, c_void};

/// `at::Tensor`, as `tch` holds it.
pub(crate) type CTensor = c_void;

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub(crate) struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

opaque!(
    /// Why a call failed.
    Status,
    /// Why a closure of ours failed, on its way to C++.
    Failure,
    Generator,
    Store,
    Group,
    Work,
    Future,
    Reducer,
    GradBucket,
    /// `AutogradContext`.
    Context,
    /// A `variable_list` that a closure fills.
    TensorList,
    Profile,
    Range,
);

pub(crate) type Sink = unsafe extern "C" fn(*mut c_void, *const c_char, usize);
pub(crate) type Push = unsafe extern "C" fn(*mut c_void, *mut CTensor);
pub(crate) type Drop = unsafe extern "C" fn(*mut c_void);

pub(crate) type GradHookCall =
    unsafe extern "C" fn(*mut c_void, *const CTensor, *mut *mut CTensor) -> *mut Failure;
pub(crate) type PostAccumulateCall =
    unsafe extern "C" fn(*mut c_void, *const CTensor) -> *mut Failure;
pub(crate) type FunctionCall = unsafe extern "C" fn(
    *mut c_void,
    *mut Context,
    *const *const CTensor,
    usize,
    *mut TensorList,
) -> *mut Failure;
pub(crate) type BucketHookCall =
    unsafe extern "C" fn(*mut c_void, *mut GradBucket, *mut *mut Future) -> *mut Failure;
pub(crate) type ThenCall =
    unsafe extern "C" fn(*mut c_void, *const CTensor, *mut *mut CTensor) -> *mut Failure;

#[repr(C)]
#[derive(Default)]
pub(crate) struct DeterminismState {
    pub algorithms: i32,
    pub fill_uninitialized: bool,
    pub cudnn_deterministic: bool,
    pub cudnn_benchmark: bool,
    pub onednn_deterministic: bool,
}

#[repr(C)]
pub(crate) struct AutocastState {
    pub enabled: bool,
    pub kind: i32,
    pub cache: bool,
}

#[repr(C)]
pub(crate) struct AdamStep {
    pub lr: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub weight_decay: f64,
    pub eps: f64,
    pub amsgrad: bool,
    pub maximize: bool,
    pub decoupled: bool,
}

#[repr(C)]
pub(crate) struct SgdStep {
    pub lr: f64,
    pub momentum: f64,
    pub dampening: f64,
    pub weight_decay: f64,
    pub nesterov: bool,
    pub maximize: bool,
    pub first_step: bool,
}

#[repr(C)]
pub(crate) struct ReducerOptions {
    pub bucket_bytes: i64,
    pub first_bucket_bytes: i64,
    pub find_unused: bool,
    pub bucket_view: bool,
    pub static_graph: bool,
}

#[repr(C)]
pub(crate) struct ProfilerOptions {
    pub cpu: bool,
    pub cuda: bool,
    pub shapes: bool,
    pub memory: bool,
    pub stack: bool,
    pub flops: bool,
    pub modules: bool,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct ProfileEvent {
    pub start_ns: u64,
    pub duration_ns: u64,
    pub thread: u64,
    pub flops: u64,
    pub correlation: u64,
    pub linked_correlation: u64,
    pub bytes: i64,
    pub device_type: i32,
    pub device_index: i32,
    pub user_scope: bool,
    pub is_async: bool,
    pub hidden: bool,
}

unsafe extern "C" {
    // guard.cpp
    pub(crate) fn acc_status_kind(status: *const Status) -> i32;
    pub(crate) fn acc_status_message(status: *const Status, sink: Sink, target: *mut c_void);
    pub(crate) fn acc_status_take_payload(status: *mut Status) -> *mut c_void;
    pub(crate) fn acc_status_free(status: *mut Status);
    pub(crate) fn acc_failure_new(
        text: *const c_char,
        length: usize,
        payload: *mut c_void,
        drop: Drop,
    ) -> *mut Failure;

    // tensor.cpp: storage
    pub(crate) fn acc_tensor_identity(tensor: *const CTensor) -> usize;
    pub(crate) fn acc_storage_identity(tensor: *const CTensor, out: *mut usize) -> *mut Status;
    pub(crate) fn acc_storage_bytes(tensor: *const CTensor, out: *mut usize) -> *mut Status;
    pub(crate) fn acc_storage_reallocate(tensor: *const CTensor, bytes: usize) -> *mut Status;
    pub(crate) fn acc_storage_swap(left: *const CTensor, right: *const CTensor) -> *mut Status;
    pub(crate) fn acc_set_data(parameter: *const CTensor, view: *const CTensor) -> *mut Status;
    pub(crate) fn acc_replace_data(tensor: *const CTensor, view: *const CTensor) -> *mut Status;
    pub(crate) fn acc_storage_use_count(tensor: *const CTensor, out: *mut usize) -> *mut Status;
    pub(crate) fn acc_part_of_bytes(
        base: *const CTensor,
        offset: usize,
        kind: i32,
        sizes: *const i64,
        dimensions: usize,
        out: *mut *mut CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_from_owner(
        data: *const c_void,
        owner: *mut c_void,
        drop: Drop,
        kind: i32,
        sizes: *const i64,
        dimensions: usize,
        out: *mut *mut CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_contiguous_bytes(
        tensor: *const CTensor,
        data: *mut *const c_void,
        length: *mut usize,
    ) -> *mut Status;

    // tensor.cpp: devices and types
    pub(crate) fn acc_empty(
        sizes: *const i64,
        dimensions: usize,
        kind: i32,
        device_type: i32,
        device_index: i32,
        out: *mut *mut CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_to_meta(tensor: *const CTensor, out: *mut *mut CTensor) -> *mut Status;
    pub(crate) fn acc_device(
        tensor: *const CTensor,
        device_type: *mut i32,
        index: *mut i32,
    ) -> *mut Status;
    pub(crate) fn acc_kind_name(
        tensor: *const CTensor,
        sink: Sink,
        target: *mut c_void,
    ) -> *mut Status;
    pub(crate) fn acc_device_count(device_type: i32) -> i32;
    pub(crate) fn acc_set_current_device(device_type: i32, index: i32) -> *mut Status;
    pub(crate) fn acc_synchronize(device_type: i32, index: i32) -> *mut Status;
    pub(crate) fn acc_accelerator_memory(
        device_type: i32,
        device_index: i32,
        free: *mut u64,
        total: *mut u64,
    ) -> *mut Status;
    pub(crate) fn acc_stream_from_pool(
        device_type: i32,
        device_index: i32,
        id: *mut i64,
    ) -> *mut Status;
    pub(crate) fn acc_exchange_stream(
        device_type: i32,
        device_index: i32,
        id: i64,
        before: *mut i64,
    ) -> *mut Status;
    pub(crate) fn acc_synchronize_stream(
        device_type: i32,
        device_index: i32,
        id: i64,
    ) -> *mut Status;
    pub(crate) fn acc_used_by_current_stream(tensor: *const CTensor) -> *mut Status;
    pub(crate) fn acc_keep_freed_memory(bytes: usize) -> bool;
    pub(crate) fn acc_give_back_freed_memory() -> bool;

    // tensor.cpp: gradients of leaves
    pub(crate) fn acc_grad(tensor: *const CTensor, out: *mut *mut CTensor) -> *mut Status;
    pub(crate) fn acc_set_grad(tensor: *const CTensor, grad: *const CTensor) -> *mut Status;

    // tensor.cpp: random generators
    pub(crate) fn acc_generator_new(seed: u64, out: *mut *mut Generator) -> *mut Status;
    pub(crate) fn acc_generator_default(
        device_type: i32,
        device_index: i32,
        out: *mut *mut Generator,
    ) -> *mut Status;
    pub(crate) fn acc_generator_free(generator: *mut Generator);
    pub(crate) fn acc_generator_manual_seed(generator: *mut Generator, seed: u64) -> *mut Status;
    pub(crate) fn acc_generator_initial_seed(
        generator: *mut Generator,
        out: *mut u64,
    ) -> *mut Status;
    pub(crate) fn acc_generator_state(
        generator: *mut Generator,
        out: *mut *mut CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_generator_set_state(
        generator: *mut Generator,
        state: *const CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_generator_randperm(
        generator: *mut Generator,
        n: i64,
        out: *mut *mut CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_generator_random(generator: *mut Generator, out: *mut i64) -> *mut Status;
    pub(crate) fn acc_generator_randint(
        generator: *mut Generator,
        high: i64,
        n: i64,
        out: *mut *mut CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_generator_multinomial(
        generator: *mut Generator,
        weights: *const CTensor,
        n: i64,
        replacement: bool,
        out: *mut *mut CTensor,
    ) -> *mut Status;

    // tensor.cpp: autocast
    pub(crate) fn acc_determinism(now: *mut DeterminismState) -> *mut Status;
    pub(crate) fn acc_set_determinism(wanted: *const DeterminismState) -> *mut Status;
    pub(crate) fn acc_autocast_enter(
        device_type: i32,
        enabled: bool,
        kind: i32,
        cache: bool,
        before: *mut AutocastState,
    ) -> *mut Status;
    pub(crate) fn acc_autocast_leave(device_type: i32, before: *const AutocastState)
    -> *mut Status;
    pub(crate) fn acc_autocast_state(device_type: i32, now: *mut AutocastState) -> *mut Status;

    // tensor.cpp: fused and foreach kernels
    pub(crate) fn acc_fused_adam(
        params: *const *const CTensor,
        grads: *const *const CTensor,
        exp_avgs: *const *const CTensor,
        exp_avg_sqs: *const *const CTensor,
        max_exp_avg_sqs: *const *const CTensor,
        steps: *const *const CTensor,
        count: usize,
        step: *const AdamStep,
        grad_scale: *const CTensor,
        found_inf: *const CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_fused_sgd(
        params: *const *const CTensor,
        grads: *const *const CTensor,
        momentum_buffers: *const *const CTensor,
        count: usize,
        step: *const SgdStep,
        grad_scale: *const CTensor,
        found_inf: *const CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_fused_adagrad(
        params: *const *const CTensor,
        grads: *const *const CTensor,
        sums: *const *const CTensor,
        steps: *const *const CTensor,
        count: usize,
        lr: f64,
        lr_decay: f64,
        weight_decay: f64,
        eps: f64,
        maximize: bool,
        grad_scale: *const CTensor,
        found_inf: *const CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_foreach_norm(
        tensors: *const *const CTensor,
        count: usize,
        ord: f64,
        out: *mut *mut CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_foreach_mul(
        tensors: *const *const CTensor,
        count: usize,
        factor: *const CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_foreach_add_scalar(
        tensors: *const *const CTensor,
        count: usize,
        value: f64,
    ) -> *mut Status;
    pub(crate) fn acc_foreach_clamp(
        tensors: *const *const CTensor,
        count: usize,
        low: f64,
        high: f64,
    ) -> *mut Status;
    pub(crate) fn acc_foreach_zero(tensors: *const *const CTensor, count: usize) -> *mut Status;
    pub(crate) fn acc_unscale(
        tensors: *const *const CTensor,
        count: usize,
        found_inf: *const CTensor,
        inverse_scale: *const CTensor,
    ) -> *mut Status;

    // autograd.cpp
    pub(crate) fn acc_register_hook(
        tensor: *const CTensor,
        closure: *mut c_void,
        call: GradHookCall,
        drop: Drop,
        id: *mut u32,
    ) -> *mut Status;
    pub(crate) fn acc_remove_hook(tensor: *const CTensor, id: u32) -> *mut Status;
    pub(crate) fn acc_post_accumulate_add(
        tensor: *const CTensor,
        id: u64,
        closure: *mut c_void,
        call: PostAccumulateCall,
        drop: Drop,
    ) -> *mut Status;
    pub(crate) fn acc_post_accumulate_remove(tensor: *const CTensor, id: u64) -> *mut Status;
    pub(crate) fn acc_list_push(target: *mut TensorList, tensor: *const CTensor);
    pub(crate) fn acc_function_apply(
        inputs: *const *const CTensor,
        count: usize,
        forward: *mut c_void,
        call_forward: FunctionCall,
        drop_forward: Drop,
        backward: *mut c_void,
        call_backward: FunctionCall,
        drop_backward: Drop,
        target: *mut c_void,
        push: Push,
    ) -> *mut Status;
    pub(crate) fn acc_context_save(
        context: *mut Context,
        tensors: *const *const CTensor,
        count: usize,
    ) -> *mut Status;
    pub(crate) fn acc_context_saved(
        context: *mut Context,
        target: *mut c_void,
        push: Push,
    ) -> *mut Status;
    pub(crate) fn acc_context_non_differentiable(
        context: *mut Context,
        tensors: *const *const CTensor,
        count: usize,
    ) -> *mut Status;
    pub(crate) fn acc_context_needs_gradient(
        context: *mut Context,
        index: usize,
        out: *mut bool,
    ) -> *mut Status;
    pub(crate) fn acc_grad_enabled() -> bool;
    pub(crate) fn acc_backward(
        tensors: *const *const CTensor,
        gradients: *const *const CTensor,
        count: usize,
        retain_graph: bool,
        create_graph: bool,
        on_calling_thread: bool,
        behind_graph_ns: *mut i64,
    ) -> *mut Status;
    pub(crate) fn acc_gradients(
        outputs: *const *const CTensor,
        gradients: *const *const CTensor,
        count: usize,
        inputs: *const *const CTensor,
        inputs_count: usize,
        found: *mut bool,
        target: *mut c_void,
        push: Push,
    ) -> *mut Status;
    pub(crate) fn acc_has_hooks(tensor: *const CTensor, out: *mut bool) -> *mut Status;

    // group.cpp: stores
    pub(crate) fn acc_store_tcp(
        host: *const c_char,
        host_length: usize,
        port: u16,
        server: bool,
        workers: usize,
        timeout_ms: i64,
        out: *mut *mut Store,
    ) -> *mut Status;
    pub(crate) fn acc_store_tcp_wait_workers(store: *mut Store) -> *mut Status;
    pub(crate) fn acc_store_tcp_port(store: *mut Store, out: *mut u16) -> *mut Status;
    pub(crate) fn acc_store_file(
        path: *const c_char,
        length: usize,
        workers: c_int,
        out: *mut *mut Store,
    ) -> *mut Status;
    pub(crate) fn acc_store_prefix(
        store: *mut Store,
        prefix: *const c_char,
        length: usize,
        out: *mut *mut Store,
    ) -> *mut Status;
    pub(crate) fn acc_store_clone(store: *mut Store, out: *mut *mut Store) -> *mut Status;
    pub(crate) fn acc_store_free(store: *mut Store);
    pub(crate) fn acc_store_set(
        store: *mut Store,
        key: *const c_char,
        key_length: usize,
        value: *const u8,
        length: usize,
    ) -> *mut Status;
    pub(crate) fn acc_store_get(
        store: *mut Store,
        key: *const c_char,
        key_length: usize,
        timeout_ms: i64,
        sink: Sink,
        target: *mut c_void,
    ) -> *mut Status;
    pub(crate) fn acc_store_compare_set(
        store: *mut Store,
        key: *const c_char,
        key_length: usize,
        expected: *const u8,
        expected_length: usize,
        desired: *const u8,
        desired_length: usize,
        sink: Sink,
        target: *mut c_void,
    ) -> *mut Status;
    pub(crate) fn acc_store_add(
        store: *mut Store,
        key: *const c_char,
        key_length: usize,
        amount: i64,
        out: *mut i64,
    ) -> *mut Status;
    pub(crate) fn acc_store_check(
        store: *mut Store,
        key: *const c_char,
        key_length: usize,
        out: *mut bool,
    ) -> *mut Status;
    pub(crate) fn acc_store_wait(
        store: *mut Store,
        key: *const c_char,
        key_length: usize,
        timeout_ms: i64,
    ) -> *mut Status;
    pub(crate) fn acc_store_delete(
        store: *mut Store,
        key: *const c_char,
        key_length: usize,
        out: *mut bool,
    ) -> *mut Status;

    // group.cpp: groups
    pub(crate) fn acc_group_new(
        store: *mut Store,
        name: *const c_char,
        name_length: usize,
        rank: c_int,
        size: c_int,
        out: *mut *mut Group,
    ) -> *mut Status;
    pub(crate) fn acc_group_free(group: *mut Group);
    pub(crate) fn acc_group_add_gloo(
        group: *mut Group,
        store: *mut Store,
        timeout_ms: i64,
        interface: *const c_char,
        interface_length: usize,
        for_every_device: bool,
    ) -> *mut Status;
    pub(crate) fn acc_group_add_nccl(
        group: *mut Group,
        store: *mut Store,
        timeout_ms: i64,
        high_priority: bool,
        global_ranks: *const u64,
        count: usize,
    ) -> *mut Status;
    pub(crate) fn acc_group_shutdown(group: *mut Group) -> *mut Status;
    pub(crate) fn acc_group_abort(group: *mut Group) -> *mut Status;
    pub(crate) fn acc_group_monitored_barrier(
        group: *mut Group,
        timeout_ms: i64,
        wait_all: bool,
    ) -> *mut Status;

    // group.cpp: collectives
    pub(crate) fn acc_all_reduce(
        group: *mut Group,
        tensors: *const *const CTensor,
        count: usize,
        op: i32,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_broadcast(
        group: *mut Group,
        tensor: *const CTensor,
        root: c_int,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_reduce(
        group: *mut Group,
        tensor: *const CTensor,
        root: c_int,
        op: i32,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_all_gather(
        group: *mut Group,
        outputs: *const *const CTensor,
        count: usize,
        input: *const CTensor,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_all_gather_into(
        group: *mut Group,
        output: *const CTensor,
        input: *const CTensor,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_reduce_scatter(
        group: *mut Group,
        output: *const CTensor,
        inputs: *const *const CTensor,
        count: usize,
        op: i32,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_reduce_scatter_from(
        group: *mut Group,
        output: *const CTensor,
        input: *const CTensor,
        op: i32,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_gather(
        group: *mut Group,
        outputs: *const *const CTensor,
        count: usize,
        input: *const CTensor,
        root: c_int,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_scatter(
        group: *mut Group,
        output: *const CTensor,
        inputs: *const *const CTensor,
        count: usize,
        root: c_int,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_all_to_all(
        group: *mut Group,
        outputs: *const *const CTensor,
        inputs: *const *const CTensor,
        count: usize,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_all_to_all_single(
        group: *mut Group,
        output: *const CTensor,
        input: *const CTensor,
        output_splits: *const i64,
        input_splits: *const i64,
        count: usize,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_send(
        group: *mut Group,
        tensor: *const CTensor,
        peer: c_int,
        tag: c_int,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_receive(
        group: *mut Group,
        tensor: *const CTensor,
        peer: c_int,
        tag: c_int,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_barrier(
        group: *mut Group,
        device_index: i64,
        timeout_ms: i64,
        out: *mut *mut Work,
    ) -> *mut Status;
    pub(crate) fn acc_broadcast_coalesced(
        group: *mut Group,
        tensors: *const *const CTensor,
        count: usize,
        buffer_bytes: usize,
        root: c_int,
    ) -> *mut Status;

    // group.cpp: work
    pub(crate) fn acc_work_wait(work: *mut Work, timeout_ms: i64) -> *mut Status;
    pub(crate) fn acc_work_is_completed(work: *mut Work, out: *mut bool) -> *mut Status;
    pub(crate) fn acc_work_sequence(work: *mut Work, out: *mut u64) -> *mut Status;
    pub(crate) fn acc_work_future(work: *mut Work, out: *mut *mut Future) -> *mut Status;
    pub(crate) fn acc_work_free(work: *mut Work);

    // nccl.cpp
    pub(crate) fn acc_cuda_memory(
        device: i32,
        allocated: *mut i64,
        peak: *mut i64,
        reserved: *mut i64,
    ) -> *mut Status;
    pub(crate) fn acc_cuda_empty_cache() -> *mut Status;
    pub(crate) fn acc_has_nccl() -> bool;

    // reducer.cpp
    pub(crate) fn acc_bucket_assignment(
        tensors: *const *const CTensor,
        count: usize,
        limits: *const usize,
        limit_count: usize,
        bucket_of: *mut usize,
        bucket_count: *mut usize,
    ) -> *mut Status;
    pub(crate) fn acc_verify_params(
        group: *mut Group,
        tensors: *const *const CTensor,
        count: usize,
    ) -> *mut Status;
    pub(crate) fn acc_reducer_new(
        group: *mut Group,
        params: *const *const CTensor,
        count: usize,
        names: *const *const c_char,
        name_lengths: *const usize,
        initial_limits: *const usize,
        limit_count: usize,
        options: *const ReducerOptions,
        out: *mut *mut Reducer,
    ) -> *mut Status;
    pub(crate) fn acc_reducer_free(reducer: *mut Reducer) -> *mut Status;
    pub(crate) fn acc_reducer_prepare_for_forward(reducer: *mut Reducer) -> *mut Status;
    pub(crate) fn acc_reducer_prepare_for_backward(
        reducer: *mut Reducer,
        outputs: *const *const CTensor,
        count: usize,
    ) -> *mut Status;
    pub(crate) fn acc_reducer_rebuild_buckets(reducer: *mut Reducer, out: *mut bool)
    -> *mut Status;
    pub(crate) fn acc_reducer_builtin_hook(reducer: *mut Reducer, fp16: bool) -> *mut Status;
    pub(crate) fn acc_reducer_hook(
        reducer: *mut Reducer,
        closure: *mut c_void,
        call: BucketHookCall,
        drop: Drop,
    ) -> *mut Status;
    pub(crate) fn acc_bucket_index(bucket: *const GradBucket) -> usize;
    pub(crate) fn acc_bucket_is_last(bucket: *const GradBucket) -> bool;
    pub(crate) fn acc_bucket_buffer(
        bucket: *const GradBucket,
        out: *mut *mut CTensor,
    ) -> *mut Status;
    pub(crate) fn acc_bucket_tensors(
        bucket: *const GradBucket,
        gradients: bool,
        target: *mut c_void,
        push: Push,
    ) -> *mut Status;
    pub(crate) fn acc_future_new(like: *const CTensor, out: *mut *mut Future) -> *mut Status;
    pub(crate) fn acc_future_complete(future: *mut Future, value: *const CTensor) -> *mut Status;
    pub(crate) fn acc_future_fail(future: *mut Future, failure: *mut Failure) -> *mut Status;
    pub(crate) fn acc_future_wait(future: *mut Future, out: *mut *mut CTensor) -> *mut Status;
    pub(crate) fn acc_future_is_completed(future: *mut Future, out: *mut bool) -> *mut Status;
    pub(crate) fn acc_future_then(
        future: *mut Future,
        closure: *mut c_void,
        call: ThenCall,
        drop: Drop,
        out: *mut *mut Future,
    ) -> *mut Status;
    pub(crate) fn acc_future_share(future: *mut Future, out: *mut *mut Future) -> *mut Status;
    pub(crate) fn acc_future_free(future: *mut Future);

    // profiler.cpp
    pub(crate) fn acc_profiler_prepare(options: *const ProfilerOptions) -> *mut Status;
    pub(crate) fn acc_profiler_start(options: *const ProfilerOptions) -> *mut Status;
    pub(crate) fn acc_profiler_stop(out: *mut *mut Profile) -> *mut Status;
    pub(crate) fn acc_profile_free(profile: *mut Profile);
    pub(crate) fn acc_profile_save(
        profile: *mut Profile,
        path: *const c_char,
        length: usize,
    ) -> *mut Status;
    pub(crate) fn acc_profile_len(profile: *const Profile) -> usize;
    pub(crate) fn acc_profile_event(
        profile: *const Profile,
        index: usize,
        event: *mut ProfileEvent,
        name: Sink,
        name_target: *mut c_void,
        shapes: Sink,
        shapes_target: *mut c_void,
    ) -> *mut Status;
    pub(crate) fn acc_range_start(
        name: *const c_char,
        length: usize,
        out: *mut *mut Range,
    ) -> *mut Status;
    pub(crate) fn acc_range_end(range: *mut Range);
}
