// What every entry point of the shim is wrapped in: no exception leaves C++.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace acc {

// The order is the one of `status::Kind` in Rust.
enum class Kind : int32_t {
  Torch = 0,
  OutOfMemory = 1,
  Store = 2,
  Network = 3,
  Backend = 4,
  Standard = 5,
  Unknown = 6,
  Callback = 7,
};

// An error value of Rust, owned by C++ while it travels through libtorch.
class Payload {
 public:
  Payload(void* value, void (*drop)(void*)) : value_(value), drop_(drop) {}
  ~Payload() {
    if (value_ != nullptr) drop_(value_);
  }
  Payload(const Payload&) = delete;
  Payload& operator=(const Payload&) = delete;
  void* take() { return std::exchange(value_, nullptr); }

 private:
  void* value_;
  void (*drop_)(void*);
};

// Thrown when a Rust closure fails; carries the Rust error back to Rust.
class CallbackFailed : public std::exception {
 public:
  CallbackFailed(std::string text, std::shared_ptr<Payload> payload)
      : text_(std::move(text)), payload_(std::move(payload)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const std::shared_ptr<Payload>& payload() const { return payload_; }

 private:
  std::string text_;
  std::shared_ptr<Payload> payload_;
};

// What an entry point returns when it fails; success is a null pointer.
struct Status {
  Kind kind;
  std::string message;
  std::shared_ptr<Payload> payload;
};

// Makes a status of the exception being handled. Call inside `catch` only.
Status* current_exception() noexcept;

template <class Body>
Status* guard(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return current_exception();
  }
}

// What a closure of Rust gives back: null, or why it failed.
struct Failure {
  std::string text;
  std::shared_ptr<Payload> payload;
};

// A boxed Rust closure. `Args` are what its trampoline takes after the closure.
template <class... Args>
class Closure {
 public:
  using Call = Failure* (*)(void*, Args...);
  Closure(void* value, Call call, void (*drop)(void*))
      : value_(std::make_shared<Payload>(value, drop)), raw_(value), call_(call) {}

  void operator()(Args... args) const {
    std::unique_ptr<Failure> failure(call_(raw_, args...));
    if (failure) throw CallbackFailed(std::move(failure->text), std::move(failure->payload));
  }

 private:
  std::shared_ptr<Payload> value_;
  void* raw_;
  Call call_;
};

// Receives bytes: Rust appends them to a vector.
using Sink = void (*)(void*, const char*, size_t);

inline std::vector<at::Tensor> list(const at::Tensor* const* tensors, size_t count) {
  std::vector<at::Tensor> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) out.push_back(*tensors[i]);
  return out;
}

inline std::optional<at::Tensor> optional(const at::Tensor* tensor) {
  if (tensor == nullptr || !tensor->defined()) return std::nullopt;
  return *tensor;
}

inline at::IntArrayRef shape(const int64_t* sizes, size_t count) { return {sizes, count}; }

}  // namespace acc
