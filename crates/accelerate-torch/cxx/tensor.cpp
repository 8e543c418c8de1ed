// Storage, devices, random generators, determinism, autocast and the fused kernels.
#include "guard.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/variable.h>

#include <typeinfo>

#ifdef __GLIBC__
#include <malloc.h>
#endif

using namespace acc;
using at::Tensor;

namespace {

// `Device` of tch: a device type of c10 and an index, -1 for the current one.
at::Device device_of(int32_t type, int32_t index) {
  return at::Device(static_cast<at::DeviceType>(type), static_cast<at::DeviceIndex>(index));
}

// Gives a storage other memory of `bytes` bytes, without copying.
void reallocate(const Tensor& tensor, size_t bytes) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage->resizable(), "the storage was made from foreign memory and cannot change its size");
  auto* allocator = storage->allocator();
  TORCH_CHECK(allocator != nullptr, "the storage has no allocator");
  storage->set_data_ptr_noswap(allocator->allocate(bytes));
  storage->set_nbytes(bytes);
}

// Whether nothing but sizes, type, device and storage makes the tensor what it is.
bool is_plain(const Tensor& tensor) {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  return typeid(impl) == typeid(c10::TensorImpl) && tensor.layout() == at::kStrided;
}

struct Owner {
  void* value;
  void (*drop)(void*);
};

}  // namespace

