// Stores, process groups over Gloo, their collectives and the work they start.
#include "group.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

using namespace acc;
using at::Tensor;
using c10d::ProcessGroup;
using Milliseconds = std::chrono::milliseconds;

namespace {

std::string text(const char* data, size_t length) { return {data, length}; }

std::vector<uint8_t> bytes(const uint8_t* data, size_t length) { return {data, data + length}; }

void give(const std::vector<uint8_t>& value, Sink sink, void* target) {
  sink(target, reinterpret_cast<const char*>(value.data()), value.size());
}

// Keeps the store's timeout for one call.
class StoreTimeout {
 public:
  StoreTimeout(c10d::Store& store, int64_t ms) : store_(store), before_(store.getTimeout()) {
    if (ms >= 0) store_.setTimeout(Milliseconds(ms));
  }
  ~StoreTimeout() { store_.setTimeout(before_); }
  StoreTimeout(const StoreTimeout&) = delete;
  StoreTimeout& operator=(const StoreTimeout&) = delete;

 private:
  c10d::Store& store_;
  Milliseconds before_;
};

// The options of a collective with its own timeout; negative keeps the group's.
template <class Options>
Options with_timeout(int64_t ms) {
  Options options;
  if (ms >= 0) options.timeout = Milliseconds(ms);
  return options;
}

c10d::ReduceOp reduce_op(int32_t op) {
  return c10d::ReduceOp(static_cast<c10d::ReduceOp::RedOpType>(op));
}

void give(WorkPtr work, WorkPtr** out) { *out = new WorkPtr(std::move(work)); }

}  // namespace

