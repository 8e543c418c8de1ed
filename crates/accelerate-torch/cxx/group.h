// Process groups and what they hand out.
#pragma once

#include "guard.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace acc {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

struct Group {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  // libtorch keeps the name in the backends, so each gets it when it is added.
  std::string name;
  // The Gloo backend, for the monitored barrier; null where the group has none.
  c10::intrusive_ptr<c10d::Backend> gloo;
};

struct NcclOptions {
  int64_t timeout_ms;
  bool high_priority;
};

// Adds an NCCL backend to `group`. Throws where this libtorch has no CUDA.
void add_nccl(Group& group, const StorePtr& store, int rank, int size, const std::string& name,
              const NcclOptions& options, const std::vector<uint64_t>& global_ranks);

}  // namespace acc