extern "C" {

// ---- storage ----

size_t acc_tensor_identity(const Tensor* tensor) {
  return reinterpret_cast<size_t>(tensor->unsafeGetTensorImpl());
}

Status* acc_storage_identity(const Tensor* tensor, size_t* out) {
  return guard([&] { *out = reinterpret_cast<size_t>(tensor->storage().unsafeGetStorageImpl()); });
}

Status* acc_storage_bytes(const Tensor* tensor, size_t* out) {
  return guard([&] { *out = tensor->storage().nbytes(); });
}

Status* acc_storage_reallocate(const Tensor* tensor, size_t bytes) {
  return guard([&] { reallocate(*tensor, bytes); });
}

// Exchanges the memory of two storages on one device.
Status* acc_storage_swap(const Tensor* left, const Tensor* right) {
  return guard([&] {
    auto* a = left->storage().unsafeGetStorageImpl();
    auto* b = right->storage().unsafeGetStorageImpl();
    TORCH_CHECK(a->device() == b->device(), "the storages are on ", a->device(), " and ", b->device());
    TORCH_CHECK(a->resizable() && b->resizable(), "a storage was made from foreign memory");
    if (a == b) return;
    const auto a_bytes = a->nbytes();
    const auto b_bytes = b->nbytes();
    auto a_memory = a->set_data_ptr(at::DataPtr());
    auto b_memory = b->set_data_ptr(std::move(a_memory));
    a->set_data_ptr_noswap(std::move(b_memory));
    a->set_nbytes(b_bytes);
    b->set_nbytes(a_bytes);
  });
}

Status* acc_set_data(const Tensor* parameter, const Tensor* view) {
  return guard([&] { parameter->set_data(*view); });
}

// As `set_data`, which refuses to go between the meta device and one with memory.
Status* acc_replace_data(const Tensor* tensor, const Tensor* view) {
  return guard([&] {
    TORCH_CHECK(is_plain(*tensor) && is_plain(*view), "only plain dense tensors can change places");
    TORCH_CHECK(!view->requires_grad(), "the values have a place in a graph of gradients");
    if (auto* autograd = torch::autograd::impl::get_autograd_meta(*tensor)) {
      // Views of tensors without gradients are leaves too, as a reshaped table is.
      TORCH_CHECK(autograd->grad_fn_ == nullptr, "the tensor is the result of an operation");
      // What collects gradients was made for the old device and type.
      std::lock_guard<std::mutex> lock(autograd->mutex_);
      autograd->grad_accumulator_.reset();
    }
    tensor->unsafeGetTensorImpl()->shallow_copy_from(view->getIntrusivePtr());
  });
}

Status* acc_storage_use_count(const Tensor* tensor, size_t* out) {
  return guard([&] { *out = static_cast<size_t>(tensor->storage().use_count()); });
}

// A tensor with a storage of its own over a part of the bytes of another, which it keeps alive.
Status* acc_part_of_bytes(const Tensor* base, size_t offset, int32_t kind, const int64_t* sizes,
                          size_t dimensions, Tensor** out) {
  return guard([&] {
    TORCH_CHECK(base->device().is_cpu() && base->is_contiguous(), "the bytes are not in a row in CPU memory");
    const auto type = static_cast<at::ScalarType>(kind);
    size_t bytes = c10::elementSize(type);
    for (size_t i = 0; i < dimensions; i++) bytes *= static_cast<size_t>(sizes[i]);
    TORCH_CHECK(offset <= base->nbytes() && bytes <= base->nbytes() - offset, bytes, " bytes from ", offset,
                " on are not within ", base->nbytes());
    auto* data = static_cast<char*>(base->mutable_data_ptr()) + offset;
    TORCH_CHECK(reinterpret_cast<size_t>(data) % c10::elementSize(type) == 0, "the bytes are not aligned for ", type);
    *out = new Tensor(at::from_blob(
        data, shape(sizes, dimensions), [keep = base->storage()](void*) mutable { keep = c10::Storage(); },
        at::TensorOptions().dtype(type)));
  });
}

Status* acc_from_owner(const void* data, void* owner, void (*drop)(void*), int32_t kind,
                       const int64_t* sizes, size_t dimensions, Tensor** out) {
  // The owner is given up to us in every case, also when this fails.
  std::shared_ptr<Owner> keep(new Owner{owner, drop}, [](Owner* o) {
    o->drop(o->value);
    delete o;
  });
  return guard([&] {
    *out = new Tensor(at::from_blob(
        const_cast<void*>(data), shape(sizes, dimensions), [keep](void*) mutable { keep.reset(); },
        at::TensorOptions().dtype(static_cast<at::ScalarType>(kind))));
  });
}

Status* acc_contiguous_bytes(const Tensor* tensor, const void** data, size_t* length) {
  return guard([&] {
    TORCH_CHECK(tensor->device().is_cpu(), "the tensor is on ", tensor->device(), ", not on the CPU");
    TORCH_CHECK(tensor->is_contiguous(), "the tensor is not contiguous");
    *data = tensor->const_data_ptr();
    *length = tensor->nbytes();
  });
}

// ---- devices and types ----

Status* acc_empty(const int64_t* sizes, size_t dimensions, int32_t kind, int32_t device_type,
                  int32_t device_index, Tensor** out) {
  return guard([&] {
    *out = new Tensor(at::empty(shape(sizes, dimensions),
                                at::TensorOptions()
                                    .dtype(static_cast<at::ScalarType>(kind))
                                    .device(device_of(device_type, device_index))));
  });
}

Status* acc_to_meta(const Tensor* tensor, Tensor** out) {
  return guard([&] { *out = new Tensor(tensor->to(at::Device(at::kMeta))); });
}

Status* acc_device(const Tensor* tensor, int32_t* type, int32_t* index) {
  return guard([&] {
    *type = static_cast<int32_t>(tensor->device().type());
    *index = tensor->device().index();
  });
}

Status* acc_kind_name(const Tensor* tensor, Sink sink, void* target) {
  return guard([&] {
    const std::string name = c10::toString(tensor->scalar_type());
    sink(target, name.data(), name.size());
  });
}

// Zero where the device type is unknown to this build.
int32_t acc_device_count(int32_t type) {
  const auto device_type = static_cast<at::DeviceType>(type);
  if (!c10::impl::hasDeviceGuardImpl(device_type)) return 0;
  return c10::impl::getDeviceGuardImpl(device_type)->deviceCount();
}

Status* acc_set_current_device(int32_t type, int32_t index) {
  return guard([&] {
    const auto device = device_of(type, index);
    TORCH_CHECK(c10::impl::hasDeviceGuardImpl(device.type()), "this libtorch has no ", device.type(), " devices");
    c10::impl::getDeviceGuardImpl(device.type())->setDevice(device);
  });
}

// Waits until everything queued on the device is done.
Status* acc_synchronize(int32_t type, int32_t index) {
  return guard([&] {
    const auto device = device_of(type, index);
    if (device.is_cpu()) return;
    c10::impl::getDeviceGuardImpl(device.type())->synchronizeDevice(device.index());
  });
}

// What the driver says of a device's memory.
Status* acc_accelerator_memory(int32_t type, int32_t index, uint64_t* free, uint64_t* total) {
  return guard([&] {
    const auto device = device_of(type, index);
    TORCH_CHECK(c10::impl::hasDeviceGuardImpl(device.type()), "this libtorch has no ", device.type(), " devices");
    TORCH_CHECK(device.index() < c10::impl::getDeviceGuardImpl(device.type())->deviceCount(), "there is no ", device);
    // An allocation, though empty, brings up what the device needs in this process.
    at::empty({1}, at::TensorOptions().device(device));
    const auto memory = at::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
    *free = memory.first;
    *total = memory.second;
  });
}

// A stream of the device, of which work does not wait for that of the default one.
Status* acc_stream_from_pool(int32_t type, int32_t index, int64_t* id) {
  return guard([&] {
    const auto device = device_of(type, index);
    TORCH_CHECK(c10::impl::hasDeviceGuardImpl(device.type()), "this libtorch has no ", device.type(), " devices");
    *id = c10::impl::getDeviceGuardImpl(device.type())->getStreamFromGlobalPool(device).id();
  });
}

// Makes a stream the current one of this thread.
Status* acc_exchange_stream(int32_t type, int32_t index, int64_t id, int64_t* before) {
  return guard([&] {
    const c10::Stream stream(c10::Stream::UNSAFE, device_of(type, index), id);
    *before = c10::impl::getDeviceGuardImpl(stream.device_type())->exchangeStream(stream).id();
  });
}

// Waits until everything queued on a stream is done.
Status* acc_synchronize_stream(int32_t type, int32_t index, int64_t id) {
  return guard([&] {
    const c10::Stream stream(c10::Stream::UNSAFE, device_of(type, index), id);
    c10::impl::getDeviceGuardImpl(stream.device_type())->synchronizeStream(stream);
  });
}

// The memory of the tensor is not given to others before what this thread's stream is at is done.
Status* acc_used_by_current_stream(const Tensor* tensor) {
  return guard([&] {
    const auto device = tensor->device();
    if (!c10::impl::hasDeviceGuardImpl(device.type()) || device.is_cpu() || device.is_meta()) return;
    const auto* impl = c10::impl::getDeviceGuardImpl(device.type());
    impl->recordDataPtrOnStream(tensor->storage().data_ptr(), impl->getStream(device));
  });
}

// Freed memory stays in the process up to `bytes`. Answers false where the allocator has no such switch.
bool acc_keep_freed_memory(size_t bytes) {
#ifdef __GLIBC__
  // Blocks above this size are always given back; glibc accepts no more than half an arena.
  constexpr int kLargestKept = 4 * 1024 * 1024 * sizeof(long);
  const int limit = bytes > INT32_MAX ? INT32_MAX : static_cast<int>(bytes);
  return mallopt(M_MMAP_THRESHOLD, std::min(limit, kLargestKept)) == 1 && mallopt(M_TRIM_THRESHOLD, limit) == 1;
#else
  return false;
#endif
}

// Gives freed memory back to the system. Answers whether there was any, as far as the allocator says.
bool acc_give_back_freed_memory() {
#ifdef __GLIBC__
  return malloc_trim(0) == 1;
#else
  return false;
#endif
}

// ---- gradients of leaves ----

Status* acc_grad(const Tensor* tensor, Tensor** out) {
  return guard([&] {
    const auto& grad = tensor->grad();
    *out = grad.defined() ? new Tensor(grad) : nullptr;
  });
}

Status* acc_set_grad(const Tensor* tensor, const Tensor* grad) {
  return guard([&] { tensor->mutable_grad() = grad == nullptr ? Tensor() : *grad; });
}

// ---- random generators ----

Status* acc_generator_new(uint64_t seed, at::Generator** out) {
  return guard([&] { *out = new at::Generator(at::make_generator<at::CPUGeneratorImpl>(seed)); });
}

Status* acc_generator_default(int32_t type, int32_t index, at::Generator** out) {
  return guard([&] { *out = new at::Generator(at::globalContext().defaultGenerator(device_of(type, index))); });
}

void acc_generator_free(at::Generator* generator) { delete generator; }

Status* acc_generator_manual_seed(at::Generator* generator, uint64_t seed) {
  return guard([&] {
    std::lock_guard<std::mutex> lock(generator->mutex());
    generator->set_current_seed(seed);
  });
}

Status* acc_generator_initial_seed(at::Generator* generator, uint64_t* out) {
  return guard([&] {
    std::lock_guard<std::mutex> lock(generator->mutex());
    *out = generator->current_seed();
  });
}

Status* acc_generator_state(at::Generator* generator, Tensor** out) {
  return guard([&] {
    std::lock_guard<std::mutex> lock(generator->mutex());
    *out = new Tensor(generator->get_state());
  });
}

Status* acc_generator_set_state(at::Generator* generator, const Tensor* state) {
  return guard([&] {
    std::lock_guard<std::mutex> lock(generator->mutex());
    generator->set_state(*state);
  });
}

Status* acc_generator_randperm(at::Generator* generator, int64_t n, Tensor** out) {
  return guard([&] { *out = new Tensor(at::randperm(n, *generator, at::TensorOptions().dtype(at::kLong))); });
}

Status* acc_generator_random(at::Generator* generator, int64_t* out) {
  return guard([&] {
    *out = at::empty({}, at::TensorOptions().dtype(at::kLong)).random_(*generator).item<int64_t>();
  });
}

Status* acc_generator_randint(at::Generator* generator, int64_t high, int64_t n, Tensor** out) {
  return guard([&] {
    *out = new Tensor(at::randint(high, {n}, *generator, at::TensorOptions().dtype(at::kLong)));
  });
}

Status* acc_generator_multinomial(at::Generator* generator, const Tensor* weights, int64_t n,
                                  bool replacement, Tensor** out) {
  return guard([&] { *out = new Tensor(at::multinomial(*weights, n, replacement, *generator)); });
}

// ---- deterministic algorithms ----

struct DeterminismState {
  // 0: any algorithm, 1: warn of one without a deterministic form, 2: refuse it.
  int32_t algorithms;
  bool fill_uninitialized;
  bool cudnn_deterministic;
  bool cudnn_benchmark;
  bool onednn_deterministic;
};

Status* acc_determinism(DeterminismState* now) {
  return guard([&] {
    const auto& context = at::globalContext();
    now->algorithms = !context.deterministicAlgorithms() ? 0 : context.deterministicAlgorithmsWarnOnly() ? 1 : 2;
    now->fill_uninitialized = context.deterministicFillUninitializedMemory();
    now->cudnn_deterministic = context.deterministicCuDNN();
    now->cudnn_benchmark = context.benchmarkCuDNN();
    now->onednn_deterministic = context.deterministicMkldnn();
  });
}

Status* acc_set_determinism(const DeterminismState* wanted) {
  return guard([&] {
    auto& context = at::globalContext();
    context.setDeterministicAlgorithms(wanted->algorithms != 0, wanted->algorithms == 1);
    context.setDeterministicFillUninitializedMemory(wanted->fill_uninitialized);
    context.setDeterministicCuDNN(wanted->cudnn_deterministic);
    context.setBenchmarkCuDNN(wanted->cudnn_benchmark);
    context.setDeterministicMkldnn(wanted->onednn_deterministic);
  });
}

// ---- autocast ----

struct AutocastState {
  bool enabled;
  int32_t kind;
  bool cache;
};

Status* acc_autocast_enter(int32_t type, bool enabled, int32_t kind, bool cache, AutocastState* before) {
  return guard([&] {
    const auto device_type = static_cast<at::DeviceType>(type);
    before->enabled = at::autocast::is_autocast_enabled(device_type);
    before->kind = static_cast<int32_t>(at::autocast::get_autocast_dtype(device_type));
    before->cache = at::autocast::is_autocast_cache_enabled();
    at::autocast::set_autocast_enabled(device_type, enabled);
    at::autocast::set_autocast_dtype(device_type, static_cast<at::ScalarType>(kind));
    at::autocast::set_autocast_cache_enabled(cache);
    at::autocast::increment_nesting();
  });
}

Status* acc_autocast_leave(int32_t type, const AutocastState* before) {
  return guard([&] {
    const auto device_type = static_cast<at::DeviceType>(type);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_type, before->enabled);
    at::autocast::set_autocast_dtype(device_type, static_cast<at::ScalarType>(before->kind));
    at::autocast::set_autocast_cache_enabled(before->cache);
  });
}