extern "C" {

// ---- stores ----

Status* acc_store_tcp(const char* host, size_t host_length, uint16_t port, bool server, size_t workers,
                      int64_t timeout_ms, StorePtr** out) {
  return guard([&] {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = server;
    if (workers > 0) options.numWorkers = workers;
    options.waitWorkers = false;
    options.timeout = Milliseconds(timeout_ms);
    *out = new StorePtr(c10::make_intrusive<c10d::TCPStore>(text(host, host_length), options));
  });
}

// Announces this process as a worker; the server waits here for all others.
Status* acc_store_tcp_wait_workers(StorePtr* store) {
  return guard([&] {
    auto* tcp = dynamic_cast<c10d::TCPStore*>(store->get());
    TORCH_CHECK(tcp != nullptr, "only a TCP store counts its workers");
    tcp->waitForWorkers();
  });
}

Status* acc_store_tcp_port(StorePtr* store, uint16_t* out) {
  return guard([&] {
    auto* tcp = dynamic_cast<c10d::TCPStore*>(store->get());
    TORCH_CHECK(tcp != nullptr, "only a TCP store has a port");
    *out = tcp->getPort();
  });
}

Status* acc_store_file(const char* path, size_t length, int workers, StorePtr** out) {
  return guard([&] { *out = new StorePtr(c10::make_intrusive<c10d::FileStore>(text(path, length), workers)); });
}

Status* acc_store_prefix(StorePtr* store, const char* prefix, size_t length, StorePtr** out) {
  return guard([&] { *out = new StorePtr(c10::make_intrusive<c10d::PrefixStore>(text(prefix, length), *store)); });
}

Status* acc_store_clone(StorePtr* store, StorePtr** out) {
  return guard([&] { *out = new StorePtr((*store)->clone()); });
}

void acc_store_free(StorePtr* store) { delete store; }

Status* acc_store_set(StorePtr* store, const char* key, size_t key_length, const uint8_t* value, size_t length) {
  return guard([&] { (*store)->set(text(key, key_length), bytes(value, length)); });
}

Status* acc_store_get(StorePtr* store, const char* key, size_t key_length, int64_t timeout_ms, Sink sink,
                      void* target) {
  return guard([&] {
    StoreTimeout limit(**store, timeout_ms);
    give((*store)->get(text(key, key_length)), sink, target);
  });
}

Status* acc_store_compare_set(StorePtr* store, const char* key, size_t key_length, const uint8_t* expected,
                              size_t expected_length, const uint8_t* desired, size_t desired_length, Sink sink,
                              void* target) {
  return guard([&] {
    give((*store)->compareSet(text(key, key_length), bytes(expected, expected_length), bytes(desired, desired_length)),
         sink, target);
  });
}

Status* acc_store_add(StorePtr* store, const char* key, size_t key_length, int64_t amount, int64_t* out) {
  return guard([&] { *out = (*store)->add(text(key, key_length), amount); });
}

Status* acc_store_check(StorePtr* store, const char* key, size_t key_length, bool* out) {
  return guard([&] { *out = (*store)->check({text(key, key_length)}); });
}

Status* acc_store_wait(StorePtr* store, const char* key, size_t key_length, int64_t timeout_ms) {
  return guard([&] { (*store)->wait({text(key, key_length)}, Milliseconds(timeout_ms)); });
}

Status* acc_store_delete(StorePtr* store, const char* key, size_t key_length, bool* out) {
  return guard([&] { *out = (*store)->deleteKey(text(key, key_length)); });
}

// ---- groups ----

Status* acc_group_new(StorePtr* store, const char* name, size_t name_length, int rank, int size, Group** out) {
  return guard([&] {
    auto made = std::make_unique<Group>();
    made->group = c10::make_intrusive<ProcessGroup>(*store, rank, size);
    made->name = text(name, name_length);
    *out = made.release();
  });
}

void acc_group_free(Group* group) { delete group; }

// `interface` may be empty: then the device is chosen as PyTorch chooses it.
Status* acc_group_add_gloo(Group* group, StorePtr* store, int64_t timeout_ms, const char* interface,
                           size_t interface_length, bool for_every_device) {
  return guard([&] {
    auto options = interface_length == 0 ? c10d::ProcessGroupGloo::Options::create_default(Milliseconds(timeout_ms))
                                         : c10d::ProcessGroupGloo::Options::create(Milliseconds(timeout_ms));
    if (interface_length > 0) {
      options->devices.push_back(
          c10d::ProcessGroupGloo::createDeviceForInterface(text(interface, interface_length)));
    }
    options->group_name = group->name;
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(*store, group->group->getRank(),
                                                            group->group->getSize(), options);
    gloo->setSequenceNumberForGroup();
    group->gloo = gloo;
    group->group->setBackend(c10::DeviceType::CPU, ProcessGroup::BackendType::GLOO, gloo);
    if (for_every_device) {
      group->group->setBackend(c10::DeviceType::CUDA, ProcessGroup::BackendType::GLOO, gloo);
      group->group->setDefaultBackend(ProcessGroup::BackendType::GLOO);
    }
    group->group->setGroupName(group->name);
  });
}

Status* acc_group_add_nccl(Group* group, StorePtr* store, int64_t timeout_ms, bool high_priority,
                           const uint64_t* global_ranks, size_t count) {
  return guard([&] {
    add_nccl(*group, *store, group->group->getRank(), group->group->getSize(), group->name,
             NcclOptions{timeout_ms, high_priority}, {global_ranks, global_ranks + count});
    group->group->setDefaultBackend(ProcessGroup::BackendType::NCCL);
    group->group->setGroupName(group->name);
  });
}

Status* acc_group_shutdown(Group* group) {
  return guard([&] { group->group->shutdown(); });
}

Status* acc_group_abort(Group* group) {
  return guard([&] { group->group->abort(); });
}

Status* acc_group_monitored_barrier(Group* group, int64_t timeout_ms, bool wait_all) {
  return guard([&] {
    TORCH_CHECK(group->gloo != nullptr, "the group has no Gloo backend");
    group->gloo->monitoredBarrier(with_timeout<c10d::BarrierOptions>(timeout_ms), wait_all);
  });
}

// ---- collectives ----

Status* acc_all_reduce(Group* group, const Tensor* const* tensors, size_t count, int32_t op, int64_t timeout_ms,
                       WorkPtr** out) {
  return guard([&] {
    auto all = list(tensors, count);
    auto options = with_timeout<c10d::AllreduceOptions>(timeout_ms);
    options.reduceOp = reduce_op(op);
    give(group->group->allreduce(all, options), out);
  });
}

Status* acc_broadcast(Group* group, const Tensor* tensor, int root, int64_t timeout_ms, WorkPtr** out) {
  return guard([&] {
    std::vector<Tensor> all{*tensor};
    auto options = with_timeout<c10d::BroadcastOptions>(timeout_ms);
    options.rootRank = root;
    give(group->group->broadcast(all, options), out);
  });
}

Status* acc_reduce(Group* group, const Tensor* tensor, int root, int32_t op, int64_t timeout_ms, WorkPtr** out) {
  return guard([&] {
    std::vector<Tensor> all{*tensor};
    auto options = with_timeout<c10d::ReduceOptions>(timeout_ms);
    options.rootRank = root;
    options.reduceOp = reduce_op(op);
    give(group->group->reduce(all, options), out);
  });
}

Status* acc_all_gather(Group* group, const Tensor* const* outputs, size_t count, const Tensor* input,
                       int64_t timeout_ms, WorkPtr** out) {
  return guard([&] {
    std::vector<std::vector<Tensor>> results{list(outputs, count)};
    std::vector<Tensor> inputs{*input};
    give(group->group->allgather(results, inputs, with_timeout<c10d::AllgatherOptions>(timeout_ms)), out);
  });
}

Status* acc_all_gather_into(Group* group, const Tensor* output, const Tensor* input, int64_t timeout_ms,
                            WorkPtr** out) {
  return guard([&] {
    Tensor result = *output;
    Tensor given = *input;
    give(group->group->all_gather_single(result, given, with_timeout<c10d::AllgatherOptions>(timeout_ms)), out);
  });
}

Status* acc_reduce_scatter(Group* group, const Tensor* output, const Tensor* const* inputs, size_t count, int32_t op,
                           int64_t timeout_ms, WorkPtr** out) {
  return guard([&] {
    std::vector<Tensor> results{*output};
    std::vector<std::vector<Tensor>> given{list(inputs, count)};
    auto options = with_timeout<c10d::ReduceScatterOptions>(timeout_ms);
    options.reduceOp = reduce_op(op);
    give(group->group->reduce_scatter(results, given, options), out);
  });
}

Status* acc_reduce_scatter_from(Group* group, const Tensor* output, const Tensor* input, int32_t op,
                                int64_t timeout_ms, WorkPtr** out) {
  return guard([&] {
    Tensor result = *output;
    Tensor given = *input;
    auto options = with_timeout<c10d::ReduceScatterOptions>(timeout_ms);
    options.reduceOp = reduce_op(op);
    give(group->group->reduce_scatter_single(result, given, options), out);
  });
}

// `outputs` is read on the root only.
Status* acc_gather(Group* group, const Tensor* const* outputs, size_t count, const Tensor* input, int root,
                   int64_t timeout_ms, WorkPtr** out) {
  return guard([&] {
    std::vector<std::vector<Tensor>> results;
    if (group->group->getRank() == root) results.push_back(list(outputs, count));
    std::vector<Tensor> inputs{*input};
    auto options = with_timeout<c10d::GatherOptions>(timeout_ms);
    options.rootRank = root;
    give(group->group->gather(results, inputs, options), out);
  });
}

// `inputs` is read on the root only.
Status* acc_scatter(Group* group, const Tensor* output, const Tensor* const* inputs, size_t count, int root,
                    int64_t timeout_ms, WorkPtr** out) {
  return guard([&] {
    std::vector<Tensor> results{*output};
    std::vector<std::vector<Tensor>> given;
    if (group->group->getRank() == root) given.push_back(list(inputs, count));
    auto options = with_timeout<c10d::ScatterOptions>(timeout_ms);
    options.rootRank = root;
    give(group->group->scatter(results, given, options), out);
  });
}

Status* acc_all_to_all(Group* group, const Tensor* const* outputs, const Tensor* const* inputs, size_t count,
                       int64_t timeout_ms, WorkPtr** out) {
  return guard([&] {
    auto results = list(outputs, count);
    auto given = list(inputs, count);
    give(group->group->alltoall(results, given, with_timeout<c10d::AllToAllOptions>(timeout_ms)), out);
  });
}

Status* acc_all_to_all_single(Group* group, const Tensor* output, const Tensor* input, const int64_t* output_splits,
                              const int64_t* input_splits, size_t count, int64_t timeout_ms, WorkPtr** out) {
  return guard([&] {
    Tensor result = *output;
    Tensor given = *input;
    std::vector<int64_t> to(output_splits, output_splits + count);
    std::vector<int64_t> from(input_splits, input_splits + count);
    give(group->group->all_to_all_single(result, given, to, from, with_timeout<c10d::AllToAllOptions>(timeout_ms)), out);
  });
}

Status* acc_send(Group* group, const Tensor* tensor, int peer, int tag, WorkPtr** out) {
  return guard([&] {
    std::vector<Tensor> all{*tensor};
    give(group->group->send(all, peer, tag), out);
  });
}

Status* acc_receive(Group* group, const Tensor* tensor, int peer, int tag, WorkPtr** out) {
  return guard([&] {
    std::vector<Tensor> all{*tensor};
    give(group->group->recv(all, peer, tag), out);
  });
}

// The device index is used by NCCL only.
Status* acc_barrier(Group* group, int64_t device_index, int64_t timeout_ms, WorkPtr** out) {
  return guard([&] {
    auto options = with_timeout<c10d::BarrierOptions>(timeout_ms);
    if (device_index >= 0) options.device_ids = {device_index};
    give(group->group->barrier(options), out);
  });
}

Status* acc_broadcast_coalesced(Group* group, const Tensor* const* tensors, size_t count, size_t buffer_bytes,
                                int root) {
  return guard([&] { c10d::broadcast_coalesced(group->group, list(tensors, count), buffer_bytes, root); });
}

// ---- work ----

Status* acc_work_wait(WorkPtr* work, int64_t timeout_ms) {
  return guard([&] { (*work)->wait(timeout_ms < 0 ? kNoTimeout : Milliseconds(timeout_ms)); });
}

Status* acc_work_is_completed(WorkPtr* work, bool* out) {
  return guard([&] { *out = (*work)->isCompleted(); });
}

Status* acc_work_sequence(WorkPtr* work, uint64_t* out) {
  return guard([&] { *out = (*work)->getSequencenumber(); });
}

Status* acc_work_future(WorkPtr* work, FuturePtr** out) {
  return guard([&] { *out = new FuturePtr((*work)->getFuture()); });
}

void acc_work_free(WorkPtr* work) { delete work; }

}  // extern "C"
