// Hooks on tensors, functions with a Rust backward, and the backward pass itself.
#include "guard.h"

#include <atomic>
#include <chrono>

#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

using namespace acc;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// Rust gets a borrowed tensor and may give an owned one back.
using GradHook = Closure<const Tensor*, Tensor**>;
using PostAccumulate = Closure<const Tensor*>;
// Inputs and their count; where to push what comes back.
using Forward = Closure<AutogradContext*, const Tensor* const*, size_t, variable_list*>;
using Backward = Closure<AutogradContext*, const Tensor* const*, size_t, variable_list*>;

// All Rust hooks of one leaf: libtorch has one slot.
struct PostAccumulateHooks : torch::autograd::PostAccumulateGradHook {
  std::vector<std::pair<uint64_t, PostAccumulate>> hooks;
  void operator()(const Tensor& tensor) override {
    for (const auto& [id, hook] : hooks) hook(&tensor);
  }
};

PostAccumulateHooks* hooks_of(const Tensor& tensor) {
  return dynamic_cast<PostAccumulateHooks*>(torch::autograd::impl::post_acc_grad_hooks(tensor).get());
}

using Clock = std::chrono::steady_clock;
using Moment = std::atomic<Clock::rep>;

// The moment at which the graph was gone through. What the engine does then, in the order in which it was told
// to, is what reducers have left: they wait for their transfers.
std::shared_ptr<Moment> end_of_graph(const variable_list& roots) {
  auto end = std::make_shared<Moment>(0);
  // The first one alone: its hook runs before any reducer's.
  if (roots.empty() || !roots.front().requires_grad()) return end;
  roots.front().register_hook([end](const Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback([end] { *end = Clock::now().time_since_epoch().count(); });
    return Tensor();
  });
  return end;
}

// None since a moment that never came.
int64_t nanoseconds_since(Clock::rep moment) {
  if (moment == 0) return 0;
  const auto passed = Clock::now().time_since_epoch() - Clock::duration(moment);
  return std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count();
}

std::vector<const Tensor*> borrow(const variable_list& tensors) {
  std::vector<const Tensor*> out;
  out.reserve(tensors.size());
  for (const auto& t : tensors) out.push_back(t.defined() ? &t : nullptr);
  return out;
}

// Keeps the whole backward pass on the calling thread, also of tensors on other devices.
class OnCallingThread {
 public:
  explicit OnCallingThread(bool wanted) : before_(state().get_multithreading_enabled()) {
    if (wanted) state().set_multithreading_enabled(false);
  }
  ~OnCallingThread() { state().set_multithreading_enabled(before_); }
  OnCallingThread(const OnCallingThread&) = delete;
  OnCallingThread& operator=(const OnCallingThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  bool before_;
};

// libtorch allows data beside the saved tensors only as `IValue`.
struct BackwardHolder : torch::CustomClassHolder {
  explicit BackwardHolder(Backward b) : backward(std::move(b)) {}
  Backward backward;
};

struct RustFunction : torch::autograd::Function<RustFunction> {
  static variable_list forward(AutogradContext* context, const Forward& run,
                               const c10::intrusive_ptr<BackwardHolder>& holder, at::TensorList inputs) {
    context->set_materialize_grads(false);
    context->saved_data["backward"] = c10::IValue::make_capsule(holder);
    const auto given = inputs.vec();
    variable_list outputs;
    run(context, borrow(given).data(), given.size(), &outputs);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["backward"].toCapsule();
    const auto* holder = static_cast<BackwardHolder*>(capsule.get());
    // The two arguments before the tensors have no gradient.
    variable_list out(2);
    holder->backward(context, borrow(gradients).data(), gradients.size(), &out);
    return out;
  }
};

}  // namespace

