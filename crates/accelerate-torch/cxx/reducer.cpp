// Gradient reduction for data parallelism, its hooks and the futures they return.
#include "group.h"

#include <atomic>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/default_comm_hooks.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

using namespace acc;
using at::Tensor;
using c10d::GradBucket;

namespace {

// Gets the bucket, gives an owned future.
using BucketHook = Closure<GradBucket*, FuturePtr**>;
// Gets the finished tensor, gives an owned one.
using Then = Closure<const Tensor*, Tensor**>;

class RustCommHook : public c10d::CommHookInterface {
 public:
  explicit RustCommHook(BucketHook hook) : hook_(std::move(hook)) {}

  FuturePtr runHook(GradBucket& bucket) override {
    FuturePtr* future = nullptr;
    hook_(&bucket, &future);
    std::unique_ptr<FuturePtr> owned(future);
    return *owned;
  }

  Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  BucketHook hook_;
};

struct SharedReducer {
  std::shared_ptr<c10d::Reducer> reducer;
  // The reducer writes into it without asking whether there is one.
  std::shared_ptr<c10d::Logger> logger;
  // Whether the first pass of a static graph is still to come.
  bool first_static_pass;
};

// In the first pass of a static graph libtorch only counts gradients: they are reduced when the pass is over.
void reduce_at_end_of_pass(const std::shared_ptr<c10d::Reducer>& reducer, const std::vector<Tensor>& outputs) {
  const auto queued = std::make_shared<std::atomic<bool>>(false);
  bool hooked = false;
  for (const auto& output : outputs) {
    if (!output.requires_grad()) continue;
    hooked = true;
    output.register_hook([reducer, queued](const Tensor&) {
      if (!queued->exchange(true)) {
        torch::autograd::Engine::get_default_engine().queue_callback([reducer] { reducer->delay_all_reduce(); });
      }
      return Tensor();
    });
  }
  TORCH_CHECK(hooked, "the first pass of a static graph needs an output that requires a gradient");
}

Tensor single(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  TORCH_CHECK(value.isTensorList() && value.toTensorList().size() == 1,
              "the future holds ", value.tagKind(), ", not one tensor");
  return value.toTensorList().get(0);
}

std::vector<c10::Device> devices_of(const Tensor* like) {
  if (like == nullptr || like->device().is_cpu()) return {};
  return {like->device()};
}

}  // namespace

extern "C" {

// Writes the bucket of every tensor, and the size limit of every bucket.
Status* acc_bucket_assignment(const Tensor* const* tensors, size_t count, const size_t* limits, size_t limit_count,
                              size_t* bucket_of, size_t* bucket_count) {
  return guard([&] {
    const auto [buckets, bucket_limits] =
        c10d::compute_bucket_assignment_by_size(list(tensors, count), {limits, limits + limit_count});
    for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
      for (const auto index : buckets[bucket]) bucket_of[index] = bucket;
    }
    *bucket_count = buckets.size();
  });
}

Status* acc_verify_params(Group* group, const Tensor* const* tensors, size_t count) {
  return guard([&] {
    c10d::verify_params_across_processes(group->group, list(tensors, count), std::nullopt);
  });
}

struct ReducerOptions {
  int64_t bucket_bytes;
  int64_t first_bucket_bytes;
  bool find_unused;
  bool bucket_view;
  bool static_graph;
};

Status* acc_reducer_new(Group* group, const Tensor* const* params, size_t count, const char* const* names,
                        const size_t* name_lengths, const size_t* initial_limits, size_t limit_count,
                        const ReducerOptions* options, SharedReducer** out) {
  return guard([&] {
    const auto tensors = list(params, count);
    std::unordered_map<size_t, std::string> param_names;
    for (size_t i = 0; i < count; ++i) param_names.emplace(i, std::string(names[i], name_lengths[i]));
    const std::vector<bool> sparse(count, false);
    const auto assigned = c10d::compute_bucket_assignment_by_size(
        tensors, {initial_limits, initial_limits + limit_count}, sparse);
    const auto& buckets = std::get<0>(assigned);
    // Gradients become ready in about the reverse order of the parameters.
    std::vector<std::vector<size_t>> reversed(buckets.rbegin(), buckets.rend());
    auto reducer = std::make_shared<c10d::Reducer>(
        tensors, std::move(reversed), group->group, sparse, options->bucket_bytes, options->find_unused,
        options->bucket_view, param_names, options->first_bucket_bytes, /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false, std::vector<int64_t>{});
    if (options->static_graph) reducer->set_static_graph();
    auto logger = std::make_shared<c10d::Logger>(reducer);
    reducer->set_logger(logger);
    *out = new SharedReducer{std::move(reducer), std::move(logger), options->static_graph};
  });
}