Status* acc_autocast_state(int32_t type, AutocastState* now) {
  return guard([&] {
    const auto device_type = static_cast<at::DeviceType>(type);
    now->enabled = at::autocast::is_autocast_enabled(device_type);
    now->kind = static_cast<int32_t>(at::autocast::get_autocast_dtype(device_type));
    now->cache = at::autocast::is_autocast_cache_enabled();
  });
}

// ---- fused and foreach kernels ----

}  // extern "C"

namespace {

// Kernels over lists do not count what they change, as others do: who keeps copies would not know.
void count_change(const Tensor* const* tensors, size_t count) {
  for (size_t i = 0; i < count; ++i) tensors[i]->unsafeGetTensorImpl()->bump_version();
}

}  // namespace

extern "C" {

struct AdamStep {
  double lr, beta1, beta2, weight_decay, eps;
  bool amsgrad, maximize, decoupled;
};

Status* acc_fused_adam(const Tensor* const* params, const Tensor* const* grads,
                       const Tensor* const* exp_avgs, const Tensor* const* exp_avg_sqs,
                       const Tensor* const* max_exp_avg_sqs, const Tensor* const* steps, size_t count,
                       const AdamStep* s, const Tensor* grad_scale, const Tensor* found_inf) {
  return guard([&] {
    at::NoGradGuard no_grad;
    const auto max = s->amsgrad ? list(max_exp_avg_sqs, count) : std::vector<Tensor>{};
    using Kernel = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                            at::TensorList, double, double, double, double, double, bool, bool,
                            const std::optional<Tensor>&, const std::optional<Tensor>&);
    const Kernel decoupled = at::_fused_adamw_;
    const Kernel coupled = at::_fused_adam_;
    const Kernel run = s->decoupled ? decoupled : coupled;
    run(list(params, count), list(grads, count), list(exp_avgs, count), list(exp_avg_sqs, count), max,
        list(steps, count), s->lr, s->beta1, s->beta2, s->weight_decay, s->eps, s->amsgrad, s->maximize,
        optional(grad_scale), optional(found_inf));
    count_change(params, count);
  });
}