extern "C" {

Status* acc_register_hook(const Tensor* tensor, void* closure, GradHook::Call call, void (*drop)(void*),
                          uint32_t* id) {
  GradHook hook(closure, call, drop);
  return guard([&] {
    *id = tensor->register_hook([hook](const Tensor& gradient) {
      Tensor* replaced = nullptr;
      hook(&gradient, &replaced);
      if (replaced == nullptr) return Tensor();
      std::unique_ptr<Tensor> owned(replaced);
      return *owned;
    });
  });
}

Status* acc_remove_hook(const Tensor* tensor, uint32_t id) {
  return guard([&] { tensor->remove_hook(id); });
}

Status* acc_post_accumulate_add(const Tensor* tensor, uint64_t id, void* closure, PostAccumulate::Call call,
                                void (*drop)(void*)) {
  PostAccumulate hook(closure, call, drop);
  return guard([&] {
    auto* hooks = hooks_of(*tensor);
    if (hooks == nullptr) {
      TORCH_CHECK(tensor->is_leaf(), "only a leaf accumulates its gradient");
      TORCH_CHECK(torch::autograd::impl::post_acc_grad_hooks(*tensor) == nullptr,
                  "the tensor has a hook that is not from here");
      auto fresh = std::make_unique<PostAccumulateHooks>();
      hooks = fresh.get();
      torch::autograd::impl::set_post_acc_grad_hooks(*tensor, std::move(fresh));
    }
    hooks->hooks.emplace_back(id, hook);
  });
}

Status* acc_post_accumulate_remove(const Tensor* tensor, uint64_t id) {
  return guard([&] {
    auto* hooks = hooks_of(*tensor);
    if (hooks == nullptr) return;
    auto& all = hooks->hooks;
    all.erase(std::remove_if(all.begin(), all.end(), [id](const auto& entry) { return entry.first == id; }),
              all.end());
  });
}

void acc_list_push(variable_list* target, const Tensor* tensor) {
  target->push_back(tensor == nullptr ? Tensor() : *tensor);
}

// Writes owned handles of all outputs through `push`.
Status* acc_function_apply(const Tensor* const* inputs, size_t count, void* forward, Forward::Call call_forward,
                           void (*drop_forward)(void*), void* backward, Backward::Call call_backward,
                           void (*drop_backward)(void*), void* target, void (*push)(void*, Tensor*)) {
  Forward run(forward, call_forward, drop_forward);
  auto holder = c10::make_intrusive<BackwardHolder>(Backward(backward, call_backward, drop_backward));
  return guard([&] {
    const auto tensors = list(inputs, count);
    for (const auto& output : RustFunction::apply(run, holder, at::TensorList(tensors))) {
      push(target, new Tensor(output));
    }
  });
}

Status* acc_context_save(AutogradContext* context, const Tensor* const* tensors, size_t count) {
  return guard([&] { context->save_for_backward(list(tensors, count)); });
}

Status* acc_context_saved(AutogradContext* context, void* target, void (*push)(void*, Tensor*)) {
  return guard([&] {
    for (const auto& tensor : context->get_saved_variables()) push(target, new Tensor(tensor));
  });
}

Status* acc_context_non_differentiable(AutogradContext* context, const Tensor* const* tensors, size_t count) {
  return guard([&] { context->mark_non_differentiable(list(tensors, count)); });
}

// Whether input `index` wants a gradient, in the backward pass.
Status* acc_context_needs_gradient(AutogradContext* context, size_t index, bool* out) {
  return guard([&] { *out = context->needs_input_grad(index); });
}

// Whether this thread records operations.
bool acc_grad_enabled() { return at::GradMode::is_enabled(); }

Status* acc_backward(const Tensor* const* tensors, const Tensor* const* gradients, size_t count, bool retain_graph,
                     bool create_graph, bool on_calling_thread, int64_t* behind_graph_ns) {
  return guard([&] {
    OnCallingThread thread(on_calling_thread);
    const auto roots = list(tensors, count);
    const auto end = behind_graph_ns == nullptr ? nullptr : end_of_graph(roots);
    torch::autograd::backward(roots, gradients == nullptr ? variable_list{} : list(gradients, count), retain_graph,
                              create_graph);
    if (behind_graph_ns != nullptr) *behind_graph_ns = nanoseconds_since(end->load());
  });
}

// The gradients of `inputs` as far as `outputs` depend on them, without adding any to a leaf: those that are
// there are written through `push`, and which these are into `found`, one flag for each input.
Status* acc_gradients(const Tensor* const* outputs, const Tensor* const* gradients, size_t count,
                      const Tensor* const* inputs, size_t inputs_count, bool* found, void* target,
                      void (*push)(void*, Tensor*)) {
  return guard([&] {
    const auto computed = torch::autograd::grad(list(outputs, count), list(inputs, inputs_count),
                                                list(gradients, count), /*retain_graph=*/false,
                                                /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < computed.size(); ++i) {
      found[i] = computed[i].defined();
      if (found[i]) push(target, new Tensor(computed[i]));
    }
  });
}

// Whether somebody looks at the gradient of a tensor on its way.
Status* acc_has_hooks(const Tensor* tensor, bool* out) {
  return guard([&] { *out = !torch::autograd::impl::hooks(*tensor).empty(); });
}

}  // extern "C"
