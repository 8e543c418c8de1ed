// NCCL, compiled against CUDA where libtorch has it.
#include "group.h"

#ifdef USE_C10D_NCCL

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace acc {

void add_nccl(Group& group, const StorePtr& store, int rank, int size, const std::string& name,
              const NcclOptions& options, const std::vector<uint64_t>& global_ranks) {
  auto nccl_options = c10d::ProcessGroupNCCL::Options::create(options.high_priority);
  nccl_options->timeout = std::chrono::milliseconds(options.timeout_ms);
  nccl_options->group_name = name;
  nccl_options->global_ranks_in_group = global_ranks;
  auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, nccl_options);
  nccl->setSequenceNumberForGroup();
  group.group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, nccl);
}

}  // namespace acc

extern "C" acc::Status* acc_cuda_memory(int32_t device, int64_t* allocated, int64_t* peak, int64_t* reserved) {
  return acc::guard([&] {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    *allocated = stats.allocated_bytes[all].current;
    *peak = stats.allocated_bytes[all].peak;
    *reserved = stats.reserved_bytes[all].current;
  });
}

extern "C" acc::Status* acc_cuda_empty_cache() {
  return acc::guard([] { c10::cuda::CUDACachingAllocator::emptyCache(); });
}

extern "C" bool acc_has_nccl() { return true; }

#else

namespace acc {

void add_nccl(Group&, const StorePtr&, int, int, const std::string&, const NcclOptions&,
              const std::vector<uint64_t>&) {
  TORCH_CHECK(false, "this build is linked against a libtorch without CUDA");
}

}  // namespace acc

extern "C" acc::Status* acc_cuda_memory(int32_t, int64_t*, int64_t*, int64_t*) {
  return acc::guard([] { TORCH_CHECK(false, "this build is linked against a libtorch without CUDA"); });
}

extern "C" acc::Status* acc_cuda_empty_cache() { return nullptr; }

extern "C" bool acc_has_nccl() { return false; }

#endif