struct SgdStep {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize, first_step;
};

Status* acc_fused_sgd(const Tensor* const* params, const Tensor* const* grads,
                      const Tensor* const* momentum_buffers, size_t count, const SgdStep* s,
                      const Tensor* grad_scale, const Tensor* found_inf) {
  return guard([&] {
    at::NoGradGuard no_grad;
    const auto buffers = s->momentum == 0 ? std::vector<Tensor>{} : list(momentum_buffers, count);
    at::_fused_sgd_(list(params, count), list(grads, count), buffers, s->weight_decay, s->momentum, s->lr,
                    s->dampening, s->nesterov, s->maximize, s->first_step, optional(grad_scale),
                    optional(found_inf));
    count_change(params, count);
  });
}

Status* acc_fused_adagrad(const Tensor* const* params, const Tensor* const* grads,
                          const Tensor* const* sums, const Tensor* const* steps, size_t count, double lr,
                          double lr_decay, double weight_decay, double eps, bool maximize,
                          const Tensor* grad_scale, const Tensor* found_inf) {
  return guard([&] {
    at::NoGradGuard no_grad;
    at::_fused_adagrad_(list(params, count), list(grads, count), list(sums, count), list(steps, count), lr,
                        lr_decay, weight_decay, eps, maximize, optional(grad_scale), optional(found_inf));
    count_change(params, count);
  });
}