Status* acc_reducer_free(SharedReducer* shared) {
  return guard([&] { delete shared; });
}

Status* acc_reducer_prepare_for_forward(SharedReducer* shared) {
  return guard([&] { shared->reducer->prepare_for_forward(); });
}

Status* acc_reducer_prepare_for_backward(SharedReducer* shared, const Tensor* const* outputs, size_t count) {
  return guard([&] {
    const auto all = list(outputs, count);
    if (shared->first_static_pass) reduce_at_end_of_pass(shared->reducer, all);
    shared->first_static_pass = false;
    shared->reducer->prepare_for_backward(all);
  });
}

Status* acc_reducer_rebuild_buckets(SharedReducer* shared, bool* out) {
  return guard([&] { *out = shared->reducer->rebuild_buckets(); });
}

Status* acc_reducer_builtin_hook(SharedReducer* shared, bool fp16) {
  return guard([&] {
    shared->reducer->register_builtin_comm_hook(fp16 ? c10d::BuiltinCommHookType::FP16_COMPRESS
                                                     : c10d::BuiltinCommHookType::ALLREDUCE);
  });
}

Status* acc_reducer_hook(SharedReducer* shared, void* closure, BucketHook::Call call, void (*drop)(void*)) {
  BucketHook hook(closure, call, drop);
  return guard([&] { shared->reducer->register_comm_hook(std::make_unique<RustCommHook>(hook)); });
}

// ---- buckets ----

size_t acc_bucket_index(const GradBucket* bucket) { return bucket->getIndex(); }

bool acc_bucket_is_last(const GradBucket* bucket) { return bucket->isLast(); }

Status* acc_bucket_buffer(const GradBucket* bucket, Tensor** out) {
  return guard([&] { *out = new Tensor(bucket->getBuffer()); });
}

Status* acc_bucket_tensors(const GradBucket* bucket, bool gradients, void* target, void (*push)(void*, Tensor*)) {
  return guard([&] {
    for (const auto& t : gradients ? bucket->getGradients() : bucket->getParameters()) push(target, new Tensor(t));
  });
}

// ---- futures ----

Status* acc_future_new(const Tensor* like, FuturePtr** out) {
  return guard([&] {
    *out = new FuturePtr(
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices_of(like)));
  });
}

Status* acc_future_complete(FuturePtr* future, const Tensor* value) {
  return guard([&] { (*future)->markCompleted(c10::IValue(std::vector<Tensor>{*value})); });
}

Status* acc_future_fail(FuturePtr* future, Failure* failure) {
  std::unique_ptr<Failure> owned(failure);
  return guard([&] {
    (*future)->setError(std::make_exception_ptr(CallbackFailed(owned->text, owned->payload)));
  });
}

Status* acc_future_wait(FuturePtr* future, Tensor** out) {
  return guard([&] {
    (*future)->waitAndThrow();
    *out = new Tensor(single((*future)->value()));
  });
}

Status* acc_future_is_completed(FuturePtr* future, bool* out) {
  return guard([&] { *out = (*future)->completed(); });
}

// The closure runs when the value is there, on the thread that completes it.
Status* acc_future_then(FuturePtr* future, void* closure, Then::Call call, void (*drop)(void*), FuturePtr** out) {
  Then then(closure, call, drop);
  return guard([&] {
    auto next = (*future)->then(
        [then](c10::ivalue::Future& done) {
          const auto value = single(done.value());
          Tensor* result = nullptr;
          then(&value, &result);
          std::unique_ptr<Tensor> owned(result);
          return c10::IValue(std::vector<Tensor>{*owned});
        },
        c10::ListType::create(c10::TensorType::get()));
    *out = new FuturePtr(std::move(next));
  });
}

Status* acc_future_share(FuturePtr* future, FuturePtr** out) {
  return guard([&] { *out = new FuturePtr(*future); });
}

void acc_future_free(FuturePtr* future) { delete future; }

}  // extern "C"
