// The end of a process.
//
// Destroying libtorch's static objects (thousands of operators) takes a fifth of a second, as long
// as half of loading it, and gives back nothing that the end of the process does not. Threads of
// process groups that still run meanwhile have crashed there.
#include <cstdio>
#include <cstdlib>

#include <unistd.h>

#ifdef __GLIBC__

namespace {

// A process that failed takes its time: others may be asking it, or the store that it serves, why.
void leave(int status, void*) {
  if (status != 0) {
    return;
  }
  std::fflush(nullptr);
  _exit(status);
}

// Handlers run in the reverse of their order: this one before the destructors of the libraries that
// were loaded with the program, after everything that the program registers itself. Where coverage
// is recorded, its file is written by a handler that must not be lost.
const int registered = std::getenv("LLVM_PROFILE_FILE") == nullptr ? on_exit(leave, nullptr) : 0;

}  // namespace

#endif
