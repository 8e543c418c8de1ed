// The kineto profiler: start, stop, events and the Chrome trace.
#include "guard.h"

#include <ATen/record_function.h>
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

Status* acc_profiler_start(const ProfilerOptions* o) {
  return guard([&] {
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO, o->shapes,
                                                       o->memory, o->stack, o->flops, o->modules);
    profiler::prepareProfiler(config, activities(o->cpu, o->cuda));
    profiler::enableProfiler(config, activities(o->cpu, o->cuda),
                             {at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE});
  });
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
  uint64_t start_ns, duration_ns, thread, flops;
  int64_t bytes;
  int32_t device_type, device_index;
  bool user_scope;
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
    event->bytes = e.nBytes();
    event->device_type = static_cast<int32_t>(e.deviceType());
    event->device_index = e.deviceIndex();
    event->user_scope = e.scope() == static_cast<uint8_t>(at::RecordScope::USER_SCOPE);
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