Status* acc_foreach_norm(const Tensor* const* tensors, size_t count, double ord, Tensor** out) {
  return guard([&] {
    const auto norms = at::_foreach_norm(list(tensors, count), ord);
    for (size_t i = 0; i < count; ++i) out[i] = new Tensor(norms[i]);
  });
}

Status* acc_foreach_mul(const Tensor* const* tensors, size_t count, const Tensor* factor) {
  return guard([&] {
    at::NoGradGuard no_grad;
    at::_foreach_mul_(list(tensors, count), *factor);
  });
}

Status* acc_foreach_add_scalar(const Tensor* const* tensors, size_t count, double value) {
  return guard([&] {
    at::NoGradGuard no_grad;
    at::_foreach_add_(list(tensors, count), value);
  });
}

Status* acc_foreach_clamp(const Tensor* const* tensors, size_t count, double low, double high) {
  return guard([&] {
    at::NoGradGuard no_grad;
    const auto all = list(tensors, count);
    at::_foreach_clamp_max_(all, high);
    at::_foreach_clamp_min_(all, low);
  });
}

Status* acc_foreach_zero(const Tensor* const* tensors, size_t count) {
  return guard([&] {
    at::NoGradGuard no_grad;
    at::_foreach_zero_(list(tensors, count));
  });
}

// Multiplies by `inverse_scale` and sets `found_inf` to 1 where a value is not finite.
Status* acc_unscale(const Tensor* const* tensors, size_t count, const Tensor* found_inf,
                    const Tensor* inverse_scale) {
  return guard([&] {
    at::NoGradGuard no_grad;
    Tensor found = *found_inf;
    at::_amp_foreach_non_finite_check_and_unscale_(list(tensors, count), found, *inverse_scale);
  });
}

}  // extern "C"
