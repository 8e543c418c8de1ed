#include "guard.h"

#include <torch/csrc/distributed/c10d/exception.h>

namespace acc {

Status* current_exception() noexcept {
  const auto make = [](Kind kind, std::string message, std::shared_ptr<Payload> payload = nullptr) {
    return new Status{kind, std::move(message), std::move(payload)};
  };
  try {
    throw;
  } catch (const CallbackFailed& e) {
    return make(Kind::Callback, e.what(), e.payload());
  } catch (const c10::OutOfMemoryError& e) {
    return make(Kind::OutOfMemory, e.what_without_backtrace());
  } catch (const c10::DistStoreError& e) {
    return make(Kind::Store, e.what_without_backtrace());
  } catch (const c10::DistNetworkError& e) {
    return make(Kind::Network, e.what_without_backtrace());
  } catch (const c10::DistBackendError& e) {
    return make(Kind::Backend, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    return make(Kind::Torch, e.what_without_backtrace());
  } catch (const std::exception& e) {
    return make(Kind::Standard, e.what());
  } catch (...) {
    return make(Kind::Unknown, "an exception outside the C++ standard hierarchy");
  }
}

}  // namespace acc

using namespace acc;

extern "C" {

int32_t acc_status_kind(const Status* status) { return static_cast<int32_t>(status->kind); }

void acc_status_message(const Status* status, Sink sink, void* target) {
  sink(target, status->message.data(), status->message.size());
}

// The Rust error inside, if it is one and nobody took it yet.
void* acc_status_take_payload(Status* status) {
  return status->payload ? status->payload->take() : nullptr;
}

void acc_status_free(Status* status) { delete status; }

Failure* acc_failure_new(const char* text, size_t length, void* payload, void (*drop)(void*)) {
  return new Failure{std::string(text, length), std::make_shared<Payload>(payload, drop)};
}

}  // extern "C"
