// The kineto profiler: start, stop, events and the Chrome trace.
#include "guard.h"

#include <ATen/record_function.h>
#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

using namespace acc;
namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

namespace {

std::set<ActivityType> activities(bool cpu, bool cuda) {
  std::set<ActivityType> out;
  if (cpu) out.insert(ActivityType::CPU);
  if (cuda) out.insert(ActivityType::CUDA);
  return out;
}

}  // namespace

extern "C" {

struct ProfilerOptions {
  bool cpu, cuda, shapes, memory, stack, flops, modules;
};

}  // extern "C"

namespace {

torch::profiler::impl::ProfilerConfig config(const ProfilerOptions& o) {
  using namespace torch::profiler::impl;
  return ProfilerConfig(ProfilerState::KINETO, o.shapes, o.memory, o.stack, o.flops, o.modules);
}

}  // namespace

extern "C" {

// Warms up what records activities; nothing is recorded yet.
Status* acc_profiler_prepare(const ProfilerOptions* o) {
  return guard([&] { profiler::prepareProfiler(config(*o), activities(o->cpu, o->cuda)); });
}

// Records from here on. No scopes means all: functions, their backward halves and named ranges.
Status* acc_profiler_start(const ProfilerOptions* o) {
  return guard([&] { profiler::enableProfiler(config(*o), activities(o->cpu, o->cuda), {}); });
}

using Result = std::unique_ptr<profiler::ProfilerResult>;

Status* acc_profiler_stop(Result** out) {
  return guard([&] { *out = new Result(profiler::disableProfiler()); });
}

void acc_profile_free(Result* result) { delete result; }

Status* acc_profile_save(Result* result, const char* path, size_t length) {
  return guard([&] { (*result)->save(std::string(path, length)); });
}

size_t acc_profile_len(const Result* result) { return (*result)->events().size(); }

struct ProfileEvent {
  uint64_t start_ns, duration_ns, thread, flops, correlation, linked_correlation;
  int64_t bytes;
  int32_t device_type, device_index;
  bool user_scope, async, hidden;
};

// The name, then the shapes of the inputs as text such as `[[2, 3], []]`.
Status* acc_profile_event(const Result* result, size_t index, ProfileEvent* event, Sink name, void* name_target,
                          Sink shapes, void* shapes_target) {
  return guard([&] {
    const auto& e = (*result)->events().at(index);
    event->start_ns = e.startNs();
    event->duration_ns = e.durationNs();
    event->thread = e.startThreadId();
    event->flops = e.flops();
    event->correlation = e.correlationId();
    event->linked_correlation = e.linkedCorrelationId();
    event->bytes = e.nBytes();
    event->device_type = static_cast<int32_t>(e.deviceType());
    event->device_index = e.deviceIndex();
    // On the CPU, or what a named range on the CPU started on a device.
    const auto activity = static_cast<libkineto::ActivityType>(e.activityType());
    event->user_scope =
        activity == libkineto::ActivityType::USER_ANNOTATION || activity == libkineto::ActivityType::GPU_USER_ANNOTATION;
    event->async = e.isAsync() || e.startThreadId() != e.endThreadId();
    event->hidden = e.isHiddenEvent();
    const auto text = e.name();
    name(name_target, text.data(), text.size());
    if (e.hasShapes()) {
      std::string all;
      for (const auto& one : e.shapes()) {
        all += all.empty() ? "[" : ", [";
        for (size_t i = 0; i < one.size(); ++i) all += (i ? ", " : "") + std::to_string(one[i]);
        all += "]";
      }
      shapes(shapes_target, all.data(), all.size());
    }
  });
}

// A named range that lasts until it is freed.
Status* acc_range_start(const char* name, size_t length, at::RecordFunction** out) {
  return guard([&] {
    auto range = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
    if (range->isActive()) range->before(std::string(name, length));
    *out = range.release();
  });
}

void acc_range_end(at::RecordFunction* range) { delete range; }

}  // extern "C"
